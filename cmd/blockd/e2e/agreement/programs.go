package agreement

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit/transaction"
	"blockd/mail/addr"
)

// programs are the doors that programs ask about one thing at a time: the domain of the
// sender or the client by DNS, the whole sender or the client by RESP. All must say what HTTP
// says of the same thing.
var programs = []struct {
	name string
	ask  func(*Agreement, *testing.T, *transaction.Case, *e2e.Daemon) string
}{
	{"dns, domain", (*Agreement).askDNSDomain}, {"dns, client", (*Agreement).askDNSClient},
	{"resp, sender", (*Agreement).askRESPSender}, {"resp, client", (*Agreement).askRESPClient},
}

// programDoors are the lines of the configuration that open [dns] and [resp].
func (a *Agreement) programDoors() string {
	return fmt.Sprintf("[resp]\nlisten = %q\n[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n",
		a.resp, a.dns, e2e.IPZone, e2e.DomainZone)
}

// The words of these doors.
const (
	wordListed = "listed"
	wordNo     = "no"
	wordError  = "error"
	wordCannot = "-" // there is no such question
)

// askDNSDomain asks for the sender's domain, if DNS has room for its name.
func (a *Agreement) askDNSDomain(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	sender := transaction.Internal(c.Sender)
	key, err := addr.DomainKey(sender[strings.LastIndexByte(sender, '@')+1:])
	if _, fits := dns.IsDomainName(key.Text + "." + e2e.DomainZone); err != nil || !fits || key.Text == "" || key.Text[0] == '[' {
		return wordCannot
	}
	return agrees(t, "dns", byDNS(t, a.dns, key.Text+"."+e2e.DomainZone), askedHTTP(t, d, "domain", key.Text))
}

func (a *Agreement) askDNSClient(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	return agrees(t, "dns", byDNS(t, a.dns, e2e.Reversed(c.Client)+"."+e2e.IPZone), askedHTTP(t, d, "ip", c.Client.String()))
}

func (a *Agreement) askRESPSender(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	text := c.Sender
	if text == "" {
		text = "<>"
	}
	return agrees(t, "resp", byRESP(t, a.resp, text), askedHTTP(t, d, "sender", text))
}

func (a *Agreement) askRESPClient(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	return agrees(t, "resp", byRESP(t, a.resp, c.Client.String()), askedHTTP(t, d, "ip", c.Client.String()))
}

func agrees(t *testing.T, door, got, want string) string {
	t.Helper()
	if got != want {
		t.Errorf("%s says %q, and HTTP of the same %q", door, got, want)
	}
	return got
}

// askedHTTP is what /v1/check says of one thing, in the words of these doors.
func askedHTTP(t *testing.T, d *e2e.Daemon, kind, text string) string {
	t.Helper()
	status, body := d.Get("/v1/check?" + kind + "=" + strings.ReplaceAll(url.QueryEscape(text), "+", "%20"))
	var answer struct{ Verdict string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
		t.Fatalf("http, %s %q: %d %s", kind, text, status, body)
	}
	switch answer.Verdict {
	case "blocked":
		return wordListed
	case "unknown":
		return wordError
	}
	return wordNo
}

func byDNS(t *testing.T, address, name string) string {
	t.Helper()
	m, err := e2e.AskDNS("udp", address, name, time.Minute)
	switch {
	case err != nil:
		t.Fatalf("dns, %s: %v", name, err)
	case m.Rcode == dns.RcodeServerFailure && len(m.Answer) == 0:
		return wordError
	case len(m.Answer) == 1 && m.Rcode == dns.RcodeSuccess:
		return wordListed
	case len(m.Answer) == 0 && (m.Rcode == dns.RcodeNameError || m.Rcode == dns.RcodeSuccess):
		return wordNo
	}
	return m.String()
}

func byRESP(t *testing.T, address, member string) string {
	t.Helper()
	conn, r := e2e.DialRaw(t, address)
	fmt.Fprintf(conn, "*3\r\n$9\r\nSISMEMBER\r\n$7\r\nsenders\r\n$%d\r\n%s\r\n", len(member), member)
	line, err := r.ReadString('\n')
	switch {
	case err != nil:
		t.Fatalf("resp, %q: %v", member, err)
	case line == ":1\r\n":
		return wordListed
	case line == ":0\r\n":
		return wordNo
	case strings.HasPrefix(line, "-"):
		return wordError
	}
	return line
}
