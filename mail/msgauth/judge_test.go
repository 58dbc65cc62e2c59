package msgauth

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// TestPerlJudgesSignatures asks Mail::DKIM about signatures in unusual forms: what holds there
// holds here.
func TestPerlJudgesSignatures(t *testing.T) {
	differences := map[string]string{
		"a tag twice":  "the list is invalid (RFC 6376, section 3.2)",
		"names itself": "the field that is verified is no part of what it names (section 3.5, h=)",
	}
	verify := testkit.Peer(t, "dkimproxy-verify")
	bank := newRSASigner(t, 2048)
	s := nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}})
	host, port, _ := net.SplitHostPort(s.Address)
	simple := func(o *dkim.SignOptions) {
		o.HeaderCanonicalization, o.BodyCanonicalization = dkim.CanonicalizationSimple, dkim.CanonicalizationSimple
	}
	resign := func(edit func(string) string) string { return bank.resign(t, letter, "bank.test", edit) }
	for name, message := range map[string]string{
		"plain": bank.sign(t, letter, "bank.test"), "simple": bank.sign(t, letter, "bank.test", simple),
		"blanks at the end of lines": bank.sign(t, letter+"a \t b\t\r\n \r\n\r\n", "bank.test"), "only blank lines": bank.sign(t, letter[:strings.Index(letter, "One")]+"\r\n\r\n", "bank.test"),
		"no body, simple": bank.sign(t, letter[:strings.Index(letter, "One")], "bank.test", simple),
		"i= in capitals":  resign(addTag("i=@BANK.Test")), "i= that is encoded": resign(addTag("i=a=20b=3Dc@news.bank.test")), "i= of another": resign(addTag("i=@mallory.test")),
		"z= with b= in it": resign(addTag("z=Subject:=20Job=20b=20|b=20:x")), "h= with blanks": resign(replaceTag("From:Subject", "from : subject")),
		"named once more": resign(replaceTag("From:Subject", "From:Subject:From")), "names itself": resign(replaceTag("From:Subject", "From:Subject:DKIM-Signature")), "another body": bank.sign(t, letter, "bank.test") + "more\r\n",
		"another subject": strings.Replace(bank.sign(t, letter, "bank.test"), "hello", "Hello", 1), "a tag twice": resign(addTag("a=rsa-sha256")),
		"no v=": resign(replaceTag("v=1; ", "")), "From is not signed": resign(replaceTag("From:Subject", "Subject")), "expired": resign(addTag("x=1")),
	} {
		m := testkit.Value(resolverOf(t, s).Message(t.Context(), netip.Addr{}, strings.NewReader(message)))(t)
		judge := exec.CommandContext(t.Context(), verify)
		judge.Env = []string{"PATH=/usr/bin:/bin", "RES_NAMESERVERS=" + host, "RES_OPTIONS=port:" + port}
		judge.Stdin = strings.NewReader(message)
		out, err := judge.CombinedOutput()
		theirs := strings.Contains(string(out), "result: pass") || strings.Contains(string(out), "verify result: pass")
		if ours := m.DKIM("bank.test") == Pass; err != nil || (ours == theirs) == (differences[name] != "") {
			t.Errorf("%s: %v here, and Mail::DKIM says %s %v; %s", name, ours, out, err, fmt.Sprint(m.Signatures))
		}
	}
}
