package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestHistory refuses a mail, takes the reference out of the reply, and has it
// explained: by the daemon, after a crash, and without a daemon. Then it asks what a new
// list would have done to the mail that was taken.
func TestHistory(t *testing.T) {
	policy := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Postfix: fmt.Sprintf("policy_listen = %q", policy),
		Files: map[string]string{"own.txt": "# ours\nbad.example\n", "friends.txt": "boss@fine.example\n",
			"new.txt": "other.example\nfine.example\nbad.example\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nreason = \"phishing\"\n" +
			"[[list]]\nname = \"friends\"\npath = \"friends.txt\"\naction = \"allow\"\n"})
	smtp := e2e.DialSMTP(t, d.SMTP)
	reply := smtp.Send("X@Sub.Bad.Example", "you@here.example", []byte("Subject: a\r\n\r\nb\r\n"))
	found := e2e.Reference.FindStringSubmatch(reply)
	if found == nil || !strings.HasPrefix(reply, "550 5.7.1 ") {
		t.Fatalf("reply %q", reply)
	}
	for _, to := range []string{"you@here.example", "postmaster@here.example"} {
		for _, from := range []string{"good@fine.example", "boss@fine.example", "else@third.example"} {
			e2e.MustBegin(t, fmt.Sprintf("%s to %s", from, to), smtp.Send(from, to, []byte("Subject: a\r\n\r\nb\r\n")), "250")
		}
	}
	conn := testkit.Value(net.Dial("tcp", policy))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=news@fine.example\nrecipient=you@here.example\nclient_address=198.51.100.9\nhelo_name=mx.fine.example\n\n")
	if _, err := io.ReadFull(conn, make([]byte, len("action=DUNNO\n\n"))); err != nil {
		t.Fatal(err)
	}

	explained := func(when string) {
		t.Helper()
		out := d.Must(t, "history", "--ref", strings.ToUpper(found[1]))
		for _, want := range []string{found[1], "refused", "smtp", "127.0.0.1", "x@sub.bad.example", "you@here.example", "own", "bad.example (block, tree)",
			"own.txt:2", "phishing"} {
			if !strings.Contains(out, want) {
				t.Fatalf("%s: no %q in\n%s", when, want, out)
			}
		}
	}
	explained("by the daemon")
	if out := d.Must(t, "history", "--sender", "news@fine.example"); !strings.Contains(out, "198.51.100.9") || strings.Count(out, "\n") != 2 {
		t.Errorf("the policy service's decision:\n%s", out)
	}
	testkit.Has(t, d.Must(t, "lists", "--entries"), "boss@fine.example  friends:1     2     2", "bad.example        own:2         1     1")
	if status, body := d.Get("/v1/decisions?outcome=refuse"); status != 401 || strings.Contains(body, "bad.example") {
		t.Errorf("GET /v1/decisions without a token = %d, %s", status, body)
	}
	status, body := d.GetWith(d.FirstToken(t), "/v1/decisions?outcome=refuse")
	var answer struct {
		Decisions []struct{ Ref, List, Sender string }
		More      bool
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || len(answer.Decisions) != 1 || answer.Decisions[0].Ref != found[1] {
		t.Errorf("GET /v1/decisions = %d, %s", status, body)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "since=7d", "verdict=no", "colour=red", "client=nobody", "ref=a&ref=b"} {
		if status, body := d.GetWith(d.FirstToken(t), "/v1/decisions?"+bad); status != 400 {
			t.Errorf("GET /v1/decisions?%s = %d, %s", bad, status, body)
		}
	}

	testkit.Eventually(t, "the decisions to be on disk", func() bool {
		all := d.Kept(t)
		return strings.Contains(all, found[1]) && strings.Contains(all, "news@fine.example")
	})
	d.Kill(t)
	explained("after a crash, without a daemon")
	d.Start(t)
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
	out := d.Must(t, "replay", "--list", d.Path("new.txt"), "--since", "1h", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	// Taken: three senders for two recipients, and one by the policy service. Of these
	// the list has good@ twice, once exempt, boss@ whom an entry allows, and news@.
	if report.Accepted != 7 || report.Refused != 2 || report.Exempt != 2 || report.Allowed != 1 || report.AcceptedSenders != 3 ||
		report.RefusedSenders != 2 || len(report.Senders) != 2 || report.Senders[0].Name != "good@fine.example" {
		t.Errorf("replay says %s", out)
	}
	testkit.Has(t, d.Must(t, "replay", "--list", d.Path("new.txt")), "newly refused  2  of 2 senders", "fine.example (line 2)")
	testkit.Has(t, d.Must(t, "replay", "--list", d.Path("own.txt")), "newly refused  0")
	testkit.Has(t, d.Ends(t, 1, "history", "--sender", "nobody@else.example"), "nothing found")
}

// TestGateKnowsTheMailOfBeforeTheStart takes mail of 120 senders, starts the daemon
// anew, and then has a list that would refuse half of them.
func TestGateKnowsTheMailOfBeforeTheStart(t *testing.T) {
	var writers strings.Builder
	for i := range 60 {
		fmt.Fprintf(&writers, "w%d.example\n", 2*i)
	}
	d := e2e.Serve(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n", "new.txt": writers.String()},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	for i := range 120 { // each from a network of its own: one counts for a few domains a day
		smtp := e2e.DialFrom(t, fmt.Sprintf("127.1.%d.1", i), d.SMTP)
		e2e.MustBegin(t, fmt.Sprintf("mail %d", i), smtp.Send(fmt.Sprintf("n@w%d.example", i), "you@here.example", e2e.Crlf([]byte("Subject: hello\n\nhi\n"))), "250")
		smtp.Conn.Close()
	}
	d.Stop(t)
	<-d.Ended
	if code, out, errs := d.Command(t, "replay", "--list", d.Path("new.txt")); code != 1 || !strings.Contains(out, "newly refused   60  of 60 senders") {
		t.Errorf("replay: %d\n%s%s", code, out, errs)
	}
	d.Start(t)
	testkit.Write(t, d.Path("own.txt"), "bad.example\n"+writers.String())
	d.Reload(t)
	d.Says(t, "/readyz", "would refuse 60 of the 120 ")
}

// TestNoHistory: nothing is kept where nothing is to be.
func TestNoHistory(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	config := testkit.Read(t, d.Path("config.toml"))
	testkit.Write(t, d.Path("config.toml"), string(config)+"\n[history]\nfolder = \"none\"\n")
	d.Start(t)
	testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "x@bad.example"), "550")
	if status, _ := d.Get("/v1/decisions"); status != 404 {
		t.Errorf("GET /v1/decisions = %d", status)
	}
	for _, args := range [][]string{{"history"}, {"replay", "--list", d.Path("own.txt")}} {
		if code, _, errs := d.Command(t, args...); code == 0 || !strings.Contains(errs, "no history is kept") {
			t.Errorf("blockd %q: %d, %s", args, code, errs)
		}
	}
	if _, err := os.Stat(d.Path("blockd.bdx.history")); !os.IsNotExist(err) {
		t.Errorf("there is a folder: %v", err)
	}
}

// TestHistoryOfADamagedFolder: what cannot be kept costs no mail.
func TestHistoryOfADamagedFolder(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n", "blockd.bdx.history": "a file in place of the folder\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	d.Start(t)
	d.Logged(t, 1, "no history is kept")
	testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "x@bad.example"), "550")
}
