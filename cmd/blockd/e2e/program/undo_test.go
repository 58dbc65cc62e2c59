package program

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// A bad update of a list under review waits, and refuses nobody until it is adopted; a rollback takes it back, and both outlast a
// restart, a kill, and another process that takes over.
func TestUndo(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\nadopt = \"review\"\n[[list]]\nname = \"other\"\npath = \"other.txt\"\n",
		Files: map[string]string{"bulk.txt": "old.example\n", "other.txt": "other.example\n"}})
	want := func(when, sender, code string) {
		t.Helper()
		testkit.Begins(t, fmt.Sprintf("%s, %s", when, sender), e2e.DialSMTP(t, d.SMTP).Send(sender, "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n")), code)
	}
	ready := func(when, remark string) {
		t.Helper()
		testkit.Eventually(t, when+": /readyz to say "+remark, func() bool {
			status, text := d.Get("/readyz")
			return status == 200 && strings.HasPrefix(text, "ok\n") && strings.Contains(text, remark)
		})
	}
	says := func(want string, args ...string) {
		t.Helper()
		testkit.Has(t, d.Must(t, args...), want)
	}
	ready("a new list", "list bulk has nothing yet: its first load (1 entry) waits: blockd adopt bulk")
	want("before the first adoption", "a@old.example", "250 ")
	want("before the first adoption", "a@other.example", "550 ")
	row := func(when, begins, note string, args ...string) {
		t.Helper()
		_, out, notes := d.Command(t, append([]string{"lists"}, args...)...)
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Join(strings.Fields(line)[:min(3, len(strings.Fields(line)))], " ") == begins
		}) || !strings.Contains(out, note) {
			t.Errorf("%s: lists says\n%s%s, want a row %q and %q", when, out, notes, begins, note)
		}
	}
	notes := func(when, note string, args ...string) {
		t.Helper()
		if _, _, got := d.Command(t, append([]string{"check"}, args...)...); !strings.Contains(got, note) || strings.Contains(got, "has changed since") || strings.Contains(got, "configured otherwise") {
			t.Errorf("%s: check notes %q, want %q", when, got, note)
		}
	}
	row("a new list", "bulk - 0", "list bulk has nothing yet: its first load (1 entry) waits: blockd adopt bulk")
	notes("a new list", "list bulk has nothing yet", "a@old.example")
	notes("a new list, by the file", "list bulk has nothing yet", "--file", "a@old.example")
	says("adopted: bulk\n", "adopt", "bulk")
	want("adopted", "a@old.example", "550 ")

	want("before the bad update", "a@bank.example", "250 ")
	testkit.Write(t, d.Path("bulk.txt"), "old.example\nbank.example\n")
	ready("a bad update", "list bulk serves what it had at ")
	waits := func(when string) {
		t.Helper()
		want(when, "a@bank.example", "250 ")
		want(when, "a@old.example", "550 ")
		says("+ bank.example\n", "diff", "bulk")
	}
	waits("a bad update")
	testkit.Eventually(t, "the history to have the mail of the bank", func() bool {
		return strings.Contains(d.Must(t, "diff", "bulk", "--mail"), "+ a@bank.example")
	})
	var proposal struct {
		Content string `json:"content"`
		Waits   bool   `json:"waits"`
		Weighed struct {
			Mail struct{ Decisions, Refused, Passed int }
		} `json:"weighed"`
	}
	if err := json.Unmarshal([]byte(d.Must(t, "diff", "bulk", "--json")), &proposal); err != nil || !proposal.Waits || proposal.Weighed.Mail.Refused != 1 || proposal.Weighed.Mail.Passed != 0 {
		t.Fatalf("%+v, %v", proposal, err)
	}
	row("a bad update", "bulk block 1", "list bulk, against what waits: of ")
	notes("a bad update", "list bulk serves what it had at ", "a@old.example")
	d.Stop(t)
	row("without a daemon", "bulk block 1", "list bulk serves what it had at ")
	notes("without a daemon", "list bulk serves what it had at ", "a@old.example")
	says("  ", "compile") // of what the list is held to
	notes("compiled", "list bulk serves what it had at ", "a@old.example")
	d.Start(t)
	waits("after a restart")
	testkit.Has(t, d.Ends(t, 1, "adopt", "bulk", "--if", "0123456789abcdef"), "what waits is another content by now")
	says("adopted: bulk\n", "adopt", "bulk", "--if", proposal.Content)
	want("adopted", "a@bank.example", "550 ")

	says("rolled back: bulk serves what it had at ", "rollback", "bulk", "--why", "refuses our bank")
	back := func(when string) {
		t.Helper()
		ready(when, "(rollback)")
		want(when, "a@bank.example", "250 ")
		want(when, "a@old.example", "550 ")
	}
	back("rolled back")
	row("rolled back", "bulk block 1", "(rollback)")
	notes("rolled back", "(rollback)", "a@bank.example")
	d.Kill(t)
	d.Start(t)
	back("after a kill")
	d.Upgraded(t)
	back("after another process has taken over")
	says(": refuses our bank\n", "generations")
	ready("the proposal is seen again", "; a change waits (+1 -0 entries): blockd adopt bulk")
	says("adopted: bulk\n", "adopt", "bulk")
	want("adopted again", "a@bank.example", "550 ")
	// It says what the lists serve, a moment after the swap that a mail has met.
	testkit.Eventually(t, "/readyz to be ok after all", func() bool { _, text := d.Get("/readyz"); return text == "ok\n" })
	journal := d.Must(t, "audit")
	for action, n := range map[string]int{"list.adopt": 3, "list.rollback": 1} {
		testkit.Equal(t, "lines "+action+" in the journal", strings.Count(journal, action), n)
	}
}
