package httpapi

import (
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy/junk"
	"blockd/records/history"
)

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
	f = newFixture(t, Settings{Entries: set, Tokens: path, First: first, Mailbox: mailbox, History: log,
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
