package httpapi

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/asked"
	"blockd/policy"
	"blockd/reload"
)

// TestListThatIsAsked: a verdict if the store answers, "unknown" if it is away and no other list decides.
func TestListThatIsAsked(t *testing.T) {
	s := &asked.Store{}
	ix, reg, log := build(t, "bad.example\n"), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{Stores: s.Sets(t, "bad", asked.Name)}, log, reg)
	f := &fixture{Server: New(Settings{Fast: true}, checker, func() reload.Status { return reload.Status{Ready: true} }, reg, log)}
	s.Door(t, func(domain string) string {
		var got struct{ Verdict string }
		testkit.Must(t, json.Unmarshal(f.ask("GET", "/v1/check?sender=ann@"+domain, "").Body.Bytes(), &got))
		return got.Verdict
	}, asked.Answers{Listed: "blocked", Clear: "clear", Unknown: "unknown", Others: map[string]string{"bad.example": "blocked"}})
}
