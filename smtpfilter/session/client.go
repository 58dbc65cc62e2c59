package session

import (
	"net/netip"
	"slices"
	"time"
)

// trusts reports whether a client is in a trusted network, or this program.
func (s Settings) trusts(at netip.AddrPort) bool {
	client := at.Addr().Unmap().WithZone("")
	return s.Own != nil && s.Own(netip.AddrPortFrom(client, at.Port())) || slices.ContainsFunc(s.Trusted, func(p netip.Prefix) bool { return p.Contains(client) })
}

// connected checks the client before the greeting, with ClientRejectAt "connect". It reports
// whether the client is greeted. A refused client reads 554 instead and may then send QUIT
// (RFC 5321, section 3.1). A deferred client is told to come again.
func (s *session) connected() bool {
	if s.settings.ClientRejectAt != "connect" {
		return true
	}
	d := s.rules.Connect()
	if !d.Refuses() {
		return true
	}
	if !s.tarpit(d.Tarpit) {
		return false
	}
	if d.Reply.Ends() {
		s.end("client", textOf(d.Reply))
		s.flush()
		return false
	}
	s.metrics.ended.WithLabelValues("client").Inc()
	s.onlyQuit = true
	s.reply(textOf(d.Reply))
	return false
}

// tarpit delays the next answer, and sends the earlier ones first. It reports whether the
// session goes on. A delayed session costs as much as an idle one. Limits.Tarpits bounds their
// number: beyond it no answer is delayed, because a sender with many connections could
// otherwise keep other clients away.
func (s *session) tarpit(wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	if !s.answerQueue() {
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
