package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

var reference = regexp.MustCompile(`\(ref ([0-9a-z]{10})\)`)

// kept is all that the history has on disk.
func (d *daemon) kept(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(d.path("blockd.bdx.history/*.decisions"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text := testkit.Read(t, file)
		all.Write(text)
	}
	return all.String()
}

// kill ends the daemon as a crash does.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	d.ended <- nil
}

// TestHistory refuses a mail, takes the reference out of the reply, and has it
// explained: by the daemon, after a crash, and without a daemon. Then it asks what a new
// list would have done to the mail that was taken.
func TestHistory(t *testing.T) {
	policy := freeAddress(t)
	d := serve(t, setup{postfix: fmt.Sprintf("policy_listen = %q", policy),
		files: map[string]string{"own.txt": "# ours\nbad.example\n", "friends.txt": "boss@fine.example\n",
			"new.txt": "other.example\nfine.example\nbad.example\n"},
		lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nreason = \"phishing\"\n" +
			"[[list]]\nname = \"friends\"\npath = \"friends.txt\"\naction = \"allow\"\n"})
	smtp := dialSMTP(t, d.smtp)
	reply := smtp.send("X@Sub.Bad.Example", "you@here.example", []byte("Subject: a\r\n\r\nb\r\n"))
	found := reference.FindStringSubmatch(reply)
	if found == nil || !strings.HasPrefix(reply, "550 5.7.1 ") {
		t.Fatalf("reply %q", reply)
	}
	for _, to := range []string{"you@here.example", "postmaster@here.example"} {
		for _, from := range []string{"good@fine.example", "boss@fine.example", "else@third.example"} {
			if reply := smtp.send(from, to, []byte("Subject: a\r\n\r\nb\r\n")); !strings.HasPrefix(reply, "250") {
				t.Fatalf("%s to %s: %q", from, to, reply)
			}
		}
	}
	conn, err := net.Dial("tcp", policy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=news@fine.example\nrecipient=you@here.example\nclient_address=198.51.100.9\nhelo_name=mx.fine.example\n\n")
	if _, err := io.ReadFull(conn, make([]byte, len("action=DUNNO\n\n"))); err != nil {
		t.Fatal(err)
	}

	explained := func(when string) {
		t.Helper()
		out := d.must(t, "history", "--ref", strings.ToUpper(found[1]))
		for _, want := range []string{found[1], "refused", "smtp", "127.0.0.1", "x@sub.bad.example", "you@here.example", "own", "bad.example (block, tree)",
			"own.txt:2", "phishing"} {
			if !strings.Contains(out, want) {
				t.Fatalf("%s: no %q in\n%s", when, want, out)
			}
		}
	}
	explained("by the daemon")
	if out := d.must(t, "history", "--sender", "news@fine.example"); !strings.Contains(out, "198.51.100.9") || strings.Count(out, "\n") != 2 {
		t.Errorf("the policy service's decision:\n%s", out)
	}
	if out := d.must(t, "lists", "--entries"); !strings.Contains(out, "boss@fine.example  friends:1     2     2") || !strings.Contains(out, "bad.example        own:2         1     1") {
		t.Errorf("lists --entries says\n%s", out)
	}
	if status, body := d.get("/v1/decisions?outcome=refuse"); status != 401 || strings.Contains(body, "bad.example") {
		t.Errorf("GET /v1/decisions without a token = %d, %s", status, body)
	}
	status, body := d.getWith(d.firstToken(t), "/v1/decisions?outcome=refuse")
	var answer struct {
		Decisions []struct{ Ref, List, Sender string }
		More      bool
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || len(answer.Decisions) != 1 || answer.Decisions[0].Ref != found[1] {
		t.Errorf("GET /v1/decisions = %d, %s", status, body)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "since=7d", "verdict=no", "colour=red", "client=nobody", "ref=a&ref=b"} {
		if status, body := d.getWith(d.firstToken(t), "/v1/decisions?"+bad); status != 400 {
			t.Errorf("GET /v1/decisions?%s = %d, %s", bad, status, body)
		}
	}

	testkit.Eventually(t, "the decisions to be on disk", func() bool {
		all := d.kept(t)
		return strings.Contains(all, found[1]) && strings.Contains(all, "news@fine.example")
	})
	d.kill(t)
	explained("after a crash, without a daemon")
	d.start(t)
	explained("after a crash, by the daemon")

	var report struct {
		Accepted, Refused, Exempt, Allowed int
		AcceptedSenders                    int `json:"accepted_senders"`
		RefusedSenders                     int `json:"refused_senders"`
		Senders                            []struct {
			Name  string
			Mails int
		}
	}
	out := d.must(t, "replay", "--list", d.path("new.txt"), "--since", "1h", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	// Taken: three senders for two recipients, and one by the policy service. Of these
	// the list has good@ twice, once exempt, boss@ whom an entry allows, and news@.
	if report.Accepted != 7 || report.Refused != 2 || report.Exempt != 2 || report.Allowed != 1 || report.AcceptedSenders != 3 ||
		report.RefusedSenders != 2 || len(report.Senders) != 2 || report.Senders[0].Name != "good@fine.example" {
		t.Errorf("replay says %s", out)
	}
	if out := d.must(t, "replay", "--list", d.path("new.txt")); !strings.Contains(out, "newly refused  2  of 2 senders") || !strings.Contains(out, "fine.example (line 2)") {
		t.Errorf("replay says\n%s", out)
	}
	if out := d.must(t, "replay", "--list", d.path("own.txt")); !strings.Contains(out, "newly refused  0") {
		t.Errorf("replay of the list in force says\n%s", out)
	}
	if code, _, errs := d.command(t, "history", "--sender", "nobody@else.example"); code != 1 || !strings.Contains(errs, "nothing found") {
		t.Errorf("history of nobody: %d, %s", code, errs)
	}
}

// TestGateKnowsTheMailOfBeforeTheStart takes mail of 120 senders, starts the daemon
// anew, and then has a list that would refuse half of them.
func TestGateKnowsTheMailOfBeforeTheStart(t *testing.T) {
	var writers strings.Builder
	for i := range 60 {
		fmt.Fprintf(&writers, "w%d.example\n", 2*i)
	}
	d := serve(t, setup{files: map[string]string{"own.txt": "bad.example\n", "new.txt": writers.String()},
		lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	for i := range 120 { // each from a network of its own: one counts for a few domains a day
		smtp := dialFrom(t, fmt.Sprintf("127.1.%d.1", i), d.smtp)
		if reply := smtp.send(fmt.Sprintf("n@w%d.example", i), "you@here.example", crlf([]byte("Subject: hello\n\nhi\n"))); !strings.HasPrefix(reply, "250") {
			t.Fatalf("mail %d: %q", i, reply)
		}
		smtp.conn.Close()
	}
	d.stop(t)
	<-d.ended
	if code, out, errs := d.command(t, "replay", "--list", d.path("new.txt")); code != 1 || !strings.Contains(out, "newly refused   60  of 60 senders") {
		t.Errorf("replay: %d\n%s%s", code, out, errs)
	}
	d.start(t)
	testkit.Write(t, d.path("own.txt"), "bad.example\n"+writers.String())
	d.reload(t)
	testkit.Eventually(t, "the list to be refused", func() bool {
		_, body := d.get("/readyz")
		return strings.Contains(body, "would refuse 60 of the 120 ")
	})
}

// TestNoHistory: nothing is kept where nothing is to be.
func TestNoHistory(t *testing.T) {
	d := configure(t, setup{files: map[string]string{"own.txt": "bad.example\n"}, lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	config := testkit.Read(t, d.path("config.toml"))
	testkit.Write(t, d.path("config.toml"), string(config)+"\n[history]\nfolder = \"none\"\n")
	d.start(t)
	if reply := dialSMTP(t, d.smtp).send("x@bad.example", "you@here.example", nil); !strings.HasPrefix(reply, "550") {
		t.Fatal(reply)
	}
	if status, _ := d.get("/v1/decisions"); status != 404 {
		t.Errorf("GET /v1/decisions = %d", status)
	}
	for _, args := range [][]string{{"history"}, {"replay", "--list", d.path("own.txt")}} {
		if code, _, errs := d.command(t, args...); code == 0 || !strings.Contains(errs, "no history is kept") {
			t.Errorf("blockd %q: %d, %s", args, code, errs)
		}
	}
	if _, err := os.Stat(d.path("blockd.bdx.history")); !os.IsNotExist(err) {
		t.Errorf("there is a folder: %v", err)
	}
}

// TestHistoryOfADamagedFolder: what cannot be kept costs no mail.
func TestHistoryOfADamagedFolder(t *testing.T) {
	d := configure(t, setup{files: map[string]string{"own.txt": "bad.example\n", "blockd.bdx.history": "a file in place of the folder\n"},
		lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	d.start(t)
	d.logged(t, 1, "no history is kept")
	if reply := dialSMTP(t, d.smtp).send("x@bad.example", "you@here.example", nil); !strings.HasPrefix(reply, "550") {
		t.Fatal(reply)
	}
}
