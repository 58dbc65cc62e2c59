package postfix

import (
	"strings"
	"testing"
)

// What Postfix puts in front of our words leaves the contact whole: it cuts a reply at 510
// octets, wherever that is.
func TestWordsFitBehindPostfixs(t *testing.T) {
	const contact = "https://lists.here.example/r/of/a/long/path"
	r := newRig(t, testList{name: "bad", text: "bulk.example REJECT " + strings.Repeat("words ", 60) + "\ngone.example DISCARD\n"})
	r.verdicts.Contact = contact
	long := strings.Repeat("r", 64) + "@" + strings.Repeat("here.", 30) + "example"
	for _, recipient := range []string{"bob@here.example", long} {
		got := strings.TrimSpace(strings.TrimPrefix(ask(t, r.speak(Policy), request("sender=a@bulk.example", "recipient="+recipient)), "action="))
		words, ok := strings.CutPrefix(got, "REJECT ")
		if line := "554 " + strings.Replace(words, "5.7.1 ", "5.7.1 <"+recipient+">: Recipient address rejected: ", 1); !ok || len(line) > 510 || !strings.HasSuffix(line, " "+contact) {
			t.Errorf("%d octets: %s", len(line), got)
		}
	}
}
