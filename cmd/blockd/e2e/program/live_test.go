package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestEntriesActAtOnce adds and removes entries while a daemon of 50,000 names runs,
// and holds that each door acts on them from the answer on. From the request to the
// third door's answer a tenth of a second may pass (of the program as users build it).
func TestEntriesActAtOnce(t *testing.T) {
	var names strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&names, "listed%d.example\n", i)
	}
	policy := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{SMTP: e2e.ManyErrors, Postfix: fmt.Sprintf("policy_listen = %q", policy), Files: map[string]string{"own.txt": names.String()},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	doors, client := d.Doors(t, policy), d.SocketClient()
	defer client.CloseIdleConnections()
	const limit = 100 * time.Millisecond
	var slowest time.Duration
	change := func(method, target, body, sender string, want bool) {
		t.Helper()
		req := testkit.Value(http.NewRequest(method, "http://blockd"+target, strings.NewReader(body)))(t)
		req.Header.Set("Content-Type", "application/json")
		began := time.Now()
		resp := testkit.Value(client.Do(req))(t)
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, target, resp.StatusCode, text)
		}
		// Whoever asks after the answer has its effect: there is nothing to wait for.
		if smtp, policy, check := doors.Refused(sender); smtp != want || policy != want || check != want {
			t.Fatalf("%s after %s: refused by SMTP %t, policy %t, HTTP %t; want %t", sender, method, smtp, policy, check, want)
		}
		if took := time.Since(began); took > slowest {
			slowest = took
		}
	}
	for i := range 20 {
		entry, sender := fmt.Sprintf("spam%d@bulk.example", i), fmt.Sprintf("spam%d@bulk.example", i)
		if i%2 == 1 {
			entry, sender = fmt.Sprintf("bulk%d.example", i), fmt.Sprintf("x@mx.bulk%d.example", i)
		}
		change("POST", "/v1/entries", fmt.Sprintf(`{"entry":%q,"why":"a test","for":"1h"}`, entry), sender, true)
		change("DELETE", "/v1/entries?entry="+entry, "", sender, false)
	}
	change("POST", "/v1/entries", `{"entry":"listed7.example","action":"allow"}`, "x@listed7.example", false)
	change("DELETE", "/v1/entries?entry=listed7.example", "", "x@listed7.example", true)
	t.Logf("from the request to the answers of SMTP, policy and HTTP: %v at most, of 42 changes", slowest)
	if slowest > limit && *e2e.Figures {
		t.Errorf("%v, want %v", slowest, limit)
	}
}

// TestAddRemoveList is what an administrator does by hand.
func TestAddRemoveList(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	e2e.MustBegin(t, "before it is added", e2e.Ask(t, d.SMTP, "spam@x.example"), "250")
	out := d.Must(t, "add", "Spam@X.example", "--why", "phishing, ticket 4711", "--for", "30d", "--author", "jo")
	if !strings.HasPrefix(out, "added: block spam@x.example until ") || !strings.Contains(out, "(phishing, ticket 4711)") {
		t.Errorf("add printed %q", out)
	}
	got := e2e.Ask(t, d.SMTP, "spam@x.example")
	if !strings.HasPrefix(got, "550 5.7.1 <spam@x.example>: Sender address rejected: listed in live (ref ") {
		t.Errorf("refused with %q", got)
	}
	d.Logged(t, 1, "list=live", `reason="phishing, ticket 4711 (added `, " by jo, until ")
	testkit.Has(t, d.Ends(t, 1, "add", "gmail.com"), "protected domain gmail.com", "--force")
	d.Must(t, "add", "192.0.2.0/24", "partner.example", "--action", "allow")
	out = d.Must(t, "list")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if len(rows) != 4 || !strings.HasPrefix(rows[0], "entry            action  scope  left  added") || !strings.HasPrefix(rows[3], "spam@x.example   block   exact   29d  ") {
		t.Errorf("list:\n%s", out)
	}
	var list struct{ Entries []map[string]any }
	if err := json.Unmarshal([]byte(d.Must(t, "list", "--json")), &list); err != nil || len(list.Entries) != 3 {
		t.Errorf("list --json: %v, %v", err, list)
	}
	testkit.Has(t, d.Ends(t, 0, "check", "spam@x.example"), "\tblocked\tlive:1\tspam@x.example\tphishing")

	// The command that undoes a removal does.
	out = d.Must(t, "remove", "spam@x.example")
	_, undo, _ := strings.Cut(out, "undo: blockd ")
	testkit.Begins(t, "after the removal", e2e.Ask(t, d.SMTP, "spam@x.example"), "250")
	sh := exec.Command("sh", "-c", fmt.Sprintf("set -e; blockd() { c=$1; shift; %s $c -c %s \"$@\"; }; blockd %s", e2e.Program, d.Path("config.toml"), undo))
	if text, err := sh.CombinedOutput(); err != nil || !strings.Contains(string(text), "added: block spam@x.example until ") {
		t.Errorf("undo: %v, %s", err, text)
	}
	testkit.Begins(t, "undone", e2e.Ask(t, d.SMTP, "spam@x.example"), "550")
	if code, out, _ := d.Command(t, "remove", "nobody@x.example"); code != 1 || out != "no live entry: nobody@x.example\n" {
		t.Errorf("removal of nothing: %d, %q", code, out)
	}

	// The next build takes the entries in, for whatever reason it is made; what is
	// removed then acts at once all the same.
	e2e.Replace(t, d.Path("own.txt"), "listed.example\nmore.example\n")
	d.Counted(t, `blockd_list_entries{list="live"}`, "3") // the next build
	d.Counted(t, "blockd_live_newer_entries", "0")
	testkit.Begins(t, "folded", e2e.Ask(t, d.SMTP, "spam@x.example"), "550")
	d.Must(t, "remove", "spam@x.example")
	testkit.Begins(t, "folded and removed", e2e.Ask(t, d.SMTP, "spam@x.example"), "250")
}

