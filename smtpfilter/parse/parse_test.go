package parse

import (
	"bytes"
	"errors"
	"fmt"
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

func TestLineAccepts(t *testing.T) {
	type want struct {
		verb          Verb
		local, domain string
		arg           string
		params        Params
		size          int64
		last          bool
	}
	tests := []struct {
		name, in string
		want     want
	}{
		{"EHLO", "EHLO mail.test", want{verb: EHLO, arg: "mail.test"}},
		{"verb in lower case", "ehlo mail.test", want{verb: EHLO, arg: "mail.test"}},
		{"HELO with a literal", "HELO [192.0.2.1]", want{verb: HELO, arg: "[192.0.2.1]"}},
		{"LHLO", "LHLO mail.test", want{verb: LHLO, arg: "mail.test"}},
		{"EHLO name with an underscore", "EHLO my_pc", want{verb: EHLO, arg: "my_pc"}},
		{"EHLO name that is none", "EHLO (broken!", want{verb: EHLO, arg: "(broken!"}},
		{"EHLO name of 255 octets", "EHLO " + strings.Repeat("x", 255), want{verb: EHLO, arg: strings.Repeat("x", 255)}},
		{"EHLO and blanks around", "EHLO  mail.test ", want{verb: EHLO, arg: "mail.test"}},

		{"MAIL", "MAIL FROM:<a@b.test>", want{verb: MAIL, local: "a", domain: "b.test"}},
		{"MAIL in lower case", "mail from:<a@b.test>", want{verb: MAIL, local: "a", domain: "b.test"}},
		{"null sender", "MAIL FROM:<>", want{verb: MAIL}},
		{"blank behind the colon", "MAIL FROM: <a@b.test>", want{verb: MAIL, local: "a", domain: "b.test"}},
		{"blanks behind the path", "MAIL FROM:<a@b.test>  ", want{verb: MAIL, local: "a", domain: "b.test"}},
		{"source route", "MAIL FROM:<@r.test:a@b.test>", want{verb: MAIL, local: "a", domain: "b.test"}},
		{"literal", "MAIL FROM:<a@[IPv6:2001:db8::1]>", want{verb: MAIL, local: "a", domain: "[IPv6:2001:db8::1]"}},
		{"UTF-8 with SMTPUTF8", "MAIL FROM:<jörg@b.test> SMTPUTF8",
			want{verb: MAIL, local: "jörg", domain: "b.test", params: ParamSMTPUTF8}},
		{"parameter inside a quoted local-part is none", `MAIL FROM:<"victim@blocked.example> ENVID=a"@good.example>`,
			want{verb: MAIL, local: `"victim@blocked.example> ENVID=a"`, domain: "good.example"}},
		{"all of MAIL", "MAIL FROM:<> SIZE=1234 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb BY=-60;RT MT-PRIORITY=-9 HOLDFOR=60",
			want{verb: MAIL, size: 1234, params: mailParams &^ (ParamHoldUntil | ParamAuth | ParamRequireTLS)}},
		{"BODY=BINARYMIME", "MAIL FROM:<> BODY=BinaryMIME", want{verb: MAIL, params: ParamBinary}},
		{"AUTH", "MAIL FROM:<> AUTH=e+3Dmc2@example.com", want{verb: MAIL, params: ParamAuth}},
		{"REQUIRETLS", "MAIL FROM:<a@b> REQUIRETLS", want{verb: MAIL, local: "a", domain: "b", params: ParamRequireTLS}},
		{"AUTH of nobody", "MAIL FROM:<> AUTH=<>", want{verb: MAIL, params: ParamAuth}},
		{"parameters in lower case", "MAIL FROM:<> size=7 body=7bit", want{verb: MAIL, size: 7, params: ParamSize | ParamBody}},
		{"blanks between parameters", "MAIL FROM:<>  SIZE=7   BODY=7BIT ", want{verb: MAIL, size: 7, params: ParamSize | ParamBody}},
		{"SIZE of 63 bits", "MAIL FROM:<> SIZE=9223372036854775807", want{verb: MAIL, size: 1<<63 - 1, params: ParamSize}},
		{"SIZE of 20 digits", "MAIL FROM:<> SIZE=00000000000000000042", want{verb: MAIL, size: 42, params: ParamSize}},
		{"HOLDUNTIL", "MAIL FROM:<> HOLDUNTIL=2030-01-02T03:04:05Z", want{verb: MAIL, params: ParamHoldUntil}},

		{"RCPT", "RCPT TO:<a@b.test>", want{verb: RCPT, local: "a", domain: "b.test"}},
		{"postmaster without a domain", "RCPT TO:<postmaster>", want{verb: RCPT, local: "postmaster"}},
		{"postmaster in any case", "RCPT TO:<PostMaster>", want{verb: RCPT, local: "PostMaster"}},
		{"UTF-8 recipient: MAIL decides", "RCPT TO:<jörg@b.test>", want{verb: RCPT, local: "jörg", domain: "b.test"}},
		{"quoted recipient", `RCPT TO:<"a> NOTIFY=NEVER"@b.test>`, want{verb: RCPT, local: `"a> NOTIFY=NEVER"`, domain: "b.test"}},
		{"all of RCPT", "RCPT TO:<a@b.test> NOTIFY=SUCCESS,failure,DELAY ORCPT=rfc822;a+40b.test RRVS=2014-04-03T23:01:00Z;C",
			want{verb: RCPT, local: "a", domain: "b.test", params: rcptParams}},
		{"NOTIFY=NEVER", "RCPT TO:<a@b.test> NOTIFY=NEVER", want{verb: RCPT, local: "a", domain: "b.test", params: ParamNotify}},

		{"DATA", "DATA", want{verb: DATA}},
		{"trailing blanks", "DATA  ", want{verb: DATA}},
		{"RSET", "RSET ", want{verb: RSET}},
		{"QUIT", "quit ", want{verb: QUIT}},
		{"NOOP", "NOOP", want{verb: NOOP}},
		{"NOOP with text", "NOOP any thing", want{verb: NOOP, arg: "any thing"}},
		{"STARTTLS", "STARTTLS", want{verb: STARTTLS}},
		{"HELP", "HELP MAIL", want{verb: HELP, arg: "MAIL"}},
		{"VRFY", "VRFY Some One", want{verb: VRFY, arg: "Some One"}},
		{"EXPN", "EXPN list", want{verb: EXPN, arg: "list"}},
		{"ETRN", "ETRN b.test", want{verb: ETRN, arg: "b.test"}},
		{"AUTH", "AUTH PLAIN AGEAYg==", want{verb: AUTH, arg: "PLAIN AGEAYg=="}},
		{"XCLIENT", "XCLIENT ADDR=192.0.2.1", want{verb: XCLIENT, arg: "ADDR=192.0.2.1"}},
		{"XFORWARD", "XFORWARD ADDR=192.0.2.1", want{verb: XFORWARD, arg: "ADDR=192.0.2.1"}},
		{"BDAT", "BDAT 1000", want{verb: BDAT, size: 1000}},
		{"BDAT LAST", "bdat 1000 last ", want{verb: BDAT, size: 1000, last: true}},
		{"BDAT of nothing", "BDAT 0 LAST", want{verb: BDAT, last: true}},
		{"BDAT of 33 bits", "BDAT 4294967296", want{verb: BDAT, size: 1 << 32}},
		{"BDAT of 63 bits", "BDAT 9223372036854775807 LAST", want{verb: BDAT, size: 1<<63 - 1, last: true}},
	}
	for _, tt := range tests {
		c, err := Line([]byte(tt.in))
		got := want{c.Verb, string(c.Path.Local), string(c.Path.Domain), string(c.Arg), c.Params, c.Size, c.Last}
		if err != nil || got != tt.want {
			t.Errorf("%s: Line(%q) = %+v, %v, want %+v", tt.name, tt.in, got, err, tt.want)
		}
	}
}

func TestLineRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		verb     Verb
		want     string // code and enhanced code
	}{
		{"nothing", "", Unknown, "500 5.5.2"},
		{"blank", " ", Unknown, "500 5.5.2"},
		{"unknown verb", "SEND FROM:<a@b>", Unknown, "500 5.5.2"},
		{"longer verb", "STARTTLSFOO", Unknown, "500 5.5.2"},
		{"very long verb", strings.Repeat("x", 4000), Unknown, "500 5.5.2"},
		{"blank first", " MAIL FROM:<a@b>", Unknown, "500 5.5.2"},
		{"tab behind the verb", "MAIL\tFROM:<a@b>", Unknown, "500 5.5.2"},
		{"NUL first", "\x00MAIL FROM:<a@b>", Unknown, "500 5.5.2"},
		{"TLS record", "\x16\x03\x01\x02", Unknown, "500 5.5.2"},
		{"long s is no S", "R\u017FET", Unknown, "500 5.5.2"},
		{"GET", "GET / HTTP/1.1", HTTP, "500 5.5.2"},
		{"POST", "post /", HTTP, "500 5.5.2"},
		{"CONNECT", "CONNECT b.test:25 HTTP/1.1", HTTP, "500 5.5.2"},
		{"Host:", "Host: b.test", HTTP, "500 5.5.2"},
		{"User-Agent:", "User-Agent: x", HTTP, "500 5.5.2"},

		{"EHLO alone", "EHLO", EHLO, "501 5.5.4"},
		{"EHLO with two names", "EHLO a b", EHLO, "501 5.5.4"},
		{"EHLO of 256 octets", "EHLO " + strings.Repeat("x", 256), EHLO, "501 5.5.4"},
		{"EHLO with 8-bit octets", "EHLO m\xFCll", EHLO, "501 5.5.2"},
		{"EHLO with NUL", "EHLO a\x00b", EHLO, "501 5.5.2"},
		{"EHLO with bare CR", "EHLO a\rMAIL", EHLO, "501 5.5.2"},
		{"EHLO with bare LF", "EHLO a\nMAIL", EHLO, "501 5.5.2"},
		{"DATA with an argument", "DATA now", DATA, "501 5.5.4"},
		{"DATA with a tab", "DATA \t", DATA, "501 5.5.2"},
		{"RSET with an argument", "RSET x", RSET, "501 5.5.4"},
		{"QUIT with an argument", "QUIT x", QUIT, "501 5.5.4"},
		{"STARTTLS with an argument", "STARTTLS x", STARTTLS, "501 5.5.4"},
		{"NOOP with a control", "NOOP \x1b[2J", NOOP, "501 5.5.2"},
		{"VRFY without an argument", "VRFY", VRFY, "501 5.5.4"},
		{"VRFY with 8-bit octets", "VRFY jörg", VRFY, "501 5.5.2"},

		{"MAIL alone", "MAIL", MAIL, "501 5.5.2"},
		{"MAIL without FROM", "MAIL <a@b>", MAIL, "501 5.5.2"},
		{"MAIL TO", "MAIL TO:<a@b>", MAIL, "501 5.5.2"},
		{"two blanks before FROM", "MAIL  FROM:<a@b>", MAIL, "501 5.5.2"},
		{"blank before the colon", "MAIL FROM :<a@b>", MAIL, "501 5.5.2"},
		{"no angle brackets", "MAIL FROM:a@b", MAIL, "501 5.5.2"},
		{"nothing behind the colon", "MAIL FROM:", MAIL, "501 5.5.2"},
		{"tab behind the colon", "MAIL FROM:\t<a@b>", MAIL, "501 5.5.2"},
		{"display name", "MAIL FROM:A <a@b>", MAIL, "501 5.5.2"},
		{"brackets twice", "MAIL FROM:<<a@b>>", MAIL, "553 5.1.7"},
		{"one bracket too many", "MAIL FROM:<a@b>>", MAIL, "501 5.5.2"},
		{"second path", "MAIL FROM:<a@b><c@d>", MAIL, "501 5.5.2"},
		{"second path behind a blank", "MAIL FROM:<a@b> <c@d>", MAIL, "501 5.5.4"},
		{"no closing bracket", "MAIL FROM:<a@b", MAIL, "553 5.1.7"},
		{"blank in the path", "MAIL FROM:<a@b >", MAIL, "553 5.1.7"},
		{"trailing dot", "MAIL FROM:<a@b.test.>", MAIL, "553 5.1.7"},
		{"NUL in the path", "MAIL FROM:<a\x00@b>", MAIL, "553 5.1.7"},
		{"bare CR in the path", "MAIL FROM:<a@b\r>", MAIL, "553 5.1.7"},
		{"broken UTF-8", "MAIL FROM:<j\xF6rg@b> SMTPUTF8", MAIL, "553 5.1.7"},
		{"route literal hides an address", "MAIL FROM:<@[v@blocked.example> X]:a@good.example>", MAIL, "553 5.1.7"},
		{"route literal hides a parameter", "MAIL FROM:<@[x> SIZE=1]:a@good.example>", MAIL, "553 5.1.7"},
		{"route literal hides a command", "MAIL FROM:<@[x\nRCPT TO:<v@w>]:a@good.example>", MAIL, "553 5.1.7"},
		{"route literal with a NUL", "RCPT TO:<@[\x00]:a@good.example>", RCPT, "553 5.1.3"},
		{"sender without a domain", "MAIL FROM:<postmaster>", MAIL, "553 5.1.7"},
		{"UTF-8 without SMTPUTF8", "MAIL FROM:<jörg@b.test>", MAIL, "553 5.6.7"},
		{"UTF-8 in the route without SMTPUTF8", "MAIL FROM:<@bücher.test:a@b.test>", MAIL, "553 5.6.7"},

		{"parameter without a blank", "MAIL FROM:<a@b>SIZE=1", MAIL, "501 5.5.2"},
		{"tab before a parameter", "MAIL FROM:<a@b>\tSIZE=1", MAIL, "501 5.5.2"},
		{"tab between parameters", "MAIL FROM:<a@b> SIZE=1\tBODY=7BIT", MAIL, "501 5.5.4"},
		{"NUL in a parameter", "MAIL FROM:<a@b> SIZE=1\x00", MAIL, "501 5.5.4"},
		{"bare LF in a parameter", "MAIL FROM:<a@b> ENVID=a\nRSET", MAIL, "501 5.5.4"},
		{"8-bit octet in a parameter", "MAIL FROM:<a@b> ENVID=\xFC", MAIL, "501 5.5.4"},
		{"unknown parameter", "MAIL FROM:<a@b> X-FOO=1", MAIL, "555 5.5.4"},
		{"AUTH with broken xtext", "MAIL FROM:<a@b> AUTH=a+4x", MAIL, "501 5.5.4"},
		{"AUTH on RCPT", "RCPT TO:<a@b> AUTH=<>", RCPT, "555 5.5.4"},
		{"XVERP is not offered", "MAIL FROM:<a@b> XVERP", MAIL, "555 5.5.4"},
		{"RCPT's parameter on MAIL", "MAIL FROM:<a@b> NOTIFY=NEVER", MAIL, "555 5.5.4"},
		{"repeated", "MAIL FROM:<a@b> SIZE=1 SIZE=1", MAIL, "501 5.5.4"},
		{"repeated in another case", "MAIL FROM:<a@b> SIZE=1 size=2", MAIL, "501 5.5.4"},
		{"equals sign in the value", "MAIL FROM:<a@b> ENVID=a=b", MAIL, "501 5.5.4"},
		{"no keyword", "MAIL FROM:<a@b> =1", MAIL, "501 5.5.4"},
		{"keyword begins with a hyphen", "MAIL FROM:<a@b> -SIZE=1", MAIL, "501 5.5.4"},
		{"keyword with an underscore", "MAIL FROM:<a@b> S_ZE=1", MAIL, "501 5.5.4"},
		{"SIZE without a value", "MAIL FROM:<a@b> SIZE", MAIL, "501 5.5.4"},
		{"SIZE with an empty value", "MAIL FROM:<a@b> SIZE=", MAIL, "501 5.5.4"},
		{"SIZE negative", "MAIL FROM:<a@b> SIZE=-1", MAIL, "501 5.5.4"},
		{"SIZE of 64 bits", "MAIL FROM:<a@b> SIZE=9223372036854775808", MAIL, "501 5.5.4"},
		{"SIZE of 20 nines", "MAIL FROM:<a@b> SIZE=99999999999999999999", MAIL, "501 5.5.4"},
		{"SIZE of 21 digits", "MAIL FROM:<a@b> SIZE=000000000000000000001", MAIL, "501 5.5.4"},
		{"BODY twice", "MAIL FROM:<a@b> BODY=BINARYMIME BODY=7BIT", MAIL, "501 5.5.4"},
		{"BODY twice the other way", "MAIL FROM:<a@b> BODY=7BIT BODY=BINARYMIME", MAIL, "501 5.5.4"},
		{"BDAT without a size", "BDAT", BDAT, "501 5.5.4"},
		{"BDAT LAST without a size", "BDAT LAST", BDAT, "501 5.5.4"},
		{"BDAT of 64 bits", "BDAT 9223372036854775808", BDAT, "501 5.5.4"},
		{"BDAT of a negative size", "BDAT -1 LAST", BDAT, "501 5.5.4"},
		{"BDAT with a sign", "BDAT +1 LAST", BDAT, "501 5.5.4"},
		{"BDAT in hexadecimal", "BDAT 0x10", BDAT, "501 5.5.4"},
		{"BDAT with another word", "BDAT 10 FIRST", BDAT, "501 5.5.4"},
		{"BDAT with more words", "BDAT 10 LAST 10", BDAT, "501 5.5.4"},
		{"BDAT with two blanks", "BDAT 10  LAST", BDAT, "501 5.5.4"},
		{"BDAT with a tab", "BDAT 10\tLAST", BDAT, "501 5.5.4"},
		{"BDAT with octets", "BDAT \x00 4294967296\xFF", BDAT, "501 5.5.4"},
		{"SMTPUTF8 with a value", "MAIL FROM:<a@b> SMTPUTF8=1", MAIL, "501 5.5.4"},
		{"SMTPUTF8 with an empty value", "MAIL FROM:<a@b> SMTPUTF8=", MAIL, "501 5.5.4"},
		{"RET with another word", "MAIL FROM:<a@b> RET=ALL", MAIL, "501 5.5.4"},
		{"ENVID with broken xtext", "MAIL FROM:<a@b> ENVID=a+2", MAIL, "501 5.5.4"},
		{"ENVID with xtext of no hex digits", "MAIL FROM:<a@b> ENVID=a+2g", MAIL, "501 5.5.4"},
		{"ENVID of 101 octets", "MAIL FROM:<a@b> ENVID=" + strings.Repeat("x", 101), MAIL, "501 5.5.4"},
		{"BY without a mode", "MAIL FROM:<a@b> BY=60", MAIL, "501 5.5.4"},
		{"BY without a time", "MAIL FROM:<a@b> BY=-;R", MAIL, "501 5.5.4"},
		{"BY of ten digits", "MAIL FROM:<a@b> BY=1234567890;R", MAIL, "501 5.5.4"},
		{"MT-PRIORITY of ten", "MAIL FROM:<a@b> MT-PRIORITY=10", MAIL, "501 5.5.4"},
		{"MT-PRIORITY of minus nought", "MAIL FROM:<a@b> MT-PRIORITY=-0", MAIL, "501 5.5.4"},
		{"HOLDFOR and HOLDUNTIL", "MAIL FROM:<a@b> HOLDFOR=1 HOLDUNTIL=2030-01-02T03:04:05Z", MAIL, "501 5.5.4"},
		{"HOLDUNTIL no date", "MAIL FROM:<a@b> HOLDUNTIL=tomorrow", MAIL, "501 5.5.4"},

		{"RCPT FROM", "RCPT FROM:<a@b>", RCPT, "501 5.5.2"},
		{"null recipient", "RCPT TO:<>", RCPT, "553 5.1.3"},
		{"recipient without a domain", "RCPT TO:<root>", RCPT, "553 5.1.3"},
		{"quoted postmaster without a domain", `RCPT TO:<"postmaster">`, RCPT, "553 5.1.3"},
		{"postmaster with a long s", "RCPT TO:<po\u017Ftmaster>", RCPT, "553 5.1.3"},
		{"bad recipient", "RCPT TO:<a@b@c>", RCPT, "553 5.1.3"},
		{"MAIL's parameter on RCPT", "RCPT TO:<a@b> SIZE=1", RCPT, "555 5.5.4"},
		{"NOTIFY NEVER and more", "RCPT TO:<a@b> NOTIFY=NEVER,DELAY", RCPT, "501 5.5.4"},
		{"NOTIFY twice the same", "RCPT TO:<a@b> NOTIFY=DELAY,DELAY", RCPT, "501 5.5.4"},
		{"NOTIFY with an empty word", "RCPT TO:<a@b> NOTIFY=DELAY,", RCPT, "501 5.5.4"},
		{"ORCPT without a type", "RCPT TO:<a@b> ORCPT=a@b", RCPT, "501 5.5.4"},
		{"ORCPT with an empty address", "RCPT TO:<a@b> ORCPT=rfc822;", RCPT, "501 5.5.4"},
		{"ORCPT of 501 octets", "RCPT TO:<a@b> ORCPT=rfc822;" + strings.Repeat("x", 494), RCPT, "501 5.5.4"},
		{"RRVS no date", "RCPT TO:<a@b> RRVS=now", RCPT, "501 5.5.4"},
		{"RRVS with another action", "RCPT TO:<a@b> RRVS=2014-04-03T23:01:00Z;X", RCPT, "501 5.5.4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Line([]byte(tt.in))
			var e *Error
			if !errors.As(err, &e) || !strings.HasPrefix(e.Reply(), tt.want+" ") || c.Verb != tt.verb {
				t.Fatalf("Line(%.60q) = %v, %v, want %v, %s", tt.in, c.Verb, err, tt.verb, tt.want)
			}
			if c.Path.Raw != nil || c.Arg != nil || c.Params != 0 || c.Size != 0 {
				t.Errorf("Line(%.60q): half read: %+v", tt.in, c)
			}
		})
	}
}

