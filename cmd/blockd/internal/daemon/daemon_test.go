package daemon

import (
	"fmt"
	"log/slog"
	"testing"

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
	for i, tt := range []struct {
		taken  int64
		status reload.Status
		want   int64
	}{{1, refused("spam"), 0}, {1, reload.Status{}, 1}, {2, refused("own"), 2}, {3, refused("spam"), 2}, {1, refused("spam"), 2}, {1, reload.Status{}, 1}} {
		testkit.Equal(t, fmt.Sprint("step ", i), o.inForce(c, snapshot.Status{Sequence: tt.taken}, tt.status).Sequence, tt.want)
	}
}
