package milter

import (
	"log/slog"
	"net/netip"
	"strings"

	"github.com/d--j/go-milter"

	"blockd/header"
	"blockd/listener"
	"blockd/policy"
)

// session is one mail server's connection, which is one SMTP session, or several
// after each other. The library calls it from one goroutine. No method ever returns
// an error: the library would close the connection without an answer, and Postfix
// would put off the rest of the SMTP session.
type session struct {
	*Server
	door policy.Door // what was negotiated
	tx   policy.Transaction
	message

	macros milter.Modifier // of the event in hand

	writesResults bool
	exact         bool // fields come, and are taken, with the blanks after the colon
}

// message is what the door keeps of one MAIL to its end. The zero message is none, and so is
// one that was accepted at MAIL. One that is not open and learns has nothing to be asked
// about, but for its end.
type message struct {
	open    bool
	learns  bool   // the end of the message is of interest: see policy.Transaction.Completed
	sender  string // as the client wrote it
	fields  header.Senders
	results results
	awaited bool   // a recipient's answer comes at its end
	copied  copied // of one that may have to prove something
}

var _ milter.Milter = (*session)(nil)

func newSession(server *Server, actions milter.OptAction, protocol milter.OptProtocol) *session {
	set := server.settings
	readable := protocol&(milter.OptNoHeaders|milter.OptNoEOH) == 0
	s := &session{
		Server: server,
		door: policy.Door{
			Name: "milter", Log: server.log,
			Marks: actions&milter.OptAddHeader != 0, Quarantines: actions&milter.OptQuarantine != 0, Discards: true,
			SeesHeader: readable, SeesMessage: readable && protocol&milter.OptNoBody == 0,
			Greets: true, PassesAtMail: true,
			SkipAuthenticated: set.SkipAuthenticated, ProofTimeout: set.ProofTimeout,
		},
		writesResults: set.Results != "" && actions&milter.OptChangeHeader != 0 && readable,
		exact:         protocol&milter.OptHeaderLeadingSpace != 0,
	}
	s.tx = server.checker.Begin(&s.door, policy.Client{Line: s.line})
	return s
}

// NewConnection begins an SMTP session, on this object's first use and after a
// mail server has kept its connection for another client.
func (s *session) NewConnection(m milter.Modifier) error {
	s.tx.Client = policy.Client{Line: s.line}
	s.reset()
	return nil
}

// Connect learns who the SMTP client is. Where that is configured, one that is
// listed is refused here, with all that it would say.
func (s *session) Connect(_, _ string, _ uint16, address string, m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	ip, err := netip.ParseAddr(address)
	if err != nil { // of a Unix socket, or unknown; then the macro may know more
		ip, _ = netip.ParseAddr(m.Get(milter.MacroClientAddr))
	}
	s.tx.Client.Addr = ip.Unmap().WithZone("")
	s.tx.Client.Trusted = listener.Within(s.settings.Trusted, s.tx.Client.Addr)
	if s.settings.ClientRejectAt != "connect" || !s.tx.Client.Addr.IsValid() {
		return milter.RespContinue, nil
	}
	d := s.tx.Connect()
	if !d.Refuses() {
		return milter.RespContinue, nil
	}
	s.metrics.clients.Inc()
	return reply(d.Reply), nil
}

// Helo keeps the name for the log. It comes again after STARTTLS.
func (s *session) Helo(name string, _ milter.Modifier) (*milter.Response, error) {
	s.tx.Client.Helo = name
	return milter.RespContinue, nil
}

// MailFrom looks the sender up, once for the transaction. One that no list has
// anything on is accepted here, and the mail server asks no more about it.
func (s *session) MailFrom(argument, parameters string, m milter.Modifier) (*milter.Response, error) {
	s.reset()
	s.macros = m
	if s.tx.Client.Trusted {
		return s.pass()
	}
	first, second := reversePaths(argument, m.Get(milter.MacroMailAddr))
	s.tx.Client.Authenticated = m.Get(milter.MacroAuthAuthen) != ""
	d := s.tx.Mail(policy.Mail{Sender: first, Other: second, Written: strings.Trim(argument, "<>"), UTF8: asksUTF8(parameters)})
	if d.Passed {
		return s.pass()
	}
	s.message = message{open: true, sender: argument, learns: s.tx.WantsCompleted()}
	if s.settings.RejectAt == "mail" {
		if r := s.refuseSender(); r != nil {
			return r, nil
		}
	}
	s.metrics.senders[mailWatched].Inc()
	return milter.RespContinue, nil
}

// pass accepts the message whoever its recipients are. Once a day for most senders that is
// said at its end alone: a message counts when it is complete.
func (s *session) pass() (*milter.Response, error) {
	s.metrics.senders[mailPassed].Inc()
	s.learns = s.tx.WantsCompleted()
	if s.learns || s.writesResults { // its end, or its header, is still to be seen
		return milter.RespContinue, nil
	}
	return milter.RespAccept, nil
}

