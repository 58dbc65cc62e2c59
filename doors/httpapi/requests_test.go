package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/receipt"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/records/history"
	"blockd/records/quarantine"
	"blockd/reload"
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

// asideFixture is a Server with a quarantine of some messages, and a token of each scope.
type asideFixture struct {
	*fixture
	dir         string
	read, write string // header lines
	log         testkit.Log
	deliver     quarantine.Deliver
	changed     int
}

func newAsideFixture(t testing.TB, messages int) *asideFixture {
	t.Helper()
	f := &asideFixture{fixture: &fixture{live: build(t, "bad.example\n")}, dir: t.TempDir()}
	for _, name := range []string{"tmp", "new", "cur"} {
		testkit.Must(t, os.Mkdir(filepath.Join(f.dir, name), 0o700))
	}
	for i := range messages {
		testkit.Write(t, filepath.Join(f.dir, "new", fmt.Sprintf("170000000%d.M%d.host", i, i)),
			fmt.Sprintf("Return-Path: <a%d@bad.example>\r\nDelivered-To: u@here.example\r\nX-Blockd: list=bad ref=r\r\nReceived: from x\r\nSubject: <b>%d\r\n\r\nhello\r\n", i, i))
	}
	path := filepath.Join(t.TempDir(), "tokens")
	f.read, f.write = newToken(t, path, "viewer", Read), newToken(t, path, "helpdesk", Write)
	reg := prometheus.NewRegistry()
	checker := policy.New(nil, policy.Settings{}, slog.New(slog.DiscardHandler), reg)
	f.Server = New(Settings{Tokens: path, Quarantine: &Quarantine{
		Folder:  quarantine.Folder(f.dir),
		Fill:    func() QuarantineFill { return QuarantineFill{Count: messages, MaxCount: 7, Octets: 1, MaxOctets: 2} },
		Changed: func() { f.changed++ },
		Deliver: func(ctx context.Context, m quarantine.Mail) ([]quarantine.Delivery, error) { return f.deliver(ctx, m) },
	}}, checker, func() reload.Status { return f.status }, reg, f.log.Logger())
	return f
}

func TestQuarantinePages(t *testing.T) {
	f := newAsideFixture(t, 5)
	var all []string
	for cursor, pages := "", 0; ; pages++ {
		page := decoded[QuarantineList](t, f.ask("GET", "/v1/quarantine?limit=2&cursor="+url.QueryEscape(cursor), "", f.read), http.StatusOK, asJSON)
		for _, m := range page.Messages {
			all = append(all, m.Sender)
		}
		testkit.Got(page.Count, page.MaxCount, page.MaxOctets)(t, fmt.Sprintf("fill %+v", page.QuarantineFill), 5, 7, 2)
		if cursor = page.Next; cursor == "" {
			testkit.Equal(t, "pages before the last", pages, 2)
			break
		}
	}
	testkit.Equal(t, "messages", strings.Join(all, " "), "a4@bad.example a3@bad.example a2@bad.example a1@bad.example a0@bad.example")
	testkit.Equal(t, "found", len(decoded[QuarantineList](t, f.ask("GET", "/v1/quarantine?sender=A3&recipient=u@&list=bad&before=2040-01-01T00:00:00Z&since=2001-01-01T00:00:00Z", "", f.read), http.StatusOK, asJSON).Messages), 1)
	for query, words := range map[string]string{"limit=0": "limit: want 1 to", "limit=x": "limit: want", "since=soon": "since: want a time", "before=1": "before: want a time", "q=x": "q: no such parameter", "sender=a&sender=b": "sender: want it once"} {
		wantProblem(t, f.ask("GET", "/v1/quarantine?"+query, "", f.read), http.StatusBadRequest, words)
	}
}

