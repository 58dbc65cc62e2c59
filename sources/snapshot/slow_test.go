package snapshot

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// slow is a store that takes its time for each object, as one behind a network does, and gives up with its context.
type slow struct{ Folder }

func (s slow) Put(ctx context.Context, name string, content io.ReadSeeker, size int64, changes bool) error {
	if strings.HasPrefix(name, "objects/") {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return s.Folder.Put(ctx, name, content, size, changes)
}

// What is still on its way into the store when the last shard is made arrives there.
func TestUploadsOutlastTheShards(t *testing.T) {
	c := newChannel(t)
	for i := range 1000 {
		c.add("spam", fmt.Sprintf("a%d@one.example", i)) // in all shards
	}
	p := c.publisher()
	p.To = slow{c.store}
	defer p.Close()
	if _, err := p.Publish(t.Context(), c.content(), true); err != nil {
		t.Fatal(err)
	}
}
