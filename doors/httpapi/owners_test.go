package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/forget"
	"blockd/doors/httpapi/session"
	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/junk"
	"blockd/records/audit"
	"blockd/records/history"
	"blockd/reload"
)

// mailbox cuts tags off, and has an alias.
func mailbox(a addr.Addr) addr.Addr {
	a = a.Untagged("+")
	if a.String() == "sales@here.example" {
		a, _ = addr.Parse("anna@here.example")
	}
	return a
}

// TestAliasesLeadToTheirOwner: mail for an alias is judged by the entries of its owner, so an entry that is added for the alias is added for the owner. Who may not change
// the owner may not do it by an alias either.
func TestAliasesLeadToTheirOwner(t *testing.T) {
	f, bear := ownersFixture(t)
	anna, bob := bear(Write, "anna@here.example"), bear(Write, "bob@here.example")
	if r := f.ask("POST", "/v1/owners/sales@here.example/entries", `{"entry":"promo@bulk.example"}`, anna, json1); r.Code != 200 {
		t.Fatalf("anna adds for an alias of hers: %d %s", r.Code, r.Body.String())
	}
	testkit.Has(t, f.ask("GET", "/v1/owners/anna+x@here.example/entries", "", anna).Body.String(), "promo@bulk.example")
	testkit.Equal(t, "bob reads it", f.ask("GET", "/v1/owners/sales@here.example/entries", "", bob).Code, 404)
}

// ownersFixture is a Server with live entries and tokens: bear gives the header of one that is bound to owners.
func ownersFixture(t testing.TB) (f *fixture, bear func(scope Scope, owners ...string) string) {
	t.Helper()
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir(), MaxPerOwner: 5}))(t)
	t.Cleanup(func() { set.Close() })
	path := filepath.Join(t.TempDir(), "tokens")
	f = newFixture(t, Settings{Entries: set, Tokens: path, First: firstFile(t), Mailbox: mailbox}, "bad.example\n")
	return f, bearers(t, path)
}

// bearers makes tokens t1, t2 and so on in a file, as header lines.
func bearers(t testing.TB, path string) func(scope Scope, owners ...string) string {
	n := 0
	return func(scope Scope, owners ...string) string {
		t.Helper()
		var keys []addr.Key
		for _, o := range owners {
			k := testkit.Value(addr.ParseOwner(o))(t)
			keys = append(keys, k)
		}
		n++
		token := testkit.Value(NewToken(path, fmt.Sprintf("t%d", n), scope, nil, "", keys...))(t)
		return "Authorization: Bearer " + token
	}
}

const json1 = "Content-Type: application/json"

