package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/receipt"
	"blockd/internal/testkit"
	"blockd/records/history"
)

// requestFixture has requests about refusals of the given senders, the last one the newest.
func newRequestFixture(t *testing.T, senders ...string) (f *entryFixture, refs []string) {
	f = newEntryFixture(t)
	folder := t.TempDir()
	key := testkit.Value(receipt.OpenKey(folder))(t)
	store := receipt.NewStore(folder, key)
	door := &receipt.Server{Key: key, Requests: store, Log: slog.New(slog.DiscardHandler), Contact: func(string, string) string { return "" }}
	door.Register(prometheus.NewRegistry())
	for _, sender := range senders {
		ref := key.NewRef()
		door.Find = func(context.Context, string) (*history.Record, error) {
			return &history.Record{Time: time.Now(), Outcome: "refuse", List: "bad", Sender: sender, Client: netip.MustParseAddr("192.0.2.7")}, nil
		}
		w := httptest.NewRecorder()
		door.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/r/"+ref, nil))
		testkit.MustEqual(t, "request", w.Code, http.StatusSeeOther)
		refs = append(refs, ref)
	}
	f.settings.Requests = store
	settings := f.settings
	f.serve(settings)
	return f, refs
}

func TestDecisionsAboutRequests(t *testing.T) {
	f, refs := newRequestFixture(t, "x@bad.example", "", "no address", "y@bad.example")
	post := func(path string) (status int, text string) {
		w := f.ask("POST", path, "", f.write)
		return w.Code, w.Body.String()
	}
	testkit.MustEqual(t, "before", f.verdict(t, "x@bad.example"), "blocked bad")
	if status, text := post("/v1/requests/grant?for=2d&author=jo&ref=" + refs[0]); status != 200 || !strings.Contains(text, `"by":"jo (helpdesk)"`) || !strings.Contains(text, `"result":"added"`) || strings.Contains(text, `"from"`) {
		t.Errorf("grant: %d %s", status, text)
	}
	testkit.Begins(t, "after", f.verdict(t, "x@bad.example"), "allowed")
	// Without a sender it is the client that is let in.
	testkit.Got(post("/v1/requests/grant?ref="+refs[1]))(t, "the null sender", 200, `…"entry":"192.0.2.7"…`)
	for path, want := range map[string]struct {
		status int
		words  string
	}{
		"grant?ref=" + refs[0]:          {409, "decided already: granted"},
		"decline?ref=" + refs[0]:        {409, "decided already: granted"},
		"grant?ref=" + refs[2]:          {400, "no live entry"},
		"grant?for=soon&ref=" + refs[3]: {400, "for: "},
		"grant?for=-1d&ref=" + refs[3]:  {400, "for: "},
		"grant":                         {400, "ref: want one"},
		"grant?ref=0123456789abcdef":    {404, "no request with this reference"},
		"decline?ref=../../key":         {404, "no request with this reference"},
		"decline?for=1d&ref=" + refs[3]: {400, "for: no such parameter"},
		"grant?ref=a&ref=b":             {400, "ref: want it once"},
	} {
		wantProblem(t, f.ask("POST", "/v1/requests/"+path, "", f.write), want.status, want.words)
	}
	testkit.Got(post("/v1/requests/decline?ref="+refs[3]))(t, "decline", 200, `…"state":"declined"…`)
	for state, want := range map[string]int{"": 4, "?state=open": 1, "?state=granted": 2, "?state=declined": 1} {
		testkit.Equal(t, fmt.Sprintf("%q", state), len(decoded[RequestList](t, f.ask("GET", "/v1/requests"+state, "", f.read), http.StatusOK, asJSON).Requests), want)
	}
	wantProblem(t, f.ask("GET", "/v1/requests?state=odd", "", f.read), 400, "state: want open, granted or declined")
}

// A grant asks for proof where SPF passed the refused client, not where it did not, and is put off where DNS does not tell. What is
// sent back of the entry makes it again.
func TestGrantsAskForProof(t *testing.T) {
	f, refs := newRequestFixture(t, "spf@bad.example", "none@bad.example", "unknown@bad.example", "")
	answers := map[string]receipt.Proof{"spf@bad.example": receipt.SPF, "none@bad.example": receipt.NoProof, "unknown@bad.example": receipt.Unknown}
	f.settings.Proves = func(_ context.Context, q receipt.Request) receipt.Proof {
		if q.Sender == "" || q.Client != "192.0.2.7" {
			t.Errorf("asked about %+v", q)
		}
		return answers[q.Sender]
	}
	f.serve(f.settings)
	for i, want := range []string{"spf,dkim", "", "-", ""} {
		w := f.ask("POST", "/v1/requests/grant?ref="+refs[i], "", f.write)
		if want == "-" {
			wantProblem(t, f.ask("POST", "/v1/requests/grant?proof=spf&ref="+refs[i], "", f.write), http.StatusBadRequest, "proof: want none")
			wantProblem(t, w, http.StatusServiceUnavailable, "DNS does not tell whether SPF passes 192.0.2.7 for unknown@bad.example")
			if q, err := f.settings.Requests.Get(refs[i]); err != nil || q.State != receipt.Open {
				t.Errorf("%+v, %v", q, err)
			}
			if done := decoded[RequestGrant](t, f.ask("POST", "/v1/requests/grant?proof=none&ref="+refs[i], "", f.write), http.StatusOK, asJSON); done.Change.Entry.Require != nil || done.Proof != "" {
				t.Errorf("without proof: %+v", done)
			}
			continue
		}
		done := decoded[RequestGrant](t, w, http.StatusOK, asJSON)
		testkit.Equal(t, fmt.Sprintf("request %d requires", i), strings.Join(done.Change.Entry.Require, ","), want)
		if i == 0 && done.Proof != receipt.SPF {
			t.Errorf("the request says %q", done.Proof)
		}
	}
	testkit.Begins(t, "without proof", f.verdict(t, "spf@bad.example"), "blocked")
	testkit.Begins(t, "granted without proof", f.verdict(t, "none@bad.example"), "allowed")
	testkit.Has(t, f.ask("GET", "/v1/entries.csv", "", f.read).Body.String(), "spf@bad.example,allow with spf or dkim,")
	removed := decoded[ChangeResults](t, f.ask("DELETE", "/v1/entries?entry=spf@bad.example", "", f.write), http.StatusOK, asJSON)
	was := testkit.Value(json.Marshal(removed.Results[0].Was))(t)
	again := decoded[ChangeResults](t, f.ask("POST", "/v1/entries", string(was), f.write, "Content-Type: application/json"), http.StatusOK, asJSON)
	testkit.Equal(t, "made again", len(again.Results[0].Entry.Require), 2)
	for _, bad := range []string{`["spf"]`, `["spf","dkim","auth"]`, `["dkim","dkim"]`} {
		wantProblem(t, f.ask("POST", "/v1/entries", `{"entry":"x@y.example","action":"allow","require":`+bad+`}`, f.write, "Content-Type: application/json"), 400, "require: want")
	}
	wantProblem(t, f.ask("POST", "/v1/entries", `{"entry":"x@y.example","require":["spf","dkim"]}`, f.write, "Content-Type: application/json"), 400, "a block needs no proof")
}
