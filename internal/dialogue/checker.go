package dialogue

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
)

// Index compiles the dialogue's lists, by the same code as the daemon.
func (d *Dialogue) Index(t testing.TB) *index.Index {
	t.Helper()
	folder := t.TempDir()
	var sources []index.Source
	for _, l := range d.Lists {
		source := index.Source{List: l.Name, Path: filepath.Join(folder, l.Name+".txt")}
		source.Settings.Format = "plain"
		switch l.Kind {
		case "":
		case "allow":
			source.Settings.Action = lists.Allow
		case "shadow":
			source.Mode = index.Shadow
		default:
			t.Fatalf("%s: list %s: unknown kind %q", d.Name, l.Name, l.Kind)
		}
		if err := os.WriteFile(source.Path, []byte(strings.Join(l.Entries, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source)
	}
	draft, err := index.Build(t.Context(), filepath.Join(folder, "index.bdx"), sources, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(draft.Discard)
	return draft.Index()
}

// Checker decides by the dialogue's lists, with its settings "exempt" (words) and
// "on_error".
func (d *Dialogue) Checker(t testing.TB) *policy.Checker {
	t.Helper()
	s := policy.Settings{
		RecipientsExempt: []string{"postmaster", "abuse"},
		OnError:          policy.OnError(d.Settings["on_error"]),
	}
	if words, ok := d.Settings["exempt"]; ok {
		s.RecipientsExempt = strings.Fields(words)
	}
	ix := d.Index(t)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	return policy.New(func() *index.Index { return ix }, s, log, prometheus.NewRegistry())
}