func TestOwnersEntries(t *testing.T) {
	f, bear := ownersFixture(t)
	ann := bear(Write, "ann@here.example")
	const path = "/v1/owners/ann@here.example/entries"
	w := f.ask("POST", path, `{"entry":"Promo@Bulk.example","why":"enough"}`, ann, json1)
	if got := decoded[ChangeResults](t, w, 200, asJSON).Results[0]; got.Result != "added" || got.Entry.Owner != "ann@here.example" || got.Entry.Author != "t1" {
		t.Errorf("added: %+v", got.Entry)
	}
	w = f.ask("GET", path, "", ann)
	first, tag := decoded[OwnerEntries](t, w, 200, asJSON), w.Header().Get("Etag")
	testkit.Got(len(first.Entries), first.Total, first.Owner, testkit.At(first.Entries, 0).Entry)(t, "entries", 1, 1, "ann@here.example", "promo@bulk.example")
	f.gives(t, http.StatusNotModified, "GET", path, "", ann, "If-None-Match: "+tag)
	f.ask("POST", path, `{"entries":[{"entry":"a@x.example"},{"entry":"b@x.example","action":"allow"},{"entry":"c@x.example"}]}`, ann, json1, "If-Match: "+tag)
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, ann, json1, "If-Match: "+tag), 412, "have changed meanwhile")
	wantProblem(t, f.ask("DELETE", path+"?entry=a@x.example", "", ann, "If-Match: "+tag), 412, "have changed meanwhile")
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, ann, json1, "If-Match: x"), 400, "want the ETag")
	wantProblem(t, f.ask("POST", path, `{"entries":[{"entry":"d@x.example"},{"entry":"e@x.example"}]}`, ann, json1), 409, "ann@here.example has 4, and may have 5 (max_entries_per_owner); remove one first")
	wantProblem(t, f.ask("POST", path, `{"entry":"192.0.2.1"}`, ann, json1), 400, "an owner's entry is about senders")
	wantProblem(t, f.ask("POST", path, `{"owner":"bob@here.example","entry":"d@x.example"}`, ann, json1), 400, "another one than the path has")
	var seen []string
	for cursor := ""; ; {
		l := decoded[OwnerEntries](t, f.ask("GET", path+"?limit=2&q=x.EXAMPLE"+cursor, "", ann), 200, asJSON)
		for _, e := range l.Entries {
			seen = append(seen, e.Entry)
		}
		if l.Next == "" {
			break
		}
		cursor = "&cursor=" + l.Next
	}
	testkit.Equal(t, "pages", strings.Join(seen, " "), "c@x.example b@x.example a@x.example")
	wantProblem(t, f.ask("GET", path+"?limt=2", "", ann), 400, "limt: no such parameter")
	// What an answer had, sent back, undoes; and everybody's entries are not the owner's.
	w = f.ask("DELETE", path+"?entry=b@x.example", "", ann)
	was, _ := json.Marshal(decoded[ChangeResults](t, w, 200, asJSON).Results[0].Was)
	if got := decoded[ChangeResults](t, f.ask("POST", path, string(was), ann, json1), 200, asJSON).Results[0]; got.Result != "added" || got.Entry.Action != "allow" {
		t.Errorf("undone: %+v", got)
	}
	if l := decoded[EntryList](t, f.ask("GET", "/v1/entries", "", bearFirst), 200, asJSON); len(l.Entries) > 0 {
		t.Errorf("everybody's: %+v", l)
	}
	testkit.Equal(t, "by ?owner", len(decoded[OwnerEntries](t, f.ask("GET", "/v1/entries?owner=ANN%2Btag@here.example", "", bearFirst), 200, asJSON).Entries), 4)
	testkit.Equal(t, "removed by ?owner", decoded[ChangeResults](t, f.ask("DELETE", "/v1/entries?owner=ann@here.example&entry=b@x.example", "", bearFirst), 200, asJSON).Results[0].Result, "removed")
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, bear(Read, "ann@here.example"), json1), 403, "scope read")
}