func TestBlockedSenderInQuotesIsForwardedAsItStands(t *testing.T) {
	const line = `MAIL FROM:<"victim@blocked.example> ENVID=a"@good.example>`
	c := testkit.Value(Line([]byte(line)))(t)
	if got, want := "MAIL FROM:"+string(c.Path.Raw), line; got != want {
		t.Errorf("raw path gives %s, want %s", got, want)
	}
	a := testkit.Value(addr.Parse(string(c.Path.Raw)))(t)
	testkit.Equal(t, fmt.Sprintf("Parse(%s) = %s, want domain good.example", c.Path.Raw, a), a.Domain(), "good.example")
	testkit.Equal(t, "parameters", c.Params, 0)
}

func TestUnannounced(t *testing.T) {
	announced := func(keyword string) bool { return keyword == "SIZE" || keyword == "DSN" }
	tests := []struct {
		name   string
		params Params
		want   *Error
	}{
		{"none", 0, nil},
		{"announced", ParamSize | ParamRet | ParamEnvID | ParamNotify | ParamOrcpt, nil},
		{"one is not", ParamSize | ParamSMTPUTF8, errUnknown},
		{"bit without a meaning", 1 << 15, errUnknown},
	}
	for _, tt := range tests {
		testkit.Equal(t, tt.name, tt.params.Unannounced(announced), tt.want)
	}
	if got := (mailParams | rcptParams).Unannounced(func(string) bool { return true }); got != nil {
		t.Errorf("all announced: %v", got)
	}
}

