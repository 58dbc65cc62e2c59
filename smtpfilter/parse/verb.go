package parse

// Verb is the command word, read without regard to case.
type Verb uint8

// The verbs. Line accepts every verb that it knows; which of them are served,
// and in which order, is the session's business. Unknown and HTTP come with an
// *Error always.
const (
	Unknown Verb = iota
	EHLO
	HELO
	LHLO
	MAIL
	RCPT
	DATA
	RSET
	NOOP
	VRFY
	EXPN
	HELP
	QUIT
	STARTTLS
	AUTH
	BDAT
	ETRN
	XCLIENT
	XFORWARD
	HTTP // GET, POST, CONNECT, "Host:" and similar words: a browser was sent here, close at once; PROXY: a load balancer that is not trusted
)

var verbNames = [...]string{
	Unknown: "unknown", EHLO: "EHLO", HELO: "HELO", LHLO: "LHLO", MAIL: "MAIL", RCPT: "RCPT",
	DATA: "DATA", RSET: "RSET", NOOP: "NOOP", VRFY: "VRFY", EXPN: "EXPN", HELP: "HELP",
	QUIT: "QUIT", STARTTLS: "STARTTLS", AUTH: "AUTH", BDAT: "BDAT", ETRN: "ETRN",
	XCLIENT: "XCLIENT", XFORWARD: "XFORWARD", HTTP: "HTTP",
}

// verbOf finds the verb of a command word.
func verbOf(word []byte) Verb {
	var buf [len("USER-AGENT:")]byte
	if len(word) > len(buf) {
		return Unknown
	}
	for i, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		buf[i] = c
	}
	switch string(buf[:len(word)]) {
	case "EHLO":
		return EHLO
	case "HELO":
		return HELO
	case "LHLO":
		return LHLO
	case "MAIL":
		return MAIL
	case "RCPT":
		return RCPT
	case "DATA":
		return DATA
	case "RSET":
		return RSET
	case "NOOP":
		return NOOP
	case "VRFY":
		return VRFY
	case "EXPN":
		return EXPN
	case "HELP":
		return HELP
	case "QUIT":
		return QUIT
	case "STARTTLS":
		return STARTTLS
	case "AUTH":
		return AUTH
	case "BDAT":
		return BDAT
	case "ETRN":
		return ETRN
	case "XCLIENT":
		return XCLIENT
	case "XFORWARD":
		return XFORWARD
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "HOST:", "USER-AGENT:", "PROXY":
		return HTTP
	}
	return Unknown
}