// A query that names another one than the path changes nothing, and shows nothing.
func TestQueriesAgreeWithTheirPath(t *testing.T) {
	f, _ := ownersFixture(t)
	const path = "/v1/owners/ann@here.example/entries"
	f.ask("POST", path, `{"entry":"x@bulk.example"}`, bearFirst, json1)
	for _, q := range []string{"?owner=bob@here.example", "?owner=bob@here.example&entry=x@bulk.example", "?owner=ann@here.example&owner=bob@here.example&entry=x@bulk.example", "?owner=&entry=x@bulk.example", "?owner=here.example&entry=x@bulk.example"} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
			w := f.ask(method, path+q, `{"entry":"y@bulk.example"}`, bearFirst, json1)
			testkit.Equal(t, method+" "+q, w.Code, 400)
		}
	}
	testkit.Equal(t, "entries", decoded[OwnerEntries](t, f.ask("GET", path, "", bearFirst), 200, asJSON).Total, 1)
	testkit.Equal(t, "the same owner", f.ask("DELETE", path+"?owner=Ann@here.example&entry=x@bulk.example", "", bearFirst).Code, 200)
	for _, path := range []string{"/v1/lists/bad/pause", "/v1/lists/bad/resume", "/v1/lists/bad/rollback"} {
		if w := f.ask("POST", path+"?list=other", `{}`, bearFirst, json1); w.Code != 400 && w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A token that is bound to a domain names any mailbox of it; all of these together have a share of the entries.
func TestDomainsMailboxesAreBounded(t *testing.T) {
	f, bear := ownersFixture(t)
	tenant, path := bear(Write, "here.example"), func(mailbox string) string { return "/v1/owners/" + mailbox + "@here.example/entries" }
	f.ask("POST", path("one"), `{"entry":"x@bulk.example"}`, tenant, json1)
	testkit.Equal(t, "counted", f.ofDomains.of["here.example"].n, 1)
	f.ofDomains.of["here.example"].n = domainShare - 2
	two := `{"entries":[{"entry":"x@bulk.example"},{"entry":"y@bulk.example"}]}`
	testkit.Equal(t, "the last ones", f.ask("POST", path("two"), two, tenant, json1).Code, 200)
	wantProblem(t, f.ask("POST", path("three"), `{"entry":"x@bulk.example"}`, tenant, json1), 409, "here.example has 125000 of 125000; remove some first")
	testkit.Equal(t, "of the domain itself", f.ask("POST", "/v1/owners/here.example/entries", `{"entry":"x@bulk.example"}`, tenant, json1).Code, 200)
	testkit.Equal(t, "by another one", f.ask("POST", path("three"), `{"entry":"x@bulk.example"}`, bearFirst, json1).Code, 200)
	testkit.Equal(t, "of another domain", f.ask("POST", "/v1/owners/bob@there.example/entries", `{"entry":"x@bulk.example"}`, bear(Write, "there.example"), json1).Code, 200)
	f.ofDomains.of["here.example"].made = time.Now().Add(-2 * countAgain) // meanwhile others have removed some
	testkit.Equal(t, "counted again", f.ask("POST", path("four"), `{"entry":"x@bulk.example"}`, tenant, json1).Code, 200)
	testkit.Equal(t, "counted", f.ofDomains.of["here.example"].n, 5)
}

// A token that is bound sees its own owner and nothing else, by whatever spelling, and is not told what there is.
func TestBoundTokensAgreeWithModel(t *testing.T) {
	f, bear := ownersFixture(t)
	for _, o := range []string{"ann@here.example", "bob@here.example", "here.example", "ann@there.example", "eve@xn--bcher-kva.example", "a/b@here.example"} {
		f.ask("POST", "/v1/owners/"+url.PathEscape(o)+"/entries", `{"entry":"spam@x.example"}`, bearFirst, json1)
	}
	tokens := []struct {
		header string
		owns   func(o string) bool
	}{
		{bear(Write, "ann@here.example"), func(o string) bool { return o == "ann@here.example" }},
		{bear(Read, "@here.example"), func(o string) bool { return o == "here.example" || strings.HasSuffix(o, "@here.example") }},
		{bear(Write, "here.example", "bücher.example"), func(o string) bool {
			return o == "here.example" || strings.HasSuffix(o, "@here.example") || o == "xn--bcher-kva.example" || strings.HasSuffix(o, "@xn--bcher-kva.example")
		}},
		{bear(Read, "a/b@here.example"), func(o string) bool { return o == "a/b@here.example" }},
	}
	spellings := []string{"ann@here.example", "Ann@HERE.example", "ann+x@here.example", "%61nn@here.example", "ann%40here.example", "bob@here.example", "here.example", "@here.example", "HERE.example.",
		"a%2Fb@here.example", "a/b@here.example", "eve@b%C3%BCcher.example", "eve@xn--bcher-kva.example", "ann@there.example", "ann@sub.here.example", "..%2Fentries", "%2e%2e", "*", "", "ann@here.example%00", "ann@here.example%2F..",
		"%22ann%22@here.example", "nobody@here.example", "nobody@none.example", "ann@here.example/entries/..", "x@here.example@none.example"}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		token, text := tokens[rng.IntN(len(tokens))], spellings[rng.IntN(len(spellings))]
		w := f.ask("GET", "/v1/owners/"+text+"/entries", "", token.header)
		if w.Code == http.StatusOK {
			l := decoded[OwnerEntries](t, w, 200, asJSON)
			if !token.owns(l.Owner) {
				t.Fatalf("%q shows %s", text, l.Owner)
			}
			continue
		}
		plain, err := url.PathUnescape(text)
		if err == nil && !strings.Contains(text, "/") && text != "" {
			if k, err := f.readOwner(plain); err == nil && token.owns(k.Text) {
				t.Fatalf("%q is refused to its owner: %d", text, w.Code)
			}
			if w.Code != http.StatusNotFound && w.Code/100 != 3 || w.Code == http.StatusNotFound && !strings.Contains(w.Body.String(), noOwner) && !strings.Contains(w.Body.String(), "no such resource") {
				t.Fatalf("%q: %d %s", text, w.Code, w.Body)
			}
		}
	}
	known := f.ask("GET", "/v1/owners/bob@here.example/entries", "", tokens[0].header)
	unknown := f.ask("GET", "/v1/owners/nobody@none.example/entries", "", tokens[0].header)
	testkit.Got(known.Code, known.Body.String())(t, "an owner with entries", unknown.Code, unknown.Body.String())
	for _, target := range []string{"/v1/entries", "/v1/entries?owner=ann@here.example", "/v1/entries.csv", "/v1/lists", "/v1/serving", "/metrics", "/readyz", "/v1/check?sender=a@b.example", "/v1/check?sender=a@b.example&recipient=bob@here.example", "/"} {
		f.gives(t, http.StatusForbidden, "GET", target, "", tokens[0].header)
	}
	for _, target := range []string{"/v1/entries", "/v1/check", "/v1/owners/bob@here.example/entries"} {
		if w := f.ask("POST", target, `{"entry":"x@y.example"}`, tokens[0].header, json1); w.Code != http.StatusForbidden && w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d", target, w.Code)
		}
	}
	f.gives(t, http.StatusOK, "GET", "/v1/check?sender=spam@x.example&recipient=ann%2Bnews@here.example", "", tokens[0].header)
}

