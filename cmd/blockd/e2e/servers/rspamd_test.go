package servers

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// What rspamd itself does by a file of user settings, blockd does by its import: a message that is rejected for a recipient is refused for
// that recipient, one that is let pass unread is allowed.
func TestImportAnswersAsRspamd(t *testing.T) {
	testkit.Peer(t, "rspamadm")
	const settings = `settings {
  bob { priority = 5; rcpt = "bob@here.example"; from = ["@spam.example", "promo@bulk.example"]; apply { actions { reject = 0.0; } } }
  friends { priority = 4; rcpt = "@here.example"; from = "friend@partner.example"; whitelist = yes; }
  news { priority = 3; rcpt = ["anna@here.example", "carl@here.example"]; from = "@news.example"; apply { actions { reject = 0.0; } } }
  scores { priority = 2; rcpt = "anna@here.example"; from = "@maybe.example"; apply { actions { "add header" = 4.0; } } }
}
`
	scanner := e2e.RunRspamd(t, "", `modules { path = "$PLUGINSDIR/settings.lua"; }
`+settings)
	action := func(from, rcpt string) string {
		req := testkit.Value(http.NewRequest("POST", "http://"+scanner+"/checkv2", strings.NewReader("From: <"+from+">\r\nSubject: x\r\n\r\nx\r\n")))(t)
		req.Header.Set("From", from)
		req.Header.Set("Rcpt", rcpt)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		var answer struct {
			Action  string
			Skipped bool `json:"is_skipped"`
		}
		text, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch {
		case answer.Skipped:
			return "allowed"
		case answer.Action == "reject":
			return "blocked"
		}
		return "clear"
	}
	testkit.Eventually(t, "rspamd to answer with its settings", func() bool { return action("promo@bulk.example", "bob@here.example") == "blocked" })

	dir := t.TempDir()
	imported := filepath.Join(dir, "imported")
	d := &e2e.Daemon{Dir: imported}
	file := testkit.Write(t, filepath.Join(dir, "settings.conf"), settings)
	cmd := exec.Command(e2e.Program, "import", "--rspamd-settings", file, "-o", imported)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() > 1 { // 1: not all is carried over
		t.Fatalf("import: %v\n%s", err, out)
	}
	d.Must(t, "compile")
	blocked, allowed := 0, 0
	for _, from := range []string{"promo@bulk.example", "other@bulk.example", "x@spam.example", "x@mail.spam.example", "friend@partner.example", "clerk@partner.example", "x@news.example", "x@maybe.example"} {
		for _, rcpt := range []string{"anna@here.example", "bob@here.example", "carl@here.example", "dora@there.example"} {
			want := action(from, rcpt)
			switch want {
			case "blocked":
				blocked++
			case "allowed":
				allowed++
			}
			if _, got, errs := d.Command(t, "check", "--recipient", rcpt, from); !strings.HasPrefix(got, from+"\t"+want+"\t") {
				t.Errorf("%s to %s: %q, rspamd says %s: %s", from, rcpt, got, want, errs)
			}
		}
	}
	if blocked != 4 || allowed != 3 {
		t.Errorf("rspamd rejects %d and lets pass %d, want 4 and 3", blocked, allowed)
	}
}
