package milter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// session is one mail server's connection, which is one SMTP session, or several
// after each other. The library calls it from one goroutine. No method ever returns
// an error: the library would close the connection without an answer, and Postfix
// would put off the rest of the SMTP session.
type session struct {
	*Server
	canTag, canQuarantine, seesHeader bool // what was negotiated

	client  netip.Addr // zero: not known
	trusted bool       // by its network: no list is asked
	helo    string
	tx      transaction
}

var _ milter.Milter = (*session)(nil)

func newSession(s *Server, actions milter.OptAction, protocol milter.OptProtocol) *session {
	return &session{
		Server:        s,
		canTag:        actions&milter.OptAddHeader != 0,
		canQuarantine: actions&milter.OptQuarantine != 0,
		seesHeader:    s.checker.Sources().Header() && protocol&(milter.OptNoHeaders|milter.OptNoEOH) == 0,
	}
}

// NewConnection begins an SMTP session, on this object's first use and after a
// mail server has kept its connection for another client.
func (s *session) NewConnection(milter.Modifier) error {
	s.client, s.trusted, s.helo, s.tx = netip.Addr{}, false, "", transaction{}
	return nil
}

// Connect learns who the SMTP client is. Where that is configured, one who is
// listed is refused here, with all that it would say.
func (s *session) Connect(_, _ string, _ uint16, address string, m milter.Modifier) (*milter.Response, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil { // of a Unix socket, or unknown; then it may know more
		ip, _ = netip.ParseAddr(m.Get(milter.MacroClientAddr))
	}
	s.client = ip.Unmap().WithZone("")
	s.trusted = s.client.IsValid() && slices.ContainsFunc(s.settings.Trusted, func(p netip.Prefix) bool { return p.Contains(s.client) })
	if s.settings.ClientRejectAt != "connect" || s.trusted || !s.client.IsValid() {
		return milter.RespContinue, nil
	}
	v := s.checker.Client(s.client)
	d := s.checker.Recipient(v, "")
	if d.Outcome != policy.Refuse && d.Outcome != policy.Defer {
		return milter.RespContinue, nil
	}
	s.logDecision(v, d, "", m)
	s.metrics.clients.Inc()
	code := "554" // RFC 5321, section 3.1
	if d.Outcome == policy.Defer {
		code = "421"
	}
	return reply(code + d.Reply[3:]), nil
}

// Helo keeps the name for the log. It comes again behind STARTTLS.
func (s *session) Helo(name string, _ milter.Modifier) (*milter.Response, error) {
	s.helo = name
	return milter.RespContinue, nil
}

// MailFrom looks the sender up, once for the transaction. One whom no list has
// anything on is accepted here, and the mail server asks no more about it.
func (s *session) MailFrom(argument, _ string, m milter.Modifier) (*milter.Response, error) {
	s.tx = transaction{}
	if s.trusted {
		return s.pass()
	}
	first, second := reversePaths(argument, m.Get(milter.MacroMailAddr))
	authenticated := s.settings.SkipAuthenticated && m.Get(milter.MacroAuthAuthen) != ""
	if authenticated { // only whether its address is listed
		first, second = "", ""
	}
	reads := s.seesHeader && !authenticated
	checker := s.checker
	if second != "" || reads { // all verdicts of the transaction from one generation
		checker = checker.Pin()
	}
	seen := policy.Seen{Helo: s.helo, Sender: strings.Trim(argument, "<>"), Authenticated: authenticated}
	v := checker.Envelope(s.client, first)
	v.Seen = seen
	if second == "" && !reads && checker.Passes("", v) {
		return s.pass()
	}
	s.tx = transaction{open: true, sender: argument, reads: reads, checker: checker, verdicts: []policy.Verdict{v}}
	if second != "" {
		w := checker.Envelope(s.client, second)
		w.Seen = seen
		if !reads && checker.Passes("", v, w) {
			s.tx = transaction{}
			return s.pass()
		}
		s.tx.verdicts = append(s.tx.verdicts, w)
	}
	if s.settings.RejectAt == "mail" {
		if r := s.refuseSender(m); r != nil {
			return r, nil
		}
	}
	s.metrics.senders[mailWatched].Inc()
	return milter.RespContinue, nil
}