// A panel can add for many owners in one request.
func TestManyOwnersAtOnce(t *testing.T) {
	f, _ := ownersFixture(t)
	got := decoded[ChangeResults](t, f.ask("POST", "/v1/entries", `{"entries":[{"owner":"ann@here.example","entry":"x@y.example"},{"owner":"bob@here.example","entry":"x@y.example"},{"entry":"x@y.example"}]}`, bearFirst, json1), 200, asJSON)
	if len(got.Results) != 3 || got.Results[0].Result != "added" || got.Results[1].Result != "added" || got.Results[2].Entry.Owner != "" {
		t.Errorf("%+v", got)
	}
}

const asMail = "Content-Type: message/rfc822"

// junkFixture is ownersFixture with a desk: two users who agree make a proposal.
func junkFixture(t *testing.T) (f *fixture, bear func(scope Scope, owners ...string) string) {
	t.Helper()
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir(), MaxPerOwner: 3}))(t)
	t.Cleanup(func() { set.Close() })
	log := newHistory(t)
	log.Add(history.Record{Time: time.Now(), Outcome: "accept", Client: netip.MustParseAddr("192.0.2.7"), Sender: "promo@bulk.example", Recipient: "carl@here.example"})
	known := newCorrespondents(t)
	from, _ := addr.Parse("bob@here.example")
	to, _ := addr.Parse("friend@there.example")
	known.Learn(from, to, time.Now())
	box := junk.NewBox(junk.Settings{Path: filepath.Join(t.TempDir(), "box"), Agree: 2, Domains: 1, Keep: 24 * time.Hour})
	path := filepath.Join(t.TempDir(), "tokens")
	f = newFixture(t, Settings{Entries: set, Tokens: path, First: firstFile(t), Mailbox: mailbox, History: log,
		Junk: &junk.Desk{Guards: junk.Guards{Correspondents: known}, Entries: set, Box: box, Life: 24 * time.Hour}}, "bad.example\n")
	return f, bearers(t, path)
}

