package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/reload"
)

// Who may not write may not reload, and a loopback address alone gives no right.
func TestReloadWantsTheRightToWrite(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	asked := 0
	s := New(Settings{First: "a-token-of-the-first-start", Reload: func(context.Context, string) Reloaded { asked++; return Reloaded{Faults: []string{"f"}} }},
		f.checker, func() reload.Status { return reload.Status{} }, prometheus.NewRegistry(), f.log)
	for _, c := range []struct {
		method, token string
		want          int
	}{{"POST", "", 401}, {"POST", "another", 401}, {"GET", "a-token-of-the-first-start", 405}, {"POST", "a-token-of-the-first-start", 200}} {
		r := httptest.NewRequest(c.method, "http://localhost/v1/reload", http.NoBody)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s with %q = %d %s, want %d", c.method, c.token, w.Code, w.Body, c.want)
		}
	}
	if asked != 1 {
		t.Errorf("reloaded %d times", asked)
	}
}
