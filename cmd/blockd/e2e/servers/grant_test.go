package servers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
)

// TestGrantWithProof: where SPF passed the client that was refused, what an operator grants lets in mail with SPF or DKIM, and no
// forger, at the SMTP filter and in the milter of a real Postfix; without a record of SPF it lets in all, and says so.
func TestGrantWithProof(t *testing.T) {
	p := sealed.NewPost(t, nameserver.Zone{"TXT x.example": {"v=spf1 ip4:127.0.0.1 -all"}, "TXT broken.example": {"!SERVFAIL"}})
	door, milter := e2e.FreeAddress(t), e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{
		Lists: fmt.Sprintf("[auth]\nresolver = %q\ndns_timeout = \"2s\"\n[receipts]\nlisten = %q\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", p.Address, door),
		Files: map[string]string{"bad.txt": "x.example\nopen.example\nbroken.example\n"}, Milter: fmt.Sprintf("listen = %q\n", milter)})
	postfix := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter, "milter_default_action=tempfail")
	send := func(from, at, sender, letter string) string {
		t.Helper()
		c := e2e.DialFrom(t, from, at)
		defer c.Conn.Close()
		return c.Send(sender, "you@here.example", []byte(letter))
	}
	// asked has a refused person ask, and returns the reference.
	asked := func(from, sender string) string {
		t.Helper()
		refused := send(from, d.SMTP, sender, "")
		_, ref, ok := strings.Cut(refused, "(ref ")
		ref, _, _ = strings.Cut(ref, ")")
		if !ok || !strings.HasPrefix(refused, "550 ") {
			t.Fatalf("%s is not refused: %s", sender, refused)
		}
		var resp *http.Response
		testkit.Eventually(t, "the page", func() (ok bool) { // the history writes a moment later
			var err error
			if resp, err = http.PostForm("http://"+door+"/r/"+ref, url.Values{}); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
		return ref
	}
	want := func(what, got, prefix string) {
		t.Helper()
		if !strings.HasPrefix(got, prefix) {
			t.Errorf("%s: %q, want %q", what, got, prefix)
		}
	}
	const plain = "From: a@x.example\r\nSubject: hi\r\n\r\nhi\r\n"
	proved, forged := asked("127.0.0.1", "a@x.example"), asked("127.0.0.1", "a@open.example")
	states := map[string]string{}
	for line := range strings.Lines(d.Must(t, "requests", "--json")) {
		var q struct{ Ref, State, Time, List, Proof string }
		if err := json.Unmarshal([]byte(line), &q); err != nil || q.State != "open" || q.Time == "" || q.List != "bad" {
			t.Errorf("%s: %v", line, err)
		}
		states[q.Ref] = q.Proof
	}
	if states[proved] != "spf" || states[forged] != "none" {
		t.Errorf("proofs: %v", states)
	}
	if out := d.Must(t, "requests", "grant", proved); !strings.HasPrefix(out, "granted: a@x.example may write until ") || !strings.HasSuffix(out, ", with spf or dkim as proof\n") {
		t.Errorf("grant: %s", out)
	}
	testkit.Has(t, d.Must(t, "list"), "allow with spf or dkim")
	signed := p.Sign(t, "From: a@x.example\r\nSubject: hi\r\nTo: you@here.example\r\nDate: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@x.example>\r\n\r\nhi\r\n", "x.example", sealed.RSA, nil)
	for name, at := range map[string]string{"SMTP filter": d.SMTP, "milter of Postfix": postfix.SMTP} {
		want(name+", the sender", send("127.0.0.1", at, "a@x.example", plain), "250")
		want(name+", the sender from elsewhere, signed", send("127.0.0.2", at, "a@x.example", signed), "250")
		want(name+", a forger", send("127.0.0.2", at, "a@x.example", plain), "55")
		want(name+", another address there", send("127.0.0.1", at, "b@x.example", plain), "55")
	}
	if out := d.Must(t, "requests", "grant", forged); !strings.HasSuffix(out, "; no proof is asked for, so whoever writes this address may\n") {
		t.Errorf("grant without proof: %s", out)
	}
	want("without proof", send("127.0.0.2", d.SMTP, "a@open.example", plain), "250")

	// What DNS does not tell is not taken for proof, and not for its absence.
	broken := asked("127.0.0.1", "a@broken.example")
	if code, _, stderr := d.Command(t, "requests", "grant", broken); code == 0 || !strings.Contains(stderr, "DNS does not tell whether SPF passes 127.0.0.1 for a@broken.example") {
		t.Errorf("grant while DNS fails: %d, %s", code, stderr)
	}
	testkit.Has(t, d.Must(t, "requests"), broken, "unknown")
	if out := d.Must(t, "requests", "grant", "--no-proof", broken); !strings.HasSuffix(out, "; no proof is asked for, so whoever writes this address may\n") {
		t.Errorf("grant --no-proof: %s", out)
	}
	want("granted without asking DNS", send("127.0.0.2", d.SMTP, "a@broken.example", plain), "250")
	// The requirement outlives the process.
	d.Stop(t)
	d.Start(t)
	want("after a restart, a forger", send("127.0.0.2", d.SMTP, "a@x.example", plain), "55")
	want("after a restart, the sender", send("127.0.0.1", d.SMTP, "a@x.example", plain), "250")
}