func mailFrom(sender string) string {
	return "Return-Path: <" + sender + ">\r\nFrom: My Bank <info@bank.example>\r\n\r\nhello\r\n"
}

func TestMoved(t *testing.T) {
	f, bear := junkFixture(t)
	ann := bear(Write, "ann@here.example")
	const path = "/v1/owners/ann+shop@here.example/junk"
	move := func(query, mail string) JunkAnswer {
		t.Helper()
		return decoded[JunkAnswer](t, f.ask("POST", path+query, mail, ann, asMail), 200, asJSON)
	}
	got := move("", mailFrom("Promo@Bulk.example")+strings.Repeat("x", 1<<20))
	if got.Result != "added" || got.Entry.Entry != "promo@bulk.example" || got.Entry.Owner != "ann@here.example" || got.Entry.Author != "t1" || got.Entry.Expires == nil {
		t.Errorf("moved: %+v %+v", got, got.Entry)
	}
	for _, step := range []struct{ query, sender, result, reason string }{
		{"", "friend@there.example", "ask", "users of this server write to friend@there.example"},
		{"?force=1", "friend@there.example", "added", ""},
		{"?undo=1", "friend@there.example", "removed", ""},
		{"?undo=1", "friend@there.example", "absent", ""},
		{"", "bob@here.example", "ask", "of your own domain"},
		{"", "", "refused", "is a bounce"},
	} {
		if got := move(step.query, mailFrom(step.sender)); got.Result != step.result || !strings.Contains(got.Reason, step.reason) {
			t.Errorf("%s %s: %+v", step.query, step.sender, got)
		}
	}
	// What she has said herself stays, and when she has as many as one may have, the oldest of Junk gives its place.
	f.ask("POST", "/v1/owners/ann@here.example/entries", `{"entries":[{"entry":"own@x.example","action":"allow"},{"entry":"other@x.example"}]}`, ann, json1)
	if got := move("", mailFrom("own@x.example")); got.Result != "kept" || !strings.Contains(got.Reason, "own@x.example stays") {
		t.Errorf("her own: %+v", got)
	}
	move("", mailFrom("new@bulk.example"))
	var have []string
	for _, e := range decoded[OwnerEntries](t, f.ask("GET", "/v1/owners/ann@here.example/entries", "", ann), 200, asJSON).Entries {
		have = append(have, e.Entry)
	}
	testkit.Equal(t, "entries", strings.Join(have, " "), "new@bulk.example other@x.example own@x.example")
	mail := mailFrom("x@y.example")
	wantProblem(t, f.ask("POST", "/v1/owners/bob@here.example/junk", mail, ann, asMail), 404, noOwner)
	wantProblem(t, f.ask("POST", path, mail, ann, json1), 415, "want Content-Type message/rfc822")
	wantProblem(t, f.ask("POST", path+"?for=never", mail, ann, asMail), 400, "for: ")
	wantProblem(t, f.ask("POST", path+"?unod=1", mail, ann, asMail), 400, "unod: no such parameter")
	wantProblem(t, f.ask("POST", "/v1/owners/here.example/junk", mail, bear(Write), asMail), 400, "want the mailbox of the user")
	wantProblem(t, f.ask("POST", path, mail, bear(Read, "ann@here.example"), asMail), 403, "scope read")
	wantProblem(t, f.ask("GET", "/v1/proposals", "", ann), 403, "bound to an owner")
	wantProblem(t, f.ask("POST", "/v1/complaints", mail, ann, asMail), 403, "bound to an owner")
}

