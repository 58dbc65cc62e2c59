package milter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/d--j/go-milter"

	"blockd/listener"
	"blockd/policy"
)

// session is one mail server's connection, which is one SMTP session, or several
// after each other. The library calls it from one goroutine. No method ever returns
// an error: the library would close the connection without an answer, and Postfix
// would put off the rest of the SMTP session.
type session struct {
	*Server

	// What was negotiated.
	canTag, canQuarantine, seesHeader, seesMessage, writesResults bool
	exact                                                         bool // fields come, and are taken, with the blanks behind the colon

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
		seesMessage:   protocol&(milter.OptNoHeaders|milter.OptNoEOH|milter.OptNoBody) == 0,
		writesResults: s.settings.Results != "" && actions&milter.OptChangeHeader != 0 && protocol&(milter.OptNoHeaders|milter.OptNoEOH) == 0,
		exact:         protocol&milter.OptHeaderLeadingSpace != 0,
	}
}

// NewConnection begins an SMTP session, on this object's first use and after a
// mail server has kept its connection for another client.
func (s *session) NewConnection(milter.Modifier) error {
	s.client, s.trusted, s.helo = netip.Addr{}, false, ""
	s.reset()
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
	s.trusted = listener.Within(s.settings.Trusted, s.client)
	if s.settings.ClientRejectAt != "connect" || s.trusted || !s.client.IsValid() {
		return milter.RespContinue, nil
	}
	v := s.checker.Client(s.client)
	d := s.checker.Connection(v)
	if d.Outcome != policy.Refuse && d.Outcome != policy.Defer {
		return milter.RespContinue, nil
	}
	s.logDecision(v, d, "", m)
	s.metrics.clients.Inc()
	return reply(d.Reply), nil
}

// Helo keeps the name for the log. It comes again behind STARTTLS.
func (s *session) Helo(name string, _ milter.Modifier) (*milter.Response, error) {
	s.helo = name
	return milter.RespContinue, nil
}

// MailFrom looks the sender up, once for the transaction. One whom no list has
// anything on is accepted here, and the mail server asks no more about it.
func (s *session) MailFrom(argument, parameters string, m milter.Modifier) (*milter.Response, error) {
	s.reset()
	if s.trusted {
		return s.pass()
	}
	first, second := reversePaths(argument, m.Get(milter.MacroMailAddr))
	login := m.Get(milter.MacroAuthAuthen) != ""
	authenticated := s.settings.SkipAuthenticated && login
	if authenticated { // only whether its address is listed
		first, second = "", ""
	}
	reads := s.seesHeader && !authenticated
	checker := s.checker
	if second != "" || reads { // all verdicts of the transaction from one generation
		checker = checker.Pin()
	}
	seen := policy.Seen{Helo: s.helo, Sender: strings.Trim(argument, "<>"), Authenticated: authenticated, UTF8: asksUTF8(parameters)}
	v := checker.Envelope(s.client, first)
	v.Seen = seen
	if second == "" && !reads && checker.Passes("", v) {
		return s.pass(v)
	}
	s.tx = transaction{open: true, sender: argument, reads: reads, checker: checker, verdicts: []policy.Verdict{v}}
	if second != "" {
		w := checker.Envelope(s.client, second)
		w.Seen = seen
		if !reads && checker.Passes("", v, w) {
			s.reset()
			return s.pass(v, w)
		}
		s.tx.verdicts = append(s.tx.verdicts, w)
	}
	s.tx.learns = checker.WantsCompleted(s.tx.verdicts...)
	s.tx.origin = policy.Origin{Client: s.client, Helo: s.helo, Authenticated: login}
	if s.settings.RejectAt == "mail" {
		if r := s.refuseSender(m); r != nil {
			return r, nil
		}
	}
	s.metrics.senders[mailWatched].Inc()
	return milter.RespContinue, nil
}

// pass accepts the message whoever its recipients are. Once a day for most senders that is
// said at its end alone: a message counts when it is complete.
func (s *session) pass(unlisted ...policy.Verdict) (*milter.Response, error) {
	s.metrics.senders[mailPassed].Inc()
	if s.checker.WantsCompleted(unlisted...) {
		s.tx.learns, s.tx.verdicts = true, slices.Clone(unlisted)
		return milter.RespContinue, nil
	}
	if s.writesResults { // its header is still to be seen
		return milter.RespContinue, nil
	}
	return milter.RespAccept, nil
}

