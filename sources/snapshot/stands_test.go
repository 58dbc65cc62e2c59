package snapshot

import (
	"errors"
	"testing"
	"time"
)

// What a person has published again stays, although the lists of the publisher still have what was taken back, until a person publishes; and it
// is made anew before it ends.
func TestWhatWasPublishedAgainStays(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 100)...)
	c.publish()
	c.add("spam", "good@partner.example")
	c.publish()
	p := c.publisher()
	defer p.Close()
	if _, err := p.Halt(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if told, err := p.Again(t.Context(), 1, true); err != nil || told.Sequence != 3 || !told.Lifted {
		t.Fatalf("%+v, %v", told, err)
	}
	for range 2 {
		if told, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) || told != nil {
			t.Fatalf("what was taken back is published by itself: %+v, %v", told, err)
		}
	}
	c.add("spam", addresses(100, 110)...) // neither with others
	if told, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) {
		t.Fatalf("%+v, %v", told, err)
	}
	p.aged = Life
	told, err := p.PublishChanges(t.Context(), c.content())
	if err != nil || told.Sequence != 4 {
		t.Fatalf("it ends, and is not made anew: %+v, %v", told, err)
	}
	p.aged = 0
	if _, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) {
		t.Fatal(err)
	}
	c.remove("spam", "good@partner.example")
	if told, err = p.Publish(t.Context(), c.content(), false); err != nil || told.Sequence != 5 || told.Entries != 110 {
		t.Fatalf("%+v, %v", told, err)
	}
	c.add("spam", addresses(110, 120)...)
	if told, err = p.PublishChanges(t.Context(), c.content()); err != nil || told.Sequence != 6 {
		t.Fatalf("%+v, %v", told, err)
	}
}

// Those that can be published again are in the store.
func TestSequencesThatAreThere(t *testing.T) {
	c := newChannel(t)
	c.keep = 3
	for i := range 5 {
		c.add("spam", addresses(i, i+1)...)
		c.publish()
	}
	kept, err := Kept(c.folder, "prod")
	if err != nil || len(kept) != 3 || kept[0].Sequence != 5 || kept[2].Sequence != 3 || kept[2].entries() != 3 || kept[2].Created == 0 {
		t.Fatalf("%+v, %v", kept, err)
	}
	if kept, err = Kept(c.folder, "other"); err != nil || len(kept) != 0 {
		t.Fatalf("of another channel: %+v, %v", kept, err)
	}
	if kept, err = Kept(t.TempDir(), "prod"); err != nil || len(kept) != 0 {
		t.Fatalf("of no publisher: %+v, %v", kept, err)
	}
}
