package httpapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/live/shared"
)

// While the store of the fleet is away, its tokens give less than they say. Who would be let in by it is told so; who would not is told that.
func TestRightsOfTheFleetWithoutItsStore(t *testing.T) {
	f := newEntryFixture(t)
	folder := t.TempDir()
	node, err := shared.Open(shared.Options{Folder: folder, Set: f.set})
	if err != nil {
		t.Fatal(err)
	}
	drawn := filepath.Join(t.TempDir(), "fleet")
	boss, helper := newToken(t, drawn, "boss", Admin), newToken(t, drawn, "helper", Write)
	rows, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shared.TokenFile(folder), rows, 0o600); err != nil {
		t.Fatal(err)
	}
	s := f.settings
	s.Shared = node
	f.Server = New(s, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
	for _, tt := range []struct {
		method, target, credential string
		want                       int
		says                       string
	}{
		{"GET", "/v1/entries", boss, 200, ""},
		{"POST", "/v1/entries", boss, 503, "store of the fleet"},
		{"GET", "/v1/tokens", boss, 503, "store of the fleet"},
		{"POST", "/v1/entries", helper, 503, "store of the fleet"},
		{"GET", "/v1/tokens", helper, 403, "--admin"},
	} {
		w := f.ask(tt.method, tt.target, `{"entry":"x.example"}`, tt.credential, json1)
		if w.Code != tt.want || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s is %d, want %d with %q: %s", tt.method, tt.target, w.Code, tt.want, tt.says, w.Body)
		}
	}
}