// refuseSender answers MAIL where senders are refused there; nil = go on.
func (s *session) refuseSender(m milter.Modifier) *milter.Response {
	s.proveOrigin("")
	if s.stakesOf("") != (stakes{}) {
		return nil
	}
	v, d := s.tx.decide("")
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
		s.logDecision(v, d, "", m)
	case s.tx.unreadable(v):
		d.Reply = replyNoSender
		s.logUnread("", m)
	default:
		return nil
	}
	s.metrics.senders[mailRefused].Inc()
	s.reset()
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
	s.proveOrigin(recipient)
	if all := s.stakesOf(recipient); all != (stakes{}) {
		return s.await(recipient, all), nil
	}
	v, d := s.tx.decide(recipient)
	d = s.feasible(d)
	if d.Ref != "" {
		s.logDecision(s.checker.For(v, recipient), d, recipient, m)
	}
	outcome := recipientOutcome(d)
	answer := d.Reply
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
	case s.tx.unreadable(v) && !s.checker.Exempt(recipient):
		outcome, answer = outRefused, replyNoSender
		s.logUnread(recipient, m)
	case !s.tx.joins(s.checker, recipient, d, stakes{}):
		outcome, answer = outLimited, replyApart
	}
	s.metrics.recipients.WithLabelValues(outcome).Inc()
	if answer.Code == 0 {
		return milter.RespContinue, nil
	}
	return reply(answer), nil
}

// Data is not asked for.
func (s *session) Data(milter.Modifier) (*milter.Response, error) { return milter.RespContinue, nil }

// Header collects the fields whose addresses lists are asked about, and the message.
func (s *session) Header(name, value string, _ milter.Modifier) (*milter.Response, error) {
	s.readResults(name, value)
	if s.copies() {
		s.copyField(name, value)
	}
	if source, ok := policy.FieldSource(name); ok && s.tx.reads && s.checker.Sources().Has(source) {
		s.tx.fields.Add(name, value)
	}
	return milter.RespContinue, nil
}

// Headers answers at the end of the header, for all recipients at once.
func (s *session) Headers(m milter.Modifier) (*milter.Response, error) {
	switch {
	case len(s.tx.results.forged) > maxForged:
		s.metrics.messages.WithLabelValues(outRefused).Inc()
		s.reset()
		return reply(replyManyResults), nil
	case !s.tx.open && s.writesResults:
		return s.pastHeader(), nil
	case !s.tx.open:
		return milter.RespContinue, nil
	}
	if len(s.tx.awaiting) > 0 {
		s.copy([]byte("\r\n"))
		return milter.RespContinue, nil
	}
	if r := s.judgeHeader(m); r != nil {
		s.reset()
		return r, nil
	}
	if s.tx.fieldsAwait {
		s.copy([]byte("\r\n"))
		return milter.RespContinue, nil
	}
	if s.tx.fate.outcome == policy.Accept {
		return s.pastHeader(), nil
	}
	return milter.RespContinue, nil
}

// BodyChunk collects the message, where something hangs on it.
func (s *session) BodyChunk(chunk []byte, _ milter.Modifier) (*milter.Response, error) {
	if len(s.tx.awaiting) > 0 || s.tx.fieldsAwait {
		s.copy(chunk)
	}
	return milter.RespContinue, nil
}

// EndOfMessage answers what has hung on the message, and has done with it what its
// lists ask for.
func (s *session) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	defer s.reset()
	if r := s.settle(m); r != nil {
		return r, nil
	}
	if err := s.writeResults(m); err != nil {
		s.logFate("message not dealt with", s.tx.fate, m, err)
		return milter.RespTempFail, nil
	}
	if s.tx.learns && s.tx.fate.outcome == policy.Accept {
		s.checker.Completed(s.tx.verdicts...)
	}
	return s.fulfil(s.tx.fate, m), nil
}

// reset ends what is known of a message.
func (s *session) reset() {
	if s.tx.copied != nil {
		s.tx.copied.Close()
	}
	s.tx = transaction{}
}

// Abort ends a transaction.
func (s *session) Abort(milter.Modifier) error {
	s.reset()
	return nil
}

// Unknown is not asked for.
func (s *session) Unknown(string, milter.Modifier) (*milter.Response, error) {
	return milter.RespContinue, nil
}

// Cleanup has nothing to give back.
func (s *session) Cleanup(milter.Modifier) { s.reset() }
