package httpapi

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/policy/junk"
	"blockd/records/audit"
	"blockd/records/history"
)

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
		a := testkit.Value(TakeComplaint(t.Context(), box, strings.NewReader(text), mailbox, search, now.Add(-24*time.Hour), "op", func(audit.Line) error { lines++; return nil }))(t)
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
