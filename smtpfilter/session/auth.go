package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// forwardable has the SASL mechanisms that can be forwarded line by line. Three kinds are left
// out: mechanisms that may negotiate a security layer, whose octets we cannot read (GSSAPI,
// DIGEST-MD5, NTLM); mechanisms bound to the TLS channel, because there are two channels here
// (-PLUS); and EXTERNAL, which would lend our own certificate to every client.
var forwardable = []string{
	"PLAIN", "LOGIN", "CRAM-MD5", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "XOAUTH2",
}

// mechanisms returns the mechanisms of upstream's AUTH line to offer to the client. It returns
// "" unless both connections keep passwords secret.
func (s *session) mechanisms(line string, caps upstream.Caps) string {
	if s.settings.Auth != "forward" || !s.overTLS || !caps.TLS && !caps.Local {
		return ""
	}
	var offered []string
	for _, m := range strings.Fields(line)[1:] {
		if m = strings.ToUpper(m); slices.Contains(forwardable, m) {
			offered = append(offered, m)
		}
	}
	return strings.Join(offered, " ")
}

// readLine reads the next command. AUTH may be longer than other commands if it was offered.
func (s *session) readLine() ([]byte, error) {
	const verb = "AUTH "
	if s.rules.Client.Authenticated || !s.offered.Has("AUTH") {
		return s.in.Line()
	}
	for !s.in.Ready() && len(s.in.Buffered()) < len(verb) {
		if s.in.Fill() != nil {
			break // Line returns the same error
		}
	}
	if head := s.in.Buffered(); len(head) < len(verb) || !bytes.EqualFold(head[:len(verb)], []byte(verb)) {
		return s.in.Line()
	}
	s.widen()
	return s.in.AuthLine()
}

// maxRounds bounds the challenges of one AUTH. No mechanism has more than four.
const maxRounds = 16

// auth runs AUTH (RFC 4954). It forwards the exchange line by line up to upstream's result.
// The client's lines are not logged or stored, and their buffers are overwritten afterwards.
func (s *session) auth(line []byte, cmd parse.Command) {
	if !s.answerQueue() {
		return
	}
	word, initial, more := bytes.Cut(cmd.Arg, []byte(" "))
	mechanism := strings.ToUpper(string(word))
	switch {
	case !s.offered.Has("AUTH"):
		s.refuse(replyNotServed)
		return
	case s.rules.Client.Authenticated:
		s.refuse(replyAuthTwice)
		return
	case s.tx.open || s.tx.lost:
		s.refuse(replyAuthInMail)
		return
	case mechanism == "" || more && !isSASL(initial):
		s.refuse(replyBadAuth)
		return
	case !s.offers(mechanism):
		s.refuse(replyNoMechanism)
		return
	}
	s.widen()
	used := s.up.connection()
	if !s.answered(s.dial(replyNoAuthNow)) {
		return
	}
	r, err := s.sasl(line)
	if s.up.Conn == used && !judgesAuth(r) && s.wentAway(r, err) {
		if s.abandonUpstream(); !s.answered(s.dial(replyNoAuthNow)) {
			return
		}
		r, err = s.sasl(line)
	}
	for round := 0; err == nil && r.Code == 334; round++ {
		if round == maxRounds {
			s.abandonUpstream()
			s.end("protocol", replyTooManyErrors)
			return
		}
		if line = s.response(r); line == nil {
			return
		}
		r, err = s.sasl(line)
	}
	s.authResult(mechanism, r, err)
}

// offers reports whether the reply to EHLO offered a mechanism, named in capitals.
func (s *session) offers(mechanism string) bool {
	for _, line := range s.offered.Lines {
		if words := strings.Fields(line); words[0] == "AUTH" && slices.Contains(words[1:], mechanism) {
			return true
		}
	}
	return false
}

// sasl sends one line of the exchange and reads the answer. The connection must be at least as
// secret as the one whose AUTH was offered.
func (s *session) sasl(line []byte) (wire.Reply, error) {
	if !s.up.Caps.Has("AUTH") || !s.up.Caps.TLS && !s.up.Caps.Local {
		return wire.Reply{}, errNoAuth
	}
	r, err := s.exchange(line, 235)
	s.up.out = nil // larger than commands need
	return r, err
}

// judgesAuth reports whether a reply can only be the verdict on an AUTH (RFC 4954, section 6). Such an AUTH is not sent
// again: upstream would count a second failure, and may lock the user out.
func judgesAuth(r wire.Reply) bool { return r.Code == 432 || r.Code == 454 || r.Code/10 == 53 }

// errNoAuth reports that the connection does not offer AUTH, although an earlier one did.
var errNoAuth = errors.New("upstream does not offer AUTH any more")

// response forwards a challenge and reads the client's answer, which may be "*" for cancel.
// nil means that the exchange is over.
func (s *session) response(challenge wire.Reply) []byte {
	s.write(challenge.Raw)
	s.flush()
	s.in.Wipe()
	if s.finished {
		return nil
	}
	s.deadlines.await(s.settings.commandTimeout(), false)
	line, err := s.in.AuthLine()
	s.deadlines.arrived()
	switch {
	case errors.Is(err, wire.ErrLongLine):
		s.abandonUpstream() // upstream would wait for an answer that never comes
		s.refuse(replyLongSASL)
	case err != nil:
		s.abandonUpstream()
		s.lineFault(err)
	case !isSASL(line) && len(line) > 0 && string(line) != "*":
		s.abandonUpstream()
		s.refuse(replyBadSASL)
	default:
		return line
	}
	return nil
}

// isSASL reports whether text has only characters of base64. "=" stands for an empty initial
// response.
func isSASL(text []byte) bool {
	for _, c := range text {
		if c != '+' && c != '/' && c != '=' && !('0' <= c && c <= '9') && !('a' <= c|0x20 && c|0x20 <= 'z') {
			return false
		}
	}
	return len(text) > 0
}

// authResult answers AUTH with the result of the exchange.
func (s *session) authResult(mechanism string, r wire.Reply, err error) {
	switch {
	case errors.Is(err, errNoAuth):
		s.upstreamFailed("capability", err)
		s.reply(replyNoAuthNow)
	case err != nil:
		s.lose("command", err)
		s.reply(replyNoAuthNow)
	case r.Code == 235:
		s.rules.Client.Authenticated = true
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "client authenticated",
			s.logFields(slog.String("mechanism", mechanism))...)
		s.write(r.Raw)
	case r.Code == 421:
		s.relay421(r)
	default:
		if s.checker.LogsMore(s.client.Addr()) {
			s.log.LogAttrs(context.Background(), slog.LevelInfo, "authentication failed",
				s.logFields(slog.String("mechanism", mechanism), slog.Int("upstream_code", r.Code))...)
		}
		s.refuse(string(r.Raw))
	}
}