// refuseSender answers MAIL where senders are refused there; nil = go on.
func (s *session) refuseSender() *milter.Response {
	d := s.tx.Recipient("")
	switch {
	case d.Refuses():
	case d.Unreadable:
		d.Reply = s.unread("")
	default:
		return nil
	}
	s.metrics.senders[mailRefused].Inc()
	s.reset()
	return reply(d.Reply)
}

// RcptTo answers for one recipient. The answers are to go on and to refuse, and no
// others: after an accept or a skip, Postfix asks about no further recipient and
// takes all of them, so that a client that names postmaster first would reach everybody.
//
// No progress is told while DNS is asked. Sendmail 8.17 takes that at the end of a message
// only: at RCPT it is a "bogus response", and the milter out of the session. It has to wait
// for ProofTimeout.
func (s *session) RcptTo(argument, _ string, m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	if !s.open {
		return milter.RespContinue, nil
	}
	recipient := forwardPath(argument, m.Get(milter.MacroRcptAddr))
	d := s.tx.Recipient(recipient)
	outcome := outcomeOf(d)
	switch {
	case d.Refuses():
	case d.Unreadable:
		outcome, d.Reply = outRefused, s.unread(recipient)
	case !s.tx.Join(&d):
		outcome = outLimited
	case d.AwaitsMessage:
		outcome, s.awaited = outAwaiting, true
	}
	s.metrics.recipients.WithLabelValues(outcome).Inc()
	if d.Reply.Code == 0 {
		return milter.RespContinue, nil
	}
	return reply(d.Reply), nil
}

// Data is not asked for.
func (s *session) Data(milter.Modifier) (*milter.Response, error) { return milter.RespContinue, nil }

// Header collects the fields whose addresses lists are asked about, and the message.
func (s *session) Header(name, value string, _ milter.Modifier) (*milter.Response, error) {
	s.readResults(name, value)
	if s.copies() {
		s.copyField(name, value)
	}
	if source, ok := policy.FieldSource(name); ok && s.tx.ReadsHeader() && s.checker.Sources().Has(source) {
		s.fields.Add(name, value)
	}
	return milter.RespContinue, nil
}

// Headers answers at the end of the header, for all recipients at once.
func (s *session) Headers(m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	switch {
	case len(s.results.forged) > maxForged:
		s.metrics.messages.WithLabelValues(outRefused).Inc()
		s.reset()
		return reply(replyManyResults), nil
	case !s.open && s.writesResults:
		return s.pastHeader(), nil
	case !s.open:
		return milter.RespContinue, nil
	}
	d := s.judgeHeader()
	switch {
	case d.Refuses():
		return s.refuse(d), nil
	case s.tx.AwaitsMessage():
		s.copy([]byte("\r\n"))
	case d.Outcome == policy.Accept:
		return s.pastHeader(), nil
	}
	return milter.RespContinue, nil
}

// judgeHeader decides by the addresses of the header, if lists are asked about them.
func (s *session) judgeHeader() policy.Decision {
	var all []header.Field
	var fault policy.Reply
	if s.tx.ReadsHeader() {
		var ok bool
		if all, ok = s.fields.Addresses(); !ok {
			fault = replyManySenders
		}
	}
	return s.tx.Header(all, fault)
}

// refuse ends a message by a decision.
func (s *session) refuse(d policy.Decision) *milter.Response {
	s.metrics.messages.WithLabelValues(outcomeOf(d)).Inc()
	s.reset()
	return reply(d.Reply)
}

// BodyChunk collects the message, where something depends on it.
func (s *session) BodyChunk(chunk []byte, _ milter.Modifier) (*milter.Response, error) {
	if s.tx.AwaitsMessage() {
		s.copy(chunk)
	}
	return milter.RespContinue, nil
}

// EndOfMessage answers what has depended on the message, and has done with it what its
// lists ask for.
func (s *session) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	defer s.reset()
	if s.tx.AwaitsMessage() {
		m.Progress() // a mail server that speaks too old a version has to wait in silence
		if err := s.examine(); err != nil {
			s.tx.Say(slog.LevelError, "message not examined", slog.Any("error", err))
			// Whatever on_error says: that the sender is listed is certain.
			return s.refuse(policy.Decision{Outcome: policy.Defer, Reply: replyInternal}), nil
		}
	}
	var d policy.Decision
	if s.open {
		d = s.tx.Message()
	}
	switch {
	case d.Refuses():
		return s.refuse(d), nil
	case s.awaited && d.Outcome == policy.Accept:
		s.metrics.messages.WithLabelValues(outAccepted).Inc()
	}
	if err := s.writeResults(m); err != nil {
		s.logMessage("message not dealt with", d, err)
		return milter.RespTempFail, nil
	}
	if s.learns {
		s.tx.Completed()
	}
	return s.fulfil(d, m), nil
}

// reset ends what is known of a message.
func (s *session) reset() {
	s.copied.drop()
	s.tx.Reset()
	s.message = message{}
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