func TestQuarantinedMessage(t *testing.T) {
	f := newAsideFixture(t, 2)
	m := decoded[quarantine.Content](t, f.ask("GET", "/v1/quarantine/message?id=1700000001", "", f.write), http.StatusOK, asJSON)
	testkit.Got(m.Body, m.Subject, m.Sender, m.Ref)(t, "message", "hello\r\n", "<b>1", "a1@bad.example", "r")
	w := f.ask("GET", "/v1/quarantine/message?id=1700000001", "", f.write, "Accept: message/rfc822")
	testkit.Got(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Content-Disposition"), w.Body.String())(t, "as it is", http.StatusOK, typeMail, "attachment…", "Return-Path: <a1@…")
	for query, want := range map[string]int{"": 400, "id=": 400, "id=170000000": 400, "id=x": 404, "id=../../etc/passwd": 404, "id=1700000001&x=1": 400} {
		f.gives(t, want, "GET", "/v1/quarantine/message?"+query, "", f.write)
	}
}

func TestQuarantineRelease(t *testing.T) {
	f := newAsideFixture(t, 3)
	release := func(query string) (status int, body string) {
		w := f.ask("POST", "/v1/quarantine/release?"+query, "", f.write)
		return w.Code, w.Body.String()
	}
	f.deliver = func(_ context.Context, m quarantine.Mail) ([]quarantine.Delivery, error) {
		if _, err := io.Copy(io.Discard, m.Message); err != nil {
			return nil, err
		}
		return []quarantine.Delivery{{Recipient: m.Recipients[0], Accepted: true, Reply: "250 ok"}}, m.End()
	}
	if status, body := release("id=1700000000&author=jo+x"); status != http.StatusOK || !strings.Contains(body, `"left":false`) || !strings.Contains(body, "250 ok") {
		t.Errorf("released: %d %s", status, body)
	}
	if log := f.log.String(); !strings.Contains(log, "mail released") || !strings.Contains(log, `by="jo+x (helpdesk)"`) || f.changed != 1 {
		t.Errorf("log, %d changes:\n%s", f.changed, log)
	}
	f.deliver = func(context.Context, quarantine.Mail) ([]quarantine.Delivery, error) {
		return nil, errors.New("connection refused")
	}
	wantProblem(t, f.ask("POST", "/v1/quarantine/release?id=1700000001", "", f.write), http.StatusBadGateway, "connection refused")
	f.deliver = func(_ context.Context, m quarantine.Mail) ([]quarantine.Delivery, error) {
		return nil, errors.Join(m.End(), quarantine.ErrUnsure)
	}
	wantProblem(t, f.ask("POST", "/v1/quarantine/release?id=1700000001", "", f.write), http.StatusBadGateway, "cut off")
	wantProblem(t, f.ask("POST", "/v1/quarantine/release?id=1700000001", "", f.write), http.StatusConflict, "say again=1")
	for query, want := range map[string]int{"id=none": 404, "id=1700000001&again=yes": 400, "": 400} {
		testkit.Got(release(query))(t, fmt.Sprintf("%q", query), want, "…")
	}
}

func TestQuarantineRemove(t *testing.T) {
	f := newAsideFixture(t, 4)
	for query, words := range map[string]string{"": "want id or before", "id=x&before=2040-01-01T00:00:00Z": "not both", "before=yesterday": "before: want a time", "older=30d": "no such parameter"} {
		wantProblem(t, f.ask("DELETE", "/v1/quarantine?"+query, "", f.write), http.StatusBadRequest, words)
	}
	testkit.Equal(t, "removed", decoded[quarantine.Removed](t, f.ask("DELETE", "/v1/quarantine?id=1700000003", "", f.write), http.StatusOK, asJSON).Messages, 1)
	done := decoded[quarantine.Removed](t, f.ask("DELETE", "/v1/quarantine?before=2023-11-14T22:13:22Z", "", f.write), http.StatusOK, asJSON)
	testkit.Got(done.Messages, f.changed)(t, "removed", 2, 2)
	if left := decoded[QuarantineList](t, f.ask("GET", "/v1/quarantine", "", f.read), http.StatusOK, asJSON).Messages; len(left) != 1 || left[0].Sender != "a2@bad.example" {
		t.Errorf("left %+v", left)
	}
}
