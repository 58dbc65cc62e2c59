package milter

import (
	"strings"

	"blockd/mail/addr"
)

// A mail server sends two texts for an address: the argument of MAIL or RCPT as the client
// wrote it, without its angle brackets, and a macro with what the server made of it. Both are
// needed. By the argument alone, a client could hide a listed address behind a comment. By the
// macro alone, an address that the server has rewritten would escape.

// reversePaths returns the one or two senders to look up, from the argument of MAIL and the
// macro {mail_addr}. second is another spelling of the same sender, or "". first is "" for the
// null sender. If neither text is an address, first is the argument.
func reversePaths(argument, macro string) (first, second string) {
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

// forwardPath returns the recipient to decide about, from the argument of RCPT and the macro
// {rcpt_addr}. It is the argument if that is an address by the strict grammar, with a domain.
// <postmaster> without a domain also counts as one (RFC 5321, section 4.1.1.3). For other
// names without a domain it is the macro.
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
