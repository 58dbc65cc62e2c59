package program

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	blockd "blockd/doors/httpapi/client"
	"blockd/internal/testkit"
)

// TestGoClient has the package client ask a real daemon, by TCP and by the Unix socket.
func TestGoClient(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n!good@bad.example\n192.0.2.0/24\n"}})
	byName := blockd.New("http://"+d.HTTP, blockd.Token(strings.TrimSpace(string(testkit.Read(t, d.Path("blockd.bdx.token"))))))
	bySocket := blockd.New("unix:" + filepath.Join(d.Dir, "blockd.bdx.sock"))
	for name, c := range map[string]*blockd.Client{"TCP": byName, "socket": bySocket} {
		for _, q := range []struct {
			blockd.Question
			want blockd.Verdict
		}{
			{blockd.Question{Sender: "x@bad.example"}, blockd.Blocked}, {blockd.Question{Sender: "good@bad.example"}, blockd.Allowed},
			{blockd.Question{Sender: "a+b@ok.example"}, blockd.Clear}, {blockd.Question{}, blockd.Clear}, {blockd.Question{Sender: "a b"}, blockd.Unknown},
			{blockd.Question{IP: "192.0.2.9"}, blockd.Blocked}, {blockd.Question{Domain: "bad.example"}, blockd.Blocked},
			{blockd.Question{Sender: "x@bad.example", Recipient: "postmaster@here.example", Client: "198.51.100.1"}, blockd.Blocked},
		} {
			one, err := c.Check(t.Context(), q.Question)
			if err != nil || one.Verdict != q.want || q.Recipient != "" && one.Outcome != "accept" {
				t.Errorf("%s: %+v: %+v, %v, want %s", name, q.Question, one, err, q.want)
			}
			many, err := c.CheckMany(t.Context(), []blockd.Question{q.Question})
			if err != nil || len(many) != 1 || many[0].Verdict != one.Verdict || many[0].Input != one.Input || !slices.Equal(many[0].Matches, one.Matches) {
				t.Errorf("%s: %+v: a batch says %+v, %v", name, q.Question, many, err)
			}
		}
	}
	questions := make([]blockd.Question, 2500)
	for i := range questions {
		questions[i].Sender = fmt.Sprintf("user%d@%s.example", i, []string{"ok", "bad"}[i%2])
	}
	answers, err := byName.CheckMany(t.Context(), questions)
	if err != nil || len(answers) != 2500 || answers[2499].Verdict != blockd.Blocked || answers[2498].Verdict != blockd.Clear || answers[2499].Input != questions[2499].Sender {
		t.Errorf("2,500 questions: %d answers, %v", len(answers), err)
	}

	// Entries: 1,200 in pages, each change acts at once.
	var entries []blockd.Entry
	for i := range 1200 {
		entries = append(entries, blockd.Entry{Entry: fmt.Sprintf("live%d.example", i), Why: "a test"})
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	entries[1199] = blockd.Entry{Entry: "x@bad.example", Action: "allow", Why: "asked us to", Expires: &until}
	done, err := byName.Add(t.Context(), entries...)
	if err != nil || len(done) != 1200 || done[0].Result != "added" {
		t.Fatalf("%d changes, %v", len(done), err)
	}
	if a, err := byName.Check(t.Context(), blockd.Question{Sender: "x@bad.example"}); err != nil || a.Verdict != blockd.Allowed {
		t.Errorf("after an exception was added: %+v, %v", a, err)
	}
	for range 2 { // an iteration may be repeated
		n, newest := 0, blockd.Entry{}
		for e, err := range byName.Entries(t.Context(), blockd.EntryQuery{}) {
			testkit.Must(t, err)
			if n++; n == 1 {
				newest = e
			}
		}
		if n != 1200 || newest.Entry != "x@bad.example" || newest.Action != "allow" || newest.Expires == nil || !newest.Expires.Equal(until) {
			t.Errorf("%d entries, the newest %+v", n, newest)
		}
	}
	if removed, err := byName.Remove(t.Context(), "x@bad.example", ""); err != nil || len(removed) != 1 || removed[0].Was == nil || removed[0].Was.Why != "asked us to" {
		t.Errorf("removed %+v, %v", removed, err)
	}

	// What mail was refused.
	c := e2e.DialSMTP(t, d.SMTP)
	c.Command("MAIL FROM:<x@bad.example>")
	e2e.MustBegin(t, "a listed sender", c.Command("RCPT TO:<you@here.example>"), "550")
	found := 0
	for r, err := range byName.Decisions(t.Context(), blockd.DecisionQuery{Sender: "x@bad.example", Since: time.Now().Add(-time.Hour)}) {
		if err != nil || r.Outcome != "refuse" || r.List != "a" || r.Recipient != "you@here.example" || r.Line != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d decisions about one refusal", found)
	}
	if lists, generation, err := byName.Lists(t.Context()); err != nil || generation == "" || len(lists) == 0 || lists[0].List != "a" || lists[0].Entries != 3 {
		t.Errorf("%+v, %q, %v", lists, generation, err)
	}
	for _, err := range blockd.New("http://"+d.HTTP, blockd.Token("wrong")).Entries(t.Context(), blockd.EntryQuery{}) {
		if blockd.StatusOf(err) != http.StatusUnauthorized {
			t.Errorf("a wrong token: %v", err)
		}
	}
}
