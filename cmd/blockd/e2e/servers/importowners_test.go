package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// What SpamAssassin itself says by a user's user_prefs, blockd says by the import of that file: a sender that gets USER_IN_BLOCKLIST is refused for this user,
// one with USER_IN_WELCOMELIST is let in, others are neither. Where the report says that a line is not carried over, or narrower, blockd does less.
func TestImportAnswersAsSpamAssassin(t *testing.T) {
	spamassassin := testkit.Peer(t, "spamassassin")
	dir := t.TempDir()
	const prefs = `
required_score 5.0
blocklist_from promo@bulk.example
blocklist_from *@shop.example @short.example
blacklist_from *@*.below.example offers@*
blocklist_from *casino*@x.example
welcomelist_from friend@shop.example
whitelist_from boss@elsewhere.example
`
	home := filepath.Join(dir, "home")
	file := testkit.Write(t, filepath.Join(home, "anna", ".spamassassin", "user_prefs"), prefs)
	site := filepath.Dir(testkit.Write(t, filepath.Join(dir, "site", "local.cf"), `
loadplugin Mail::SpamAssassin::Plugin::Check
loadplugin Mail::SpamAssassin::Plugin::WLBLEval
header USER_IN_BLOCKLIST eval:check_from_in_blocklist()
header USER_IN_WELCOMELIST eval:check_from_in_welcomelist()
clear_headers
fold_headers 0
report_safe 0
add_header all Seen _TESTS(,)_
`))
	senders := map[string]string{
		"promo@bulk.example": "blocked", "other@bulk.example": "clear", "a@shop.example": "blocked", "a@mail.shop.example": "clear", "friend@shop.example": "allowed",
		"b@mail.below.example": "blocked", "b@below.example": "clear", "x@short.example": "clear", "boss@elsewhere.example": "allowed", "clerk@elsewhere.example": "clear",
		"mycasino1@x.example": "less", "offers@there.example": "less", // blocked there: the report says that the patterns are not carried over
	}
	var box strings.Builder
	for s := range senders {
		fmt.Fprintf(&box, "From %[1]s Tue Nov 24 12:00:00 2026\nReturn-Path: <%[1]s>\nFrom: <%[1]s>\nTo: <anna@here.example>\nMessage-ID: <1@there.example>\nDate: Tue, 24 Nov 2026 12:00:00 +0000\nSubject: hello\n\nhello\n\n", s)
	}
	cmd := exec.Command(spamassassin, "-L", "--mbox", "-p", file, "--configpath", site, "--siteconfigpath", site)
	cmd.Stdin, cmd.Env = strings.NewReader(box.String()), append(os.Environ(), "HOME="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("spamassassin: %v\n%s", err, out)
	}
	there := map[string]string{}
	for _, m := range regexp.MustCompile(`(?ms)^X-Spam-Seen: (\S*)$.*?^From: <(.*?)>$`).FindAllStringSubmatch(string(out), -1) {
		there[m[2]] = "clear"
		if strings.Contains(m[1], "WELCOMELIST") {
			there[m[2]] = "allowed"
		} else if strings.Contains(m[1], "BLOCKLIST") {
			there[m[2]] = "blocked"
		}
	}

	imported := filepath.Join(dir, "imported")
	d := &e2e.Daemon{Dir: imported}
	if out, err := exec.Command(e2e.Program, "import", "--user-prefs", home, "--domain", "here.example", "-o", imported).CombinedOutput(); err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 1 { // 1: not all is carried over
			t.Fatalf("import: %v\n%s", err, out)
		}
	}
	d.Must(t, "compile")
	for sender, want := range senders {
		less := want == "less"
		if less {
			want = "blocked"
		}
		if there[sender] != want {
			t.Errorf("%s: SpamAssassin says %q, want %q", sender, there[sender], want)
		}
		if less {
			want = "clear"
		}
		if _, got, errs := d.Command(t, "check", "--recipient", "anna@here.example", sender); !strings.HasPrefix(got, sender+"\t"+want+"\t") {
			t.Errorf("%s: %q, want %s: %s", sender, got, want, errs)
		}
		if _, got, _ := d.Command(t, "check", "--recipient", "bob@here.example", sender); !strings.HasPrefix(got, sender+"\tclear\t") {
			t.Errorf("%s to Bob: %q", sender, got)
		}
	}
}