func TestProposals(t *testing.T) {
	f, bear := junkFixture(t)
	desk := bear(Write)
	list := func(state string) []Proposal {
		t.Helper()
		return decoded[ProposalList](t, f.ask("GET", "/v1/proposals?state="+state, "", desk), 200, asJSON).Proposals
	}
	say := func(user, sender, query string) {
		t.Helper()
		f.gives(t, 200, "POST", "/v1/owners/"+user+"/junk"+query, mailFrom(sender), desk, asMail)
	}
	complain := func(user string) ComplaintAnswer {
		t.Helper()
		return decoded[ComplaintAnswer](t, f.ask("POST", "/v1/complaints", "Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\n"+
			"Feedback-Type: abuse\r\nOriginal-Mail-From: <promo@bulk.example>\r\nOriginal-Rcpt-To: <"+user+">\r\nSource-IP: 192.0.2.7\r\n\r\n--b--\r\n", desk, asMail), 200, asJSON)
	}
	say("ann@here.example", "promo@bulk.example", "")
	say("ann+shop@here.example", "promo@bulk.example", "")
	if got := complain("bob@here.example"); got.Result != "forged" || len(got.Users) != 0 {
		t.Errorf("forged: %+v", got)
	}
	testkit.Equal(t, "one user, twice", len(list("")), 0)
	if got := complain("carl@here.example"); got.Result != "taken" || got.Users[0] != "carl@here.example" || got.Sender != "promo@bulk.example" {
		t.Errorf("taken: %+v", got)
	}
	if got := list("open"); len(got) != 1 || got[0].Entry != "promo@bulk.example" || got[0].Users != 2 || got[0].Domains != 1 || got[0].Complaints != 1 || got[0].Correspondent {
		t.Fatalf("proposed: %+v", got)
	}
	testkit.Equal(t, "entries by a proposal alone", len(decoded[EntryList](t, f.ask("GET", "/v1/entries", "", desk), 200, asJSON).Entries), 0)
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?entry=other@bulk.example", "", desk), 404, "nobody is proposed")
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?entry=nonsense", "", desk), 400, "want the address of a proposal")
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?for=x&entry=promo@bulk.example", "", desk), 400, "for: ")
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?entry=promo@bulk.example", "", bear(Read)), 403, "scope read")
	done := decoded[ProposalAdoption](t, f.ask("POST", "/v1/proposals/adopt?entry=Promo@bulk.example&author=jo", "", desk), 200, asJSON)
	if done.State != junk.Adopted || done.By != "jo (t1)" || done.Until == nil || done.Change.Entry.Why != "users agree: 2 users of 1 domain, 1 by complaint" {
		t.Errorf("adopted: %+v %+v", done, done.Change.Entry)
	}
	testkit.Has(t, f.ask("GET", "/v1/entries", "", desk).Body.String(), `"entry":"promo@bulk.example"`)
	wantProblem(t, f.ask("POST", "/v1/proposals/decline?entry=promo@bulk.example", "", desk), 409, "decided already: adopted")

	// What complaints alone say may be said by the sender of the messages, under another's name: a person has to mean it.
	for _, user := range []string{"ann@here.example", "bob@here.example"} {
		testkit.Must(t, f.settings.Junk.Box.Say("victim@there.example", user, junk.Complaint, time.Now()))
	}
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?entry=victim@there.example", "", desk), 409, "nobody has moved mail of victim@there.example to Junk")
	f.gives(t, 200, "POST", "/v1/proposals/decline?entry=victim@there.example", "", desk)

	// A correspondent of the users is blocked only with force.
	for _, user := range []string{"ann@here.example", "bob@here.example"} {
		say(user, "friend@there.example", "?force=1")
	}
	if got := list("open"); len(got) != 1 || !got[0].Correspondent {
		t.Errorf("a correspondent: %+v", got)
	}
	wantProblem(t, f.ask("POST", "/v1/proposals/adopt?entry=friend@there.example", "", desk), 409, "users of this server write to friend@there.example")
	testkit.Equal(t, "declined", decoded[Proposal](t, f.ask("POST", "/v1/proposals/decline?entry=friend@there.example", "", desk), 200, asJSON).State, junk.Declined)
	testkit.Got(len(list("open")), len(list("adopted")), len(list("declined")))(t, "in the end", 0, 1, 2)
	wantProblem(t, f.ask("GET", "/v1/proposals?state=odd", "", desk), 400, "state: want open, adopted or declined")
	f.says(t, http.StatusOK, `blockd_junk_complaints_total{result="forged"} 1`, "GET", "/metrics", "", desk)
}

