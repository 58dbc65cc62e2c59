package session

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
)

// mirrored has the extensions that a relay of whole lines and unchanged data can offer if
// upstream does. CHUNKING, BINARYMIME and AUTH change the grammar of the wire and have their
// own rules. An unknown extension may change it too, so it is not offered.
var mirrored = []string{
	"PIPELINING", "SIZE", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN", "DELIVERBY",
	"MT-PRIORITY", "LIMITS", "RRVS", "FUTURERELEASE", "HELP",
}

// probeTime is how long EHLO waits for an upstream that has not been reached since the start.
const probeTime = 10 * time.Second

// hello answers EHLO and HELO. Both end a transaction (RFC 5321, section 4.1.4).
func (s *session) hello(cmd parse.Command) {
	if !s.answerQueue() || !s.countJunk() || !s.resetUpstream() {
		return
	}
	s.reset()
	if esmtp := cmd.Verb == parse.EHLO; esmtp != s.esmtp || string(cmd.Arg) != s.rules.Client.Helo {
		if !s.rules.Client.Authenticated {
			s.closeUpstream() // upstream was told another name, and that cannot be changed
		}
		s.esmtp, s.rules.Client.Helo = esmtp, string(cmd.Arg)
	}
	s.greeted = true
	if !s.esmtp {
		s.offered = upstream.Caps{}
		s.reply("250 " + s.settings.Hostname + "\r\n")
		return
	}
	caps, ok := s.upstreamCaps()
	if !ok {
		// A reply without extensions would be final: mail that needs SMTPUTF8 would bounce.
		// After any code but 421 clients fall back to HELO.
		s.end("upstream", replyNotReached)
		return
	}
	s.offered = s.offer(caps)
	var b strings.Builder
	name := s.settings.Hostname
	for _, line := range s.offered.Lines {
		b.WriteString("250-" + name + "\r\n")
		name = line
	}
	if s.offersTLS() {
		b.WriteString("250-" + name + "\r\n")
		name = "STARTTLS"
	}
	b.WriteString("250 " + name + "\r\n")
	s.reply(b.String())
}

// resetUpstream ends upstream's transaction when the client greets again.
func (s *session) resetUpstream() bool {
	if s.up == nil || !s.up.tx {
		return true
	}
	r, err := s.exchange([]byte("RSET"), 250)
	switch {
	case err != nil:
		s.lose("command", err)
	case r.Code == 421:
		s.relay421(r)
		return false
	case r.Code >= 300:
		s.abandonUpstream()
	default:
		s.up.tx = false
	}
	return true
}

// upstreamCaps returns upstream's extensions. ok is false if upstream has never been reached.
func (s *session) upstreamCaps() (caps upstream.Caps, ok bool) {
	if s.up != nil {
		return s.up.Caps, true
	}
	if caps, ok := s.upstream.Caps(); ok {
		return caps, true
	}
	ctx, cancel := context.WithTimeout(s.hard, probeTime)
	defer cancel()
	if err := s.upstream.Probe(ctx); err != nil {
		s.upstreamFailed("probe", err)
	}
	return s.upstream.Caps()
}

// offer returns the extensions of upstream that the client may use.
func (s *session) offer(caps upstream.Caps) upstream.Caps {
	var o upstream.Caps
	for _, line := range caps.Lines {
		word := strings.ToUpper(keyword(line))
		switch {
		case word == "CHUNKING" && s.settings.Chunking, word == "BINARYMIME" && s.settings.Chunking && caps.Has("CHUNKING"):
			line = word
		case word == "AUTH" && s.mechanisms(line, caps) != "":
			line = "AUTH " + s.mechanisms(line, caps)
		case word == "REQUIRETLS" && caps.TLS && s.overTLS: // RFC 8689: the whole way is TLS
		case !slices.Contains(mirrored, word):
			continue
		case word == "LIMITS" && s.settings.Protocol == upstream.LMTP:
			continue // its RCPTMAX is not ours: see rcpt
		case word == "SIZE":
			o.Size = s.settings.Limits.MessageSize
			if caps.Size > 0 {
				o.Size = min(o.Size, max(1, caps.Size-s.traceRoom()))
			}
			line = "SIZE " + strconv.FormatInt(o.Size, 10)
		}
		o.Lines = append(o.Lines, line)
	}
	return o
}

// keyword returns the first word of an EHLO line.
func keyword(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// sizeLimit returns the size of the largest message that the client may send, in octets.
func (s *session) sizeLimit() int64 {
	if s.offered.Size > 0 {
		return s.offered.Size
	}
	return s.settings.Limits.MessageSize
}
