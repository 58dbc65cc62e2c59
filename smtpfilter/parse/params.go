package parse

import (
	"bytes"
	"math/bits"

	"blockd/mail/addr"
)

// Params is a set of MAIL or RCPT parameters.
type Params uint16

// The parameters that Line understands, each on its command only; any other
// one is refused with 555.
const (
	ParamSize       Params = 1 << iota // SIZE=n, RFC 1870; MAIL
	ParamBody                          // BODY=7BIT or 8BITMIME, RFC 6152; MAIL
	ParamSMTPUTF8                      // RFC 6531; MAIL
	ParamRet                           // RET=FULL or HDRS, RFC 3461; MAIL
	ParamEnvID                         // ENVID=xtext, RFC 3461; MAIL
	ParamNotify                        // NOTIFY=..., RFC 3461; RCPT
	ParamOrcpt                         // ORCPT=type;xtext, RFC 3461; RCPT
	ParamBy                            // BY=seconds;mode, RFC 2852; MAIL
	ParamMTPriority                    // MT-PRIORITY=-9..9, RFC 6710; MAIL
	ParamRRVS                          // RRVS=time, RFC 7293; RCPT
	ParamHoldFor                       // HOLDFOR=seconds, RFC 4865; MAIL
	ParamHoldUntil                     // HOLDUNTIL=time, RFC 4865; MAIL
	ParamBinary                        // BODY=BINARYMIME, RFC 3030, in place of ParamBody; MAIL
	ParamAuth                          // AUTH=xtext, RFC 4954; MAIL
	ParamRequireTLS                    // REQUIRETLS, RFC 8689; MAIL
)

const (
	mailParams = ParamSize | ParamBody | ParamSMTPUTF8 | ParamRet | ParamEnvID | ParamBy |
		ParamMTPriority | ParamHoldFor | ParamHoldUntil | ParamAuth | ParamRequireTLS
	rcptParams = ParamNotify | ParamOrcpt | ParamRRVS
)

// params is the table of the parameters, in the order of their bits. A nil valid
// means that the parameter has no value.
var params = [...]struct {
	keyword   string
	extension string // EHLO keyword that must have been announced
	valid     func(value []byte) bool
}{
	{"SIZE", "SIZE", validSize},
	{"BODY", "8BITMIME", validBody},
	{"SMTPUTF8", "SMTPUTF8", nil},
	{"RET", "DSN", validRet},
	{"ENVID", "DSN", validEnvID},
	{"NOTIFY", "DSN", validNotify},
	{"ORCPT", "DSN", validOrcpt},
	{"BY", "DELIVERBY", validBy},
	{"MT-PRIORITY", "MT-PRIORITY", validPriority},
	{"RRVS", "RRVS", validRRVS},
	{"HOLDFOR", "FUTURERELEASE", validHoldFor},
	{"HOLDUNTIL", "FUTURERELEASE", validDate},
	{"", "BINARYMIME", nil}, // a value of BODY, not a keyword
	{"AUTH", "AUTH", validAuth},
	{"REQUIRETLS", "REQUIRETLS", nil},
}

// Has reports whether all of q are in p.
func (p Params) Has(q Params) bool { return p&q == q }

// Unannounced returns the refusal of the first parameter in p whose extension the server has not announced, or nil.
// announced gets EHLO keywords in capitals: "SIZE", "8BITMIME", "SMTPUTF8", "DSN", "DELIVERBY", "MT-PRIORITY", "RRVS",
// "FUTURERELEASE", "BINARYMIME", "AUTH", "REQUIRETLS". BODY=7BIT and 8BITMIME need no announcement: clients say so
// unasked, Postfix takes it, and WithoutBody leaves it out for a server that does not.
func (p Params) Unannounced(announced func(keyword string) bool) *Error {
	for p &^= ParamBody; p != 0; p &= p - 1 {
		if i := bits.TrailingZeros16(uint16(p)); i >= len(params) || !announced(params[i].extension) {
			return errUnknown
		}
	}
	return nil
}

// WithoutBody is a line of MAIL, which Line has read, without its parameter BODY. It writes into line.
func WithoutBody(line []byte) []byte {
	path := line[max(bytes.IndexByte(line, '<'), 0):]
	_, rest, err := addr.ParsePath(path) // a quoted local-part may hold anything
	if err != nil {
		return line
	}
	for len(rest) > 0 {
		word := bytes.TrimLeft(rest, " ")
		end := len(word)
		if i := bytes.IndexByte(word, ' '); i >= 0 {
			end = i
		}
		if len(word) > len("BODY=") && bytes.EqualFold(word[:len("BODY=")], []byte("BODY=")) {
			return append(line[:len(line)-len(rest)], word[end:]...)
		}
		rest = word[end:]
	}
	return line
}

// readParams reads " KEYWORD=value KEYWORD ..." (RFC 5321, section 4.1.2). Only the
// allowed parameters may stand here, each once.
func (c *Command) readParams(text []byte, allowed Params) error {
	for text = bytes.TrimLeft(text, " "); len(text) > 0; text = bytes.TrimLeft(text, " ") {
		word := text
		if i := bytes.IndexByte(text, ' '); i >= 0 {
			word = text[:i]
		}
		if err := c.addParam(word, allowed); err != nil {
			return err
		}
		text = text[len(word):]
	}
	if c.Params.Has(ParamHoldFor | ParamHoldUntil) {
		return errParam // RFC 4865, section 4: one or the other
	}
	return nil
}

// addParam reads one parameter, KEYWORD or KEYWORD=value, that is not there yet.
func (c *Command) addParam(word []byte, allowed Params) error {
	keyword, value, hasValue := bytes.Cut(word, []byte("="))
	if !isKeyword(keyword) || hasValue && !isValue(value) {
		return errParam
	}
	i, p := paramOf(keyword)
	if p&allowed == 0 {
		return errUnknown
	}
	valid := params[i].valid
	if hasValue != (valid != nil) || hasValue && !valid(value) {
		return errParam
	}
	if p == ParamBody && isWord(value, "BINARYMIME") {
		p = ParamBinary
	}
	if c.Params.Has(p) || (c.Params | p).Has(ParamBody|ParamBinary) {
		return errParam
	}
	c.Params |= p
	if p == ParamSize {
		c.Size, _ = parseSize(value)
	}
	return nil
}

// paramOf finds a parameter by its keyword; p is 0 for an unknown one.
func paramOf(keyword []byte) (i int, p Params) {
	for i := range params {
		if len(keyword) == len(params[i].keyword) && bytes.EqualFold(keyword, []byte(params[i].keyword)) {
			return i, 1 << i
		}
	}
	return 0, 0
}

// isKeyword reports whether b is an esmtp-keyword.
func isKeyword(b []byte) bool {
	for i, c := range b {
		if !isAlnum(c) && (c != '-' || i == 0) {
			return false
		}
	}
	return len(b) > 0
}

// isValue reports whether b is an esmtp-value: no "=" and no octet above 127.
func isValue(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == '=' || c > '~' {
			return false
		}
	}
	return len(b) > 0
}

func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
