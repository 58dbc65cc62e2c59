package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/letter"
)

// TestReport: a letter names refused senders, so it is shown to a token that may read, and sent by one that may write.
func TestReport(t *testing.T) {
	f, bear := ownersFixture(t)
	s := f.settings
	var from []time.Duration
	var fails, away error
	sent := 0
	s.Report = &Report{To: "ops@here.example", Every: 24 * time.Hour,
		Make: func(_ context.Context, since, until time.Time) (letter.Letter, error) {
			from = append(from, until.Sub(since).Round(time.Hour))
			l, err := letter.Gather(t.Context(), letter.Sources{Host: "mx1.here.example"}, since, until)
			l.Mail.Refused = 3
			return l, errors.Join(err, fails)
		},
		Send: func(context.Context, *letter.Letter) ([]ReportDelivery, error) {
			sent++
			return []ReportDelivery{{"ops@here.example", true, "250 ok"}}, away
		}}
	f.serve(s)
	read, write := bear(Read), bear(Write)
	for _, tt := range []struct {
		what, method, target string
		headers              []string
		want                 int
	}{
		{"a time that is none", "GET", "/v1/report?since=yesterday", []string{read}, http.StatusBadRequest},
		{"a time to come", "GET", "/v1/report?since=2999-01-01T00:00:00Z", []string{read}, http.StatusBadRequest},
		{"twice", "GET", "/v1/report?since=&since=", []string{read}, http.StatusBadRequest},
		{"a word that it has not", "GET", "/v1/report?to=x@evil.example", []string{read}, http.StatusBadRequest},
	} {
		f.gives(t, tt.want, tt.method, tt.target, "", tt.headers...)
	}
	if len(from) > 0 || sent > 0 {
		t.Errorf("%d letters made and %d sent for who may not", len(from), sent)
	}
	w := f.ask("GET", "/v1/report", "", read)
	var a map[string]any
	testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &a))
	testkit.MustEqual(t, "status", w.Code, http.StatusOK)
	l, _ := a["letter"].(map[string]any)
	for _, name := range []string{"lists", "loads", "requests", "proposed", "pending", "changes", "problems", "notes"} {
		if _, ok := l[name].([]any); !ok {
			t.Errorf("%s is %v, want an array", name, l[name])
		}
	}
	testkit.Got(a["subject"], a["empty"], a["text"].(string))(t, "the report", "blockd on mx1.here.example: 3 refused", false, "…\n3  refused\n…")
	if w := f.ask("POST", "/v1/report?since="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "", write); w.Code != http.StatusOK ||
		strings.TrimSpace(w.Body.String()) != `{"deliveries":[{"recipient":"ops@here.example","accepted":true,"reply":"250 ok"}]}` {
		t.Errorf("sent: %d %s", w.Code, w.Body)
	}
	testkit.Got(len(from), testkit.At(from, 0), testkit.At(from, 1), sent)(t, fmt.Sprintf("letters about %v", from), 2, 24*time.Hour, time.Hour, 1)
	away = errors.New("smtp.upstream: connection refused")
	wantProblem(t, f.ask("POST", "/v1/report", "", write), http.StatusBadGateway, "connection refused")
	fails = errors.New("no space left on device")
	f.gives(t, http.StatusInternalServerError, "GET", "/v1/report", "", read)
}
