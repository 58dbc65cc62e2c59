package session

import (
	"net/netip"
	"slices"
	"time"

	"blockd/policy"
)

// trusts reports whether a client is in a trusted network.
func (s Settings) trusts(client netip.Addr) bool {
	client = client.Unmap().WithZone("")
	return slices.ContainsFunc(s.Trusted, func(p netip.Prefix) bool { return p.Contains(client) })
}

// judge decides about the sender of MAIL together with the client. Of a trusted
// client nothing is asked; of one that has authenticated, if so configured, only
// whether its address is listed.
// utf8: MAIL has SMTPUTF8.
func (s *session) judge(checker *policy.Checker, reversePath string, utf8 bool) policy.Verdict {
	client := s.client.Addr()
	seen := policy.Seen{Helo: s.helo, Sender: reversePath, UTF8: utf8}
	switch {
	case s.trusted:
		client, reversePath, seen = netip.Addr{}, "", policy.Seen{}
	case s.authenticated && s.settings.SkipAuthenticated:
		reversePath, seen.Authenticated = "", true
	}
	v := checker.Envelope(client, reversePath)
	v.Seen = seen
	return v
}

// heard asks about the client before the greeting, where that is configured. One
// who is refused hears 554 instead of it and may then say QUIT (RFC 5321, section
// 3.1); one who is deferred is to come again. What a list wants done with a
// message, rather than with a client, is left to RCPT.
func (s *session) heard() bool {
	if s.settings.ClientRejectAt != "connect" || s.trusted {
		return true
	}
	v := s.checker.Client(s.client.Addr())
	d := s.checker.Connection(v)
	if d.Outcome != policy.Refuse && d.Outcome != policy.Defer {
		return true
	}
	s.logDecision(v, d, "")
	if !s.tarpit(d.Tarpit) {
		return false
	}
	if d.Reply.Ends() {
		s.end("client", d.Reply.String()+"\r\n")
		s.flush()
		return false
	}
	s.metrics.ended.WithLabelValues("client").Inc()
	s.unheard = true
	s.reply(d.Reply.String() + "\r\n")
	return false
}

// tarpit holds the next answer back, with those before it given, and reports
// whether the session goes on. A session that waits so costs what an idle one
// does; beyond the limit of their number nobody waits, for a sender with many
// connections would otherwise keep the others' away.
func (s *session) tarpit(wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	if !s.settle() {
		return false
	}
	s.flush()
	if s.Relay.tarpits.Add(1) > int64(s.settings.Limits.Tarpits) {
		s.Relay.tarpits.Add(-1)
		return true
	}
	defer s.Relay.tarpits.Add(-1)
	s.metrics.tarpits.Inc()
	defer s.metrics.tarpits.Dec()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopping:
	case <-s.hard.Done():
	}
	return true
}

// sameTag settles the tag of a transaction's one message: the first recipient that
// is forwarded decides, and one that is to have another, or none, is sent again by
// the client. It answers that one and reports false.
func (s *session) sameTag(d policy.Decision, recipient string) bool {
	if d.Outcome != policy.Mark {
		d.Tag = policy.Tag{}
	}
	if s.tx.tag.List == d.Tag.List {
		return true
	}
	if !s.settle() || !s.standing() { // those before it may have been refused
		return false
	}
	if s.tx.accepted == 0 {
		s.tx.tag = d.Tag
		return true
	}
	s.putOff(recipient)
	return false
}
