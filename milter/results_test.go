package milter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/sealed"
	"blockd/milter"
	"blockd/policy/verdict"
)

// Fields that carry our name are removed from every message, from any sender, and however the
// name is written. Other fields stay.
func TestForgedResultsAreTakenOut(t *testing.T) {
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.greet(other)
	fields := strings.Join([]string{
		"Authentication-Results: mx.here.example; dkim=pass header.d=paypal.com",
		"Authentication-Results: mx.elsewhere.example; spf=pass",
		"AUTHENTICATION-RESULTS: (a comment) MX.Here.Example. 1; spf=pass",
		"Subject: x",
		"Authentication-Results: \"mx.here.example\"; none",
		"Authentication-Results: mx.else.example; x=y (mx.here.example; spf=pass)",
		"Authentication-Results: mx.here.(in)example; none",
		"Authentication-Results: (never closed mx.here.example; spf=pass",
	}, "\r\n") + "\r\n\r\nText.\r\n"
	for _, sender := range []string{"a@there.example", ""} {
		testkit.Equal(t, "MAIL of a clear sender whose header has to be seen", m.mail(sender, sender), "c")
		testkit.Equal(t, "RCPT", m.rcpt("bob@here.example"), "c")
		changes, end := m.letter(fields)
		places := ""
		for _, c := range changes {
			if !strings.HasPrefix(c, "m\x00\x00\x00") || !strings.HasSuffix(c, "Authentication-Results\x00\x00") {
				t.Errorf("change %q", c)
				continue
			}
			places += string('0' + c[4])
		}
		if end != "a" || places != wantPlaces {
			t.Errorf("end %q, taken out: %q, want %q, from the last up", end, places, wantPlaces)
		}
	}
	m.mail("a@there.example", "a@there.example")
	m.rcpt("bob@here.example")
	m.event('L', "Subject\x00 x\x00")
	testkit.Equal(t, "a message with nothing to take out: at the end of its header", m.event('N', ""), "a")
	testkit.Equal(t, fmt.Sprintf("queries of ordinary mail: %v", p.Asked()), p.Count(), 0)
	testkit.Equal(t, "counted", d.metric("blockd_milter_forged_results_total"), 2*float64(len(wantPlaces)))
}

// Of seven fields of this kind, these carry our name: the first, the third with its comment,
// the fourth in quotes, the sixth, and the last, which has no end.
const wantPlaces = "76431"

func TestResultsAreWritten(t *testing.T) {
	d, p := proving(t, verdict.SPFProof|verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	send := func(client, text string) (changes []string, end string) {
		t.Helper()
		m := d.greet(client)
		m.mail("a@x.example", "a@x.example")
		m.rcpt("bob@here.example")
		changes, end = m.letter(text)
		return slices.DeleteFunc(changes, func(c string) bool { return c == "p" }), end
	}
	field := func(text string) string {
		return "i\x00\x00\x00\x00Authentication-Results\x00 mx.here.example" + text + "\x00"
	}

	changes, end := send(ours, "Authentication-Results: mx.here.example; forged=1\r\n"+sealed.Letter("a@x.example"))
	want := []string{"m\x00\x00\x00\x01Authentication-Results\x00\x00", field(";\n\tspf=pass smtp.mailfrom=a@x.example")}
	if end != "a" || !slices.Equal(changes, want) {
		t.Errorf("SPF: %q %q, want %q", changes, end, want)
	}
	changes, end = send(other, p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil))
	want = []string{field(";\n\tspf=fail smtp.mailfrom=a@x.example;\n\tdkim=pass header.d=x.example header.s=s1 header.a=ed25519-sha256")}
	if end != "a" || !slices.Equal(changes, want) {
		t.Errorf("a signature: %q %q, want %q", changes, end, want)
	}
	if changes, end = send(other, sealed.Letter("a@x.example")); !strings.HasPrefix(end, "554 ") || len(changes) != 0 {
		t.Errorf("a refused message: %q %q", changes, end)
	}
}

func TestTooManyForgedResults(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.greet(other)
	m.mail("a@there.example", "a@there.example")
	m.rcpt("bob@here.example")
	if _, end := m.letter(strings.Repeat("Authentication-Results: mx.here.example; none\r\n", 101) + "\r\n"); !strings.HasPrefix(end, "550 5.6.0 ") {
		t.Errorf("end %q, want 550", end)
	}
}

// A mail server that allows no change of headers gets neither.
func TestResultsWhereHeadersCannotBeChanged(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.dial()
	m.negotiate(6, offeredActions&^0x10, offeredProtocol)
	m.connect(other)
	m.event('H', "client.there.example\x00")
	testkit.Equal(t, "MAIL", m.mail("a@there.example", "a@there.example"), "a")
}
