package parse

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/mail/addr"
)

// The second parser: the grammar of MAIL and RCPT as one regular expression for
// the line and one for a parameter, over octets (each octet is one character of
// their subjects). It knows nothing of package addr.
var (
	slowLine = regexp.MustCompile(`^(?i:(MAIL) FROM|(RCPT) TO): *` +
		`(<(?:(?:@(?:[^:<>" \[\]]|\[[0-9A-Za-z:.]+\])+:)?(` + "[A-Za-z0-9!#$%&'*+/=?^_`{|}~.\\x{80}-\\x{FF}-]+" + `|` +
		`"(?:[^"\\\x{00}-\x{1F}\x{7F}]|\\[\x{20}-\x{7E}])*"` + `)(?:@([^<>@" ]+))?)?>)` +
		`((?: +[A-Za-z0-9][A-Za-z0-9-]*(?:=[\x{21}-\x{3C}\x{3E}-\x{7E}]+)?)*) *$`)
	slowChunk = regexp.MustCompile(`^(?i:BDAT) ([0-9]{1,20})( (?i:LAST))? *$`)
	slowParam = regexp.MustCompile(`([A-Za-z0-9-]+)(?:=([^ ]+))?`)
)

var slowParams = map[string]Params{
	"SIZE": ParamSize, "BODY": ParamBody, "SMTPUTF8": ParamSMTPUTF8, "RET": ParamRet, "ENVID": ParamEnvID,
	"NOTIFY": ParamNotify, "ORCPT": ParamOrcpt, "BY": ParamBy, "MT-PRIORITY": ParamMTPriority, "RRVS": ParamRRVS,
	"HOLDFOR": ParamHoldFor, "HOLDUNTIL": ParamHoldUntil, "AUTH": ParamAuth, "REQUIRETLS": ParamRequireTLS,
}

// checkLine says what acceptance means: nothing in the line that could end it or
// be read in another way, and a second parser sees the same path and parameters.
func checkLine(t *testing.T, line []byte) {
	t.Helper()
	given := bytes.Clone(line)
	c, err := Line(line)
	if !bytes.Equal(line, given) {
		t.Fatalf("Line(%q) changed it to %q", given, line)
	}
	if err != nil {
		e, ok := err.(*Error)
		if !ok || e == nil || c.Path.Raw != nil || c.Arg != nil || c.Params != 0 {
			t.Fatalf("Line(%q) = %+v, %v", line, c, err)
		}
		return
	}
	if c.Verb == Unknown || c.Verb == HTTP {
		t.Fatalf("Line(%q) = %v without an error", line, c.Verb)
	}
	if c.Verb == BDAT {
		m := slowChunk.FindSubmatch(line)
		if m == nil {
			t.Fatalf("Line(%q) = %+v; the second parser refuses it", line, c)
		}
		if size, ok := new(big.Int).SetString(string(m[1]), 10); !ok || !size.IsInt64() || size.Int64() != c.Size || c.Last != (len(m[2]) > 0) {
			t.Fatalf("Line(%q): size %d, last %v; the second parser sees %s, %q", line, c.Size, c.Last, size, m[2])
		}
		return
	}
	for _, b := range line {
		if b < ' ' || b == 0x7F || b > 0x7F && !c.Path.UTF8 {
			t.Fatalf("Line(%q) accepted octet %#x", line, b)
		}
	}
	if c.Verb != MAIL && c.Verb != RCPT {
		if want := strings.Trim(string(line[len(c.Verb.String()):]), " "); string(c.Arg) != want {
			t.Fatalf("Line(%q): argument %q, want %q", line, c.Arg, want)
		}
		return
	}
	m := slowLine.FindStringSubmatch(testkit.Latin1(line))
	if m == nil {
		t.Fatalf("Line(%q) = %+v; the second parser refuses it", line, c)
	}
	if testkit.Octets(m[3]) != string(c.Path.Raw) || testkit.Octets(m[4]) != string(c.Path.Local) || testkit.Octets(m[5]) != string(c.Path.Domain) ||
		!strings.EqualFold(m[1]+m[2], c.Verb.String()) {
		t.Fatalf("Line(%q) = %v %q; the second parser sees %q", line, c.Verb, c.Path.Raw, m[1:6])
	}
	var params Params
	var size int64
	for _, p := range slowParam.FindAllStringSubmatch(m[6], -1) {
		bit, known := slowParams[strings.ToUpper(p[1])]
		if !known || params&bit != 0 || bit == ParamBody && params&ParamBinary != 0 {
			t.Fatalf("Line(%q) accepted parameter %q", line, p[0])
		}
		if bit == ParamBody && strings.EqualFold(p[2], "BINARYMIME") {
			bit = ParamBinary
		}
		params |= bit
		if bit == ParamSize {
			size, _ = strconv.ParseInt(p[2], 10, 64)
		}
	}
	if params != c.Params || size != c.Size {
		t.Fatalf("Line(%q): parameters %b, size %d; the second parser sees %b, %d", line, c.Params, c.Size, params, size)
	}
	if _, err := addr.Parse(string(c.Path.Raw)); err != nil {
		t.Fatalf("Line(%q): path cannot be looked up: %v", line, err)
	}
}

func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		"EHLO mail.test", "MAIL FROM:<> SIZE=1", "MAIL FROM: <a@b.test> BODY=8BITMIME", "RCPT TO:<postmaster>",
		`MAIL FROM:<"victim@blocked.example> ENVID=a"@good.example>`, "RCPT TO:<a@b.test> NOTIFY=NEVER ORCPT=rfc822;a+40b.test",
		"MAIL FROM:<jörg@bücher.test> SMTPUTF8", "BDAT 1", "Host: x", "DATA ",
		"BDAT 9223372036854775807 LAST", "BDAT 00000000000000000042 last ", "MAIL FROM:<> BODY=BINARYMIME AUTH=<>",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(checkLine)
}

// TestRandomLines joins pieces that have a meaning, which reaches deeper than
// random octets in the same time.
func TestRandomLines(t *testing.T) {
	race.Skip(t)
	pieces := []string{
		"MAIL", "mail FROM:", "RCPT TO:", " ", "<", ">", "<a@b.test>", "<>", `"`, `\`, "@", ".", ":", "a", "é", "\x00", "\r", "\n", "\t",
		" SIZE=1", " BODY=7BIT", " SMTPUTF8", " NOTIFY=NEVER", "=", " ENVID=a", "+2B", " RET=FULL", " size=", "postmaster",
		"@r.test:", "@[", "]:", "@[IPv6:2001:db8::1]:", "[192.0.2.1]", "EHLO", "DATA", "BDAT",
	}
	rng := rand.New(rand.NewPCG(5, 8))
	for range 200_000 {
		var b strings.Builder
		for range 1 + rng.IntN(6) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		checkLine(t, []byte(b.String()))
		checkLine(t, []byte("MAIL FROM:<"+b.String()+">"))
		checkLine(t, []byte(`RCPT TO:<"`+b.String()+`"@b.test>`))
		checkLine(t, []byte("MAIL FROM:<a@b.test>"+b.String()))
	}
}