// A complaint counts once for a user, whatever tags the user has and however often it is handed in; what a person has declined stays so; and a
// complaint takes back none but complaints, for the sender of the message can write it.
func TestComplaintsCountOnce(t *testing.T) {
	now := time.Now()
	box := junk.NewBox(junk.Settings{Path: filepath.Join(t.TempDir(), "junk"), Agree: 1, Domains: 1, Keep: 30 * 24 * time.Hour})
	search := func(context.Context, history.Query) (found history.Found, err error) {
		for _, to := range []string{"anna+1@here.example", "anna+2@here.example", "bob@here.example"} {
			found.Records = append(found.Records, history.Record{Time: now.Add(-time.Hour), Outcome: "accept", Client: netip.MustParseAddr("192.0.2.1"), Sender: "promo@bulk.example", Recipient: to})
		}
		return found, nil
	}
	lines := 0
	take := func(kind string, users ...string) ComplaintAnswer {
		t.Helper()
		rcpt := ""
		for _, u := range users {
			rcpt += "Original-Rcpt-To: " + u + "\n"
		}
		text := fmt.Sprintf("Content-Type: multipart/report; report-type=feedback-report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: %s\nUser-Agent: x/1\nVersion: 1\nOriginal-Mail-From: promo@bulk.example\nSource-IP: 192.0.2.1\n%s\n--b--\n", kind, rcpt)
		a := testkit.Value(takeComplaint(t.Context(), box, strings.NewReader(text), mailbox, search, now.Add(-24*time.Hour), "op", func(audit.Line) error { lines++; return nil }))(t)
		return a
	}
	users := func() (n int) {
		t.Helper()
		all, _, err := box.All(junk.Open, now)
		testkit.Must(t, err)
		for _, p := range all {
			n += p.Users
		}
		return n
	}
	for range 2 {
		if a := take("abuse", "anna+1@here.example", "anna+2@here.example"); len(a.Users) != 1 || a.Users[0] != "anna@here.example" {
			t.Errorf("%+v", a)
		}
	}
	if n := users(); n != 1 || lines != 1 {
		t.Errorf("%d users, %d lines of the journal; want one of each", n, lines)
	}
	testkit.Must(t, box.Say("promo@bulk.example", "bob@here.example", junk.Moved, now.Add(-time.Minute)))
	take("not-spam", "anna+1@here.example", "bob@here.example")
	if said, _, _ := box.Said("promo@bulk.example", "anna@here.example"); !said.IsZero() {
		t.Error("a complaint that was taken back counts")
	}
	testkit.Got(box.Said("promo@bulk.example", "bob@here.example"))(t, "what a user has moved to Junk, behind a complaint", "…", junk.Moved, "…")
	testkit.Value(box.Decide("promo@bulk.example", junk.Declined, "op", time.Time{}, now))(t)
	take("abuse", "anna+1@here.example")
	testkit.Equal(t, "proposals by an old complaint", users(), 0)
}

