package daemon

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
	"blockd/reload"
	"blockd/sources/snapshot"
)

// TestServeNamesItselfAsTheWireAllows: what stands in greetings and Received
// fields is a domain name in A-form, whatever was configured or the system says.
func TestServeNamesItselfAsTheWireAllows(t *testing.T) {
	for name, want := range map[string]string{
		"MX.Here.example.": "mx.here.example", "müller.example": "xn--mller-kva.example", "my host": "localhost", "a\r\nb": "localhost",
	} {
		testkit.Equal(t, fmt.Sprintf("wireName(%q)", name), wireName(name, slog.New(slog.DiscardHandler)), want)
	}
}

// TestInForce: a node shows the sequence by which it answers, not the one that its gate refuses.
func TestInForce(t *testing.T) {
	var o reporting
	var c config.Config
	c.Index.Path, c.Fleet.From = "/x.bdx", "file:///store"
	c.Lists = []config.List{{Name: "spam", Path: snapshot.ListFiles(c.FleetFolder(), "spam")}, {Name: "own", Path: "own.txt"}}
	refused := func(list string) reload.Status { return reload.Status{Refusals: []reload.Refusal{{List: list}}} }
	at := time.Unix(1_700_000_000, 0)
	looked := func(s reload.Status, when time.Time) reload.Status { s.Looked = when; return s }
	for i, tt := range []struct {
		taken  int64
		at     time.Time // zero: before the start
		status reload.Status
		want   int64
	}{{1, time.Time{}, refused("spam"), 0}, {1, time.Time{}, reload.Status{}, 1}, {2, time.Time{}, refused("own"), 2}, {3, time.Time{}, refused("spam"), 2},
		{1, time.Time{}, refused("spam"), 2}, {1, time.Time{}, reload.Status{}, 1},
		{4, at, looked(reload.Status{}, at.Add(-1)), 1}, // it is being built
		{4, at, looked(refused("spam"), at.Add(1)), 1},  // and is refused
		{5, at.Add(2), looked(reload.Status{}, at), 1},  // the look is about the one before
		{5, at.Add(2), looked(reload.Status{}, at.Add(2)), 5},
	} {
		testkit.Equal(t, fmt.Sprint("step ", i), o.inForce(c, snapshot.Status{Sequence: tt.taken, Taken: tt.at}, tt.status).Sequence, tt.want)
	}
}