// pass accepts the message whoever its recipients are.
func (s *session) pass() (*milter.Response, error) {
	s.metrics.senders[mailPassed].Inc()
	return milter.RespAccept, nil
}

// refuseSender answers MAIL where senders are refused there; nil = go on.
func (s *session) refuseSender(m milter.Modifier) *milter.Response {
	v, d := s.tx.decide("")
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
		s.logDecision(v, d, "", m)
	case s.tx.unreadable(v):
		d.Reply = replyNoSender
	default:
		return nil
	}
	s.metrics.senders[mailRefused].Inc()
	s.tx = transaction{}
	return reply(d.Reply)
}

// RcptTo answers for one recipient. The answers are to go on and to refuse, and no
// others: after an accept or a skip, Postfix asks about no further recipient and
// takes all of them, so that who names postmaster first would reach everybody.
func (s *session) RcptTo(argument, _ string, m milter.Modifier) (*milter.Response, error) {
	if !s.tx.open {
		return milter.RespContinue, nil
	}
	recipient := forwardPath(argument, m.Get(milter.MacroRcptAddr))
	v, d := s.tx.decide(recipient)
	if d.Outcome == policy.Quarantine && !s.canQuarantine {
		d.Outcome, d.Reply = policy.Defer, replyNoQuarantine
	}
	if d.Outcome == policy.Tag && !s.canTag {
		d.Outcome, d.Tag = policy.Accept, ""
	}
	if d.Ref != "" {
		s.logDecision(s.checker.For(v, recipient), d, recipient, m)
	}
	outcome := recipientOutcome(d)
	text := d.Reply
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
	case s.tx.unreadable(v) && !s.checker.Exempt(recipient):
		outcome, text = outRefused, replyNoSender
	case !s.tx.joins(s.checker, recipient, d):
		outcome, text = outLimited, replyApart
	}
	s.metrics.recipients.WithLabelValues(outcome).Inc()
	if text == "" {
		return milter.RespContinue, nil
	}
	return reply(text), nil
}

// Data is not asked for.
func (s *session) Data(milter.Modifier) (*milter.Response, error) { return milter.RespContinue, nil }

// Header collects the fields whose addresses lists are asked about.
func (s *session) Header(name, value string, _ milter.Modifier) (*milter.Response, error) {
	if source, ok := policy.FieldSource(name); ok && s.tx.reads && s.checker.Sources().Has(source) {
		s.tx.fields.Add(name, value)
	}
	return milter.RespContinue, nil
}

// Headers answers at the end of the header, for all recipients at once.
func (s *session) Headers(m milter.Modifier) (*milter.Response, error) {
	if !s.tx.open {
		return milter.RespContinue, nil
	}
	if r := s.judgeHeader(m); r != nil {
		s.tx = transaction{}
		return r, nil
	}
	if s.tx.fate.outcome == policy.Accept {
		s.tx = transaction{}
		return milter.RespAccept, nil
	}
	return milter.RespContinue, nil
}

// BodyChunk is not asked for.
func (s *session) BodyChunk([]byte, milter.Modifier) (*milter.Response, error) {
	return milter.RespContinue, nil
}

// EndOfMessage has done with the message what its lists ask for.
func (s *session) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	f := s.tx.fate
	s.tx = transaction{}
	return s.fulfil(f, m), nil
}

// Abort ends a transaction.
func (s *session) Abort(milter.Modifier) error {
	s.tx = transaction{}
	return nil
}

// Unknown is not asked for.
func (s *session) Unknown(string, milter.Modifier) (*milter.Response, error) {
	return milter.RespContinue, nil
}

// Cleanup has nothing to give back.
func (s *session) Cleanup(milter.Modifier) { s.tx = transaction{} }