// A program tells to whom users have written; who may know that sees it in explanations, until the person is forgotten. The
// journal does not name it.
func TestLearnExplainForget(t *testing.T) {
	f, dir := newEntryFixture(t), t.TempDir()
	set := newCorrespondents(t)
	past := newHistory(t)
	past.Add(history.Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Sender: "bob@there.example", Recipient: "anna@here.example"})
	f.settings.Audit = newAudit(t)
	f.settings.Person = &forget.Places{Correspondents: set, Index: filepath.Join(dir, "index"), History: past.Forget}
	sessions, secret := sessionsOfBob(t, dir)
	f.settings.Person.Sessions = func(names func(string) bool) (int, error) { return sessions.Forget(time.Now(), names) }
	ix := f.fixture.live
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{Correspondents: policy.Correspondents{Known: set}}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	f.Server = New(f.settings, checker, func() reload.Status { return f.status }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))

	learn := `{"sent":[{"sender":"anna@here.example","recipient":"bob@there.example","time":"` + time.Now().UTC().Format(time.RFC3339) + `"},{"sender":"anna@here.example","recipient":"carl@here.example","time":"2026-01-01T00:00:00Z"}]}`
	for _, path := range []string{"/v1/correspondents", "/v1/forget"} {
		f.gives(t, http.StatusBadRequest, "POST", path, `{"typo":1}`, f.write)
	}
	if w := f.ask("POST", "/v1/correspondents", learn, f.write); w.Code != 200 || w.Body.String() != `{"recipients":1,"known":1}`+"\n" {
		t.Errorf("learn: %d, %s", w.Code, w.Body)
	}
	explained := func(headers ...string) string {
		w := f.ask("GET", "/v1/check?explain=1&sender=bob@there.example", "", headers...)
		var a struct {
			Explain struct {
				Correspondent string `json:"correspondent"`
			} `json:"explain"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%d, %s", w.Code, w.Body)
		}
		return a.Explain.Correspondent
	}
	testkit.Equal(t, "explained to a reader", explained(f.read), time.Now().UTC().Format(time.DateOnly))
	testkit.Lacks(t, f.ask("GET", "/v1/check?explain=1&sender=bob@there.example", "").Body.String(), "correspondent")
	if w := f.ask("POST", "/v1/forget", `{"address":"Bob@there.example"}`, f.write); w.Code != 200 || w.Body.String() != `{"correspondent":true,"recent":false,"held":0,"decisions":1,"requests":0,"proposals":0,"hits":0,"report":0,"sessions":1,"own":0,"entries":0,"quarantined":0,"remains":[]}`+"\n" {
		t.Errorf("forget: %d, %s", w.Code, w.Body)
	}
	testkit.Got(sessions.Find(time.Now(), secret))(t, "the session of a forgotten person", "…", false, "…")
	if text, err := os.ReadFile(filepath.Join(dir, "sessions")); err != nil || strings.Contains(string(text), "there.example") || !strings.Contains(string(text), "carl") {
		t.Errorf("the file of sessions: %v, %s", err, text)
	}
	testkit.Equal(t, "a forgotten person is explained", explained(f.read), "")
	w := f.ask("GET", "/v1/audit", "", f.read)
	if text := w.Body.String(); !strings.Contains(text, "person.forget") || !strings.Contains(text, "correspondents.learn") || strings.Contains(strings.ToLower(text), "bob") {
		t.Errorf("the journal: %s", text)
	}
}

// sessionsOfBob are two: one of bob, of which it returns the secret, and one of another.
func sessionsOfBob(t *testing.T, dir string) (set *session.Set, secret string) {
	t.Helper()
	set, err := session.Open(session.Settings{Path: filepath.Join(dir, "sessions"), Idle: time.Hour, Max: time.Hour})
	testkit.Must(t, err)
	for _, p := range []session.Person{{Subject: "7", Name: "carl", Scope: "read"}, {Subject: "8", Name: "Bob", Scope: "write", Owners: []string{"bob@there.example"}}} {
		if secret, _, err = set.Begin(time.Now(), session.Session{Person: &p}); err != nil {
			t.Fatal(err)
		}
	}
	return set, secret
}