// TestAddWhileNoDaemonRuns writes the file itself; and what a daemon has acknowledged
// is there after it was killed.
func TestAddWhileNoDaemonRuns(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	if code, out, errs := d.Command(t, "add", "early@x.example"); code != 0 || !strings.HasPrefix(out, "added: ") || !strings.Contains(errs, "no daemon runs") {
		t.Fatalf("add: %d, %s%s", code, out, errs)
	}
	d.Start(t)
	testkit.Begins(t, "after the start", e2e.Ask(t, d.SMTP, "early@x.example"), "550")
	d.Must(t, "add", "late@x.example")
	d.Kill(t)
	testkit.Has(t, d.Must(t, "list"), "early@x.example", "late@x.example")
	if _, err := os.Stat(d.Path("blockd.bdx.sock")); err != nil {
		t.Errorf("the killed daemon's socket: %v", err)
	}
	d.Start(t) // over the socket that is left
	testkit.Begins(t, "after the second start", e2e.Ask(t, d.SMTP, "late@x.example"), "550")
	d.Must(t, "remove", "late@x.example", "early@x.example")
	testkit.Begins(t, "after the removal", e2e.Ask(t, d.SMTP, "late@x.example"), "250")
}

// TestTokensOverTCP adds by a token from the environment, where there is no socket.
func TestTokensOverTCP(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	d.Edit(t, "[http]\n", "[http]\nsocket = \"none\"\ntokens = \"tokens\"\n")
	d.Unready = true // who has no token is not told
	d.Start(t)
	testkit.Has(t, d.Ends(t, 1, "add", "x@y.example"), "BLOCKD_TOKEN", "token new --write")
	var secrets []string
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{{"viewer", nil, 1, "scope read"}, {"helpdesk", []string{"--write"}, 0, ""}} {
		run := exec.Command(e2e.Program, append([]string{"token", "new", "-c", d.Path("config.toml"), "--name", tt.name}, tt.args...)...)
		token := testkit.Value(run.Output())(t)
		t.Setenv("BLOCKD_TOKEN", strings.TrimSpace(string(token)))
		testkit.Has(t, d.Ends(t, tt.code, "add", "x@y.example", "--author", "jo"), tt.says)
		secrets = append(secrets, strings.TrimSpace(string(token)))
	}
	testkit.Begins(t, "mail of the entry", e2e.Ask(t, d.SMTP, "x@y.example"), "550")
	testkit.Has(t, d.Must(t, "list"), "jo (helpdesk)")
	log := d.WholeLog(t)
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Error("a token is in the log")
		}
	}
}