func TestParamsTableFollowsTheBits(t *testing.T) {
	for keyword, p := range map[string]Params{
		"SIZE": ParamSize, "BODY": ParamBody, "SMTPUTF8": ParamSMTPUTF8, "RET": ParamRet, "ENVID": ParamEnvID,
		"NOTIFY": ParamNotify, "ORCPT": ParamOrcpt, "BY": ParamBy, "MT-PRIORITY": ParamMTPriority, "RRVS": ParamRRVS,
		"HOLDFOR": ParamHoldFor, "HOLDUNTIL": ParamHoldUntil,
	} {
		if _, got := paramOf([]byte(keyword)); got != p {
			t.Errorf("paramOf(%s) = %b, want %b", keyword, got, p)
		}
	}
}

func TestRepliesAreOnePrintableLine(t *testing.T) {
	for _, e := range []*Error{errVerb, errControl, errMail, errRcpt, errName, errArg, errNoArg, errSender,
		errRecipient, errParam, errUnknown, ErrSMTPUTF8} {
		reply := e.Reply()
		if len(reply) > 120 || strings.ContainsFunc(reply, func(r rune) bool { return r < ' ' || r > '~' }) ||
			e.Code/100 != 5 || !strings.HasPrefix(e.Enhanced, "5.") {
			t.Errorf("%q is no reply", reply)
		}
	}
}

