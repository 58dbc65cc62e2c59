package live

import (
	"testing"
	"time"

	"blockd/mail/digest"
)

func TestDigestsOfLiveEntries(t *testing.T) {
	folder := t.TempDir()
	open := func(hashes digest.Set) *Set {
		set, err := Open(Settings{Folder: folder, Hashes: hashes})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := open(digest.SetOf(digest.MD5, digest.SHA256))
	now := time.Now()
	for _, c := range []Change{
		{Entry: "a@bücher.test"}, {Entry: "bulk.test"}, {Entry: "offers@"}, {Entry: "192.0.2.1"},
		{Entry: "short@bulk.test", Expires: now.Add(time.Hour)},
	} {
		if _, err := set.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	want := func(a digest.Algorithm, text string, at time.Time, want string) {
		t.Helper()
		got, ok := set.AddressOf(digest.Of(a, text), at)
		if got.String() != want || ok != (want != "") {
			t.Errorf("AddressOf(%v of %s) = %q, %v; want %q", a, text, got, ok, want)
		}
	}
	all := func() {
		t.Helper()
		for _, a := range []digest.Algorithm{digest.MD5, digest.SHA256} {
			want(a, "a@bücher.test", now, "a@xn--bcher-kva.test")
			want(a, "a@xn--bcher-kva.test", now, "a@xn--bcher-kva.test")
			want(a, "short@bulk.test", now, "short@bulk.test")
			want(a, "short@bulk.test", now.Add(2*time.Hour), "")
			want(a, "bulk.test", now, "")
			want(a, "offers@", now, "")
		}
		want(digest.SHA1, "a@bücher.test", now, "")
	}
	all()
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	set = open(digest.SetOf(digest.MD5, digest.SHA256))
	defer set.Close()
	all()
	if _, err := set.Apply(Change{Entry: "a@xn--bcher-kva.test", Remove: true}); err != nil {
		t.Fatal(err)
	}
	want(digest.MD5, "a@bücher.test", now, "")
	want(digest.MD5, "a@xn--bcher-kva.test", now, "")
	if err := set.sweep(now.Add(2 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	if set.view.Load().digests.body.Load() != nil {
		t.Error("digests of entries that have gone")
	}
	if _, ok := (*Set)(nil).AddressOf(digest.Of(digest.MD5, "a@b.test"), now); ok {
		t.Error("an address of no set")
	}
}
