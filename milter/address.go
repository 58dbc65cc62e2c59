package milter

import (
	"strings"

	"blockd/addr"
)

// What a mail server hands over is the argument of MAIL and RCPT as the client wrote
// it, less the angle brackets if there are both, and beside it, in a macro, what the
// server made of it. The first alone would let pass whoever writes a comment in front
// of an address, the second alone what the server has changed.

// reversePaths returns the senders to be looked up, one or two, from the argument
// of MAIL and the macro {mail_addr}. Of two spellings of one sender it is the
// second. "" is the null sender. Where neither is an address it is the argument,
// which is none then either.
func reversePaths(argument, macro string) (first, second string) {
	argument, macro = quoted(argument), quoted(macro)
	if macro == argument || macro == "" {
		return argument, ""
	}
	if argument == "" {
		return macro, ""
	}
	theirs, err := addr.Parse(macro)
	if err != nil {
		return argument, ""
	}
	written, err := addr.Parse(argument)
	if err != nil || written == theirs || written.Domain() == "" {
		return macro, ""
	}
	return macro, argument
}

// quoted puts a local-part in quotes whose one fault is its dots, "a..b@x.example":
// providers of mobile mail have handed such addresses out, Sendmail takes them, and
// its macro has them without. Other text stays as it is.
func quoted(address string) string {
	local, domain, ok := strings.Cut(address, "@")
	dots := strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, "..")
	if !ok || !dots || strings.ContainsAny(local, " \t\"(),:;<>[\\]") {
		return address
	}
	return `"` + local + `"@` + domain
}

// forwardPath returns the recipient that is decided about, from the argument of
// RCPT and the macro {rcpt_addr}: what the client has written, if that is an address
// by the strict grammar. <postmaster> has no domain and is one; other names
// without are what the server makes of them.
func forwardPath(argument, macro string) string {
	written, err := addr.Parse(argument)
	if err == nil && written.Domain() != "" || macro == "" || macro == argument {
		return argument
	}
	theirs, failed := addr.Parse(macro)
	if failed != nil || err == nil && theirs.Domain() == "" {
		return argument
	}
	return macro
}

// asksUTF8 reports whether the parameters of MAIL have SMTPUTF8 (RFC 6531, section 3.4).
func asksUTF8(parameters string) bool {
	for p := range strings.FieldsSeq(parameters) {
		if strings.EqualFold(p, "SMTPUTF8") {
			return true
		}
	}
	return false
}