func TestVerbNames(t *testing.T) {
	for v := EHLO; v < HTTP; v++ {
		if got := verbOf([]byte(strings.ToLower(verbNames[v]))); got != v {
			t.Errorf("verbOf(%s) = %v", verbNames[v], got)
		}
	}
}

func TestLineDoesNotAllocate(t *testing.T) {
	for _, line := range []string{
		`MAIL FROM:<"Odd One"@Bulk.TEST> SIZE=1234 BODY=8BITMIME RET=HDRS ENVID=abc`,
		"RCPT TO:<promo@bulk.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;promo@bulk.test",
		"EHLO mail.bulk.test", "DATA", "NONSENSE", "MAIL FROM:<a@b> X=1",
	} {
		b := []byte(line)
		testkit.Equal(t, fmt.Sprintf("Line(%q): allocations", line), testing.AllocsPerRun(100, func() { _, _ = Line(b) }), 0)
	}
}

func ExampleLine() {
	c, err := Line([]byte(`MAIL FROM:<"a> SIZE=1"@Bulk.TEST> SIZE=2048`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(verbNames[c.Verb], string(c.Path.Domain), c.Size)

	_, err = Line([]byte("MAIL FROM:promo@bulk.test"))
	var refused *Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Reply())
	}
	// Output:
	// MAIL Bulk.TEST 2048
	// 501 5.5.2 Syntax: MAIL FROM:<address>
}

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
		if want := strings.Trim(string(line[len(verbNames[c.Verb]):]), " "); string(c.Arg) != want {
			t.Fatalf("Line(%q): argument %q, want %q", line, c.Arg, want)
		}
		return
	}
	m := slowLine.FindStringSubmatch(testkit.Latin1(line))
	if m == nil {
		t.Fatalf("Line(%q) = %+v; the second parser refuses it", line, c)
	}
	if testkit.Octets(m[3]) != string(c.Path.Raw) || testkit.Octets(m[4]) != string(c.Path.Local) || testkit.Octets(m[5]) != string(c.Path.Domain) ||
		!strings.EqualFold(m[1]+m[2], verbNames[c.Verb]) {
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

// TestWithoutBody: what a quoted local-part or another parameter holds is no parameter.
func TestWithoutBody(t *testing.T) {
	for line, want := range map[string]string{
		`MAIL FROM:<a@b.test> BODY=8BITMIME`:                            `MAIL FROM:<a@b.test>`,
		`MAIL FROM: <a@b.test>  body=7bit RET=HDRS`:                     `MAIL FROM: <a@b.test> RET=HDRS`,
		`MAIL FROM:<"a BODY=7BIT b"@b.test>`:                            `MAIL FROM:<"a BODY=7BIT b"@b.test>`,
		`MAIL FROM:<"a> BODY=7BIT b"@b.test> SIZE=1 BODY=7BIT`:          `MAIL FROM:<"a> BODY=7BIT b"@b.test> SIZE=1`,
		`MAIL FROM:<a@b.test> BODY=7BIT AUTH=<> ENVID=a>b`:              `MAIL FROM:<a@b.test> AUTH=<> ENVID=a>b`,
		`MAIL FROM:<> SIZE=1 BODY=7BIT `:                                `MAIL FROM:<> SIZE=1 `,
		`MAIL FROM:<@c.test:"\" BODY=7BIT b"@b.test> BODY=8BITMIME x=y`: `MAIL FROM:<@c.test:"\" BODY=7BIT b"@b.test> x=y`,
	} {
		testkit.Equal(t, line, string(WithoutBody([]byte(line))), want)
		testkit.Equal(t, want, string(WithoutBody([]byte(want))), want)
	}
}
