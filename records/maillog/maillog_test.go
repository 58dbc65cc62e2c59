package maillog

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

var settings = Settings{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}

func read(t testing.TB, text string) (all []string, r Report) {
	t.Helper()
	r, err := Read(strings.NewReader(text), settings, func(s Sent) error {
		all = append(all, fmt.Sprintf("%s %s %s", s.Time.Format(time.DateOnly), s.Sender, s.Recipient))
		return nil
	})
	testkit.Must(t, err)
	return all, r
}

const (
	login = `HEAD postfix/submission/smtpd[12]: 4ABC123: client=pc.here.example[192.0.2.9], sasl_method=PLAIN, sasl_username=anna
HEAD postfix/qmgr[7]: 4ABC123: from=<anna@here.example>, size=811, nrcpt=2 (queue active)
HEAD postfix/smtp[9]: 4ABC123: to=<bob@there.example>, relay=mx.there.example[198.51.100.1]:25, delay=1, delays=0.1/0/0.4/0.5, dsn=2.0.0, status=sent (250 2.0.0 Ok)
HEAD postfix/smtp[9]: 4ABC123: to=<gone@there.example>, relay=mx.there.example[198.51.100.1]:25, delay=1, delays=0.1/0/0.4/0.5, dsn=5.1.1, status=bounced (host said 550)
HEAD postfix/lmtp[9]: 4ABC123: to=<carl@here.example>, relay=here[private/dovecot-lmtp], delay=1, dsn=2.0.0, status=sent (250)
HEAD postfix/qmgr[7]: 4ABC123: removed
HEAD postfix/smtp[9]: 4ABC123: to=<late@there.example>, relay=x, dsn=2.0.0, status=sent (250)
`
	own      = "HEAD postfix/smtpd[12]: 3F0000: client=pc[10.1.2.3]\nHEAD postfix/qmgr[7]: 3F0000: from=<>, size=1\nHEAD postfix-out/smtp[9]: 3F0000: to=<x@far.example>, relay=x, dsn=2.0.0, status=sent (250)\n"
	stranger = "HEAD postfix/smtpd[12]: 3F0001: client=pc[203.0.113.3]\nHEAD postfix/qmgr[7]: 3F0001: from=<spam@bad.example>, size=1\nHEAD postfix/smtp[9]: 3F0001: to=<y@far.example>, relay=x, dsn=2.0.0, status=sent (250)\n"
)

func TestPostfix(t *testing.T) {
	for head, day := range map[string]string{
		"Nov  3 10:00:00 mail":                        "2026-11-03",
		"Dec 31 10:00:00 mail":                        "2025-12-31",
		"2026-11-03T10:00:00.123456+01:00 mail":       "2026-11-03",
		"2026-11-03T10:00:00Z mail.here.example":      "2026-11-03",
		"<22>1 2026-11-03T10:00:00.123456+01:00 mail": "2026-11-03",
	} {
		got, r := read(t, strings.ReplaceAll(login+own+stranger, "HEAD", head)+"noise\n")
		want := fmt.Sprintf("[%s anna@here.example bob@there.example %s  x@far.example]", day, day)
		testkit.Got(fmt.Sprint(got), r.Messages, r.Skipped)(t, fmt.Sprintf("%s:\n%v, want\n", head, got), want, 2, 1)
	}
	rfc5424 := "<22>1 2026-11-03T10:00:00Z mail postfix/smtpd 12 - - 4ABC123: client=x[10.0.0.1]\n<22>1 2026-11-03T10:00:00Z mail postfix/smtp 9 - - 4ABC123: to=<bob@there.example>, relay=x, dsn=2.0.0, status=sent (250)\n"
	if got, r := read(t, rfc5424); len(got) != 1 {
		t.Errorf("RFC 5424: %v, %+v", got, r)
	}
}

func TestExim(t *testing.T) {
	log := `2026-11-03 10:00:00 1tABCD-000000001aB-2cDe <= anna@here.example H=pc (pc) [192.0.2.9] P=esmtpsa A=plain:anna S=811 id=x@pc
2026-11-03 10:00:01 1tABCD-000000001aB-2cDe => bob@there.example R=dnslookup T=remote_smtp H=mx.there.example [198.51.100.1] C="250 OK"
2026-11-03 10:00:01 1tABCD-000000001aB-2cDe => carl <carl@here.example> R=local T=dovecot
2026-11-03 10:00:02 1tABCD-000000001aB-2cDe Completed
2026-11-03 10:00:03 1tABCE-00000A-1B <= spam@bad.example H=x [203.0.113.3] P=esmtp S=1
2026-11-03 10:00:03 1tABCE-00000A-1B => y@far.example R=dnslookup T=remote_smtp H=mx [198.51.100.1]
2026-11-03 10:00:03 1tABCF-00000A-1B <= scan@here.example H=x [10.0.0.3]:2525 P=esmtp S=1
2026-11-03 10:00:03 1tABCF-00000A-1B => z@far.example R=dnslookup T=remote_smtp H=mx [198.51.100.1]
`
	if got, r := read(t, log); fmt.Sprint(got) != "[2026-11-03 anna@here.example bob@there.example 2026-11-03 scan@here.example z@far.example]" {
		t.Errorf("%v, %+v", got, r)
	}
}

// A log that begins messages and never ends them takes bounded memory, and a line without an end is passed over.
func TestHostileLogs(t *testing.T) {
	pr, pw := io.Pipe()
	go func() {
		for i := range maxOpen + 1000 {
			fmt.Fprintf(pw, "Nov  3 10:00:00 mail postfix/smtpd[1]: A%07d: client=x[10.0.0.1]\n", i)
		}
		pw.Write([]byte(strings.Repeat("x", 3*maxLine) + "\n"))
		fmt.Fprintf(pw, "Nov  3 10:00:00 mail postfix/smtp[1]: A%07d: to=<new@a.example>, relay=x, status=sent (250)\n", maxOpen+999)
		fmt.Fprintf(pw, "Nov  3 10:00:00 mail postfix/smtp[1]: A%07d: to=<old@a.example>, relay=x, status=sent (250)\n", 3)
		pw.Close()
	}()
	var all []string
	r, err := Read(pr, settings, func(s Sent) error { all = append(all, s.Recipient); return nil })
	testkit.Got(err, fmt.Sprint(all), r.Dropped, r.Skipped)(t, "read", nil, "[new@a.example]", 1000, 1)
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{login, own, stranger, "2026-11-03 10:00:00 1tABCE-00000A-1B <= a H=x [203.0.113.3]:\n"} {
		f.Add(strings.ReplaceAll(text, "HEAD", "Nov  3 10:00:00 mail"))
		f.Add(strings.ReplaceAll(text, "HEAD", "<22>1 2026-11-03T10:00:00Z mail"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		Read(strings.NewReader(text), settings, func(s Sent) error {
			if s.Recipient == "" || len(s.Recipient) > maxField {
				t.Errorf("a recipient of %d octets", len(s.Recipient))
			}
			return nil
		})
	})
}
