package snapshot

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"testing"

	"blockd/internal/testkit"
)

// gone is a store that gives nothing.
type gone struct{}

func (gone) Get(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, errors.New("connection refused")
}
func (gone) String() string { return "nowhere" }

func TestARelayServesWhatItHas(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 12_000)...)
	c.publish()
	o := c.options()
	o.Serves = true
	relay := c.node(o)
	once(t, relay)
	server := httptest.NewServer(relay.Relay())
	defer server.Close()
	web, err := NewWeb(server.URL, "test")
	testkit.Must(t, err)
	o = c.options()
	o.From, o.Relays = gone{}, []Store{web}
	behind := c.node(o)
	once(t, behind)
	c.agrees(behind)

	c.add("spam", "one@more.example")
	c.publish()
	once(t, relay)
	once(t, behind)
	c.agrees(behind)
	if behind.counters.fetch[kindDelta] == 0 {
		t.Error("no delta came over the relay")
	}
	fresh := c.options() // wants whole objects, of which the relay has had deltas alone
	fresh.From, fresh.Relays = gone{}, []Store{web}
	late := c.node(fresh)
	once(t, late)
	c.agrees(late)
	for _, name := range []string{"state", "../state", "prod/../state", "files/x", "manifests/1.json.json", "objects/1.zst", "current/manifest.json", "prod/state"} {
		if in, err := web.Get(t.Context(), name, 0); err == nil {
			in.Close()
			t.Errorf("the relay gives %s", name)
		}
	}
}
