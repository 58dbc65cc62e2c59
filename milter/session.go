package milter

import (
	"log/slog"
	"net/netip"
	"strings"

	"github.com/d--j/go-milter"

	"blockd/internal/listener"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/reply"
)

// session answers the events of one connection of a mail server. The connection carries one
// SMTP session, or several in turn. The library calls all methods from one goroutine.
//
// No method returns an error. After an error the library closes the connection without an
// answer, and Postfix defers the rest of the SMTP session.
type session struct {
	*Server
	door policy.Door // what the negotiation allows
	tx   policy.Transaction
	port uint16 // of the client; 0 = unknown
	message

	macros milter.Modifier // macros of the current event

	writesResults bool
	exact         bool // header fields keep the blanks after their colon, in both directions
}

// message is the door's state for one message, from MAIL to its end. The zero message stands
// for no message, and for one that was accepted at MAIL.
type message struct {
	open     bool
	outgoing bool   // its recipients are told although no list asks for them
	wantsEnd bool   // the transaction wants to know that the message is complete: see policy.Transaction.Completed
	sender   string // the argument of MAIL, as the client wrote it
	fields   header.Senders
	results  results
	awaited  bool   // some recipient is decided at the end of the message
	copied   copied // the message itself, if it may have to prove its sender
}

var _ milter.Milter = (*session)(nil)

func newSession(server *Server, private bool, actions milter.OptAction, protocol milter.OptProtocol) *session {
	set := server.settings
	readable := protocol&(milter.OptNoHeaders|milter.OptNoEOH) == 0
	s := &session{
		Server: server,
		door: policy.Door{
			Name: "milter", Log: server.log,
			Marks: actions&milter.OptAddHeader != 0, Quarantines: actions&milter.OptQuarantine != 0, Discards: true,
			SeesHeader: readable, SeesMessage: readable && protocol&milter.OptNoBody == 0,
			Greets: true, PassesAtMail: true, HearsEnd: true,
			SkipAuthenticated: set.SkipAuthenticated, ProofTimeout: set.ProofTimeout,
		},
		writesResults: set.Results != "" && actions&milter.OptChangeHeader != 0 && readable,
		exact:         protocol&milter.OptHeaderLeadingSpace != 0,
	}
	s.tx.Begin(server.checker, &s.door, policy.Client{Line: s.line})
	s.tx.Hearsay = !private
	return s
}

// NewConnection begins an SMTP session. The library calls it for the first session, and again
// if the mail server keeps its connection for another client.
func (s *session) NewConnection(m milter.Modifier) error {
	s.tx.Client = policy.Client{Line: s.line}
	s.reset()
	return nil
}

// Connect records the SMTP client's address. With ClientRejectAt "connect" it refuses a listed
// client.
func (s *session) Connect(_, _ string, port uint16, address string, m milter.Modifier) (*milter.Response, error) {
	s.macros, s.port = m, port
	ip, err := netip.ParseAddr(address)
	if err != nil { // the client uses a Unix socket, or the address is unknown; the macro may know more
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
	return response(d.Reply), nil
}

// Helo records the client's name for the log. It comes again after STARTTLS.
func (s *session) Helo(name string, _ milter.Modifier) (*milter.Response, error) {
	s.tx.Client.Helo = name
	return milter.RespContinue, nil
}

// MailFrom looks the sender up, once for the message. It accepts the message of a clear
// sender, and the mail server asks no more about it.
func (s *session) MailFrom(argument, parameters string, m milter.Modifier) (*milter.Response, error) {
	s.reset()
	s.macros = m
	if own := s.settings.Own; own != nil && own(netip.AddrPortFrom(s.tx.Client.Addr, s.port)) {
		s.tx.Client.Trusted = true // as long as it is connected
	}
	first, second := reversePaths(argument, m.Get(milter.MacroMailAddr))
	if s.tx.Client.Trusted {
		s.tx.From(policy.Mail{Sender: first})
		return s.pass(policy.Decision{})
	}
	s.tx.Client.Authenticated = m.Get(milter.MacroAuthAuthen) != ""
	d := s.tx.Mail(policy.Mail{Sender: first, Other: second, Written: strings.Trim(argument, "<>"), UTF8: asksUTF8(parameters)})
	if d.Passed {
		return s.pass(d)
	}
	s.message = message{open: true, sender: argument, wantsEnd: d.WantsCompleted || s.tx.Outgoing()}
	if s.settings.RejectAt == "mail" {
		if r := s.refuseSender(); r != nil {
			return r, nil
		}
	}
	s.metrics.senders[mailWatched].Inc()
	return milter.RespContinue, nil
}

// pass accepts the message for all its recipients. It asks for the end of the message if the
// decision wants that senders of complete messages are told; for most senders that is once a
// day.
func (s *session) pass(d policy.Decision) (*milter.Response, error) {
	s.metrics.senders[mailPassed].Inc()
	s.outgoing = s.tx.Outgoing()
	s.wantsEnd = d.WantsCompleted || s.outgoing
	if s.wantsEnd || s.writesResults { // the filter needs the end of the message, or its header
		return milter.RespContinue, nil
	}
	return milter.RespAccept, nil
}

// refuseSender answers MAIL with RejectAt "mail". It returns nil if the sender is not refused.
func (s *session) refuseSender() *milter.Response {
	d := s.tx.Recipient("")
	switch {
	case d.Refuses():
	case d.Unreadable:
		d.Reply = s.refuseUnreadable("")
	default:
		return nil
	}
	s.metrics.senders[mailRefused].Inc()
	s.reset()
	return response(d.Reply)
}

// RcptTo answers for one recipient. It continues or refuses and gives no other answer: after
// an accept or a skip Postfix takes all further recipients without asking, so a client that
// names postmaster first would reach every recipient.
//
// RcptTo sends no progress packets during DNS queries. Sendmail 8.17 accepts progress only at
// the end of a message; at RCPT it reports a "bogus response" and drops the milter for the
// session. So Sendmail waits for up to ProofTimeout without a sign.
func (s *session) RcptTo(argument, _ string, m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	if !s.open && !s.outgoing {
		return milter.RespContinue, nil
	}
	recipient := forwardPath(argument, m.Get(milter.MacroRcptAddr))
	if !s.open {
		s.tx.Sent(recipient)
		return milter.RespContinue, nil
	}
	d := s.tx.Recipient(recipient)
	outcome := outcomeOf(d)
	switch {
	case d.Refuses():
	case d.Unreadable:
		outcome, d.Reply = outRefused, s.refuseUnreadable(recipient)
	case s.tx.PutOff(&d):
		outcome = outDeferred
	case !s.tx.Join(&d):
		outcome = outLimited
	case d.AwaitsMessage:
		outcome, s.awaited = outAwaiting, true
	}
	s.metrics.recipients.WithLabelValues(outcome).Inc()
	if d.Reply.Code == 0 {
		return milter.RespContinue, nil
	}
	return response(d.Reply), nil
}

// Data is not asked for.
func (s *session) Data(milter.Modifier) (*milter.Response, error) { return milter.RespContinue, nil }

// Header collects the fields whose addresses are looked up, and copies the message.
func (s *session) Header(name, value string, _ milter.Modifier) (*milter.Response, error) {
	s.readResults(name, value)
	if s.copies() {
		s.copyField(name, value)
	}
	if s.tx.ReadsField(name) {
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
		return response(replyManyResults), nil
	case !s.open && s.writesResults:
		return s.headerDone(), nil
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
		return s.headerDone(), nil
	}
	return milter.RespContinue, nil
}

// judgeHeader decides by the addresses of the header, if header addresses are looked up.
func (s *session) judgeHeader() policy.Decision {
	var all []header.Field
	var fault reply.Reply
	if s.tx.ReadsHeader() {
		var ok bool
		if all, ok = s.fields.Addresses(); !ok {
			fault = replyManySenders
		}
	}
	return s.tx.Header(all, fault)
}

// refuse ends the message and returns the decision's reply.
func (s *session) refuse(d policy.Decision) *milter.Response {
	s.metrics.messages.WithLabelValues(outcomeOf(d)).Inc()
	s.reset()
	return response(d.Reply)
}

// BodyChunk copies the body if a decision depends on the message.
func (s *session) BodyChunk(chunk []byte, _ milter.Modifier) (*milter.Response, error) {
	if s.tx.AwaitsMessage() {
		s.copy(chunk)
	}
	return milter.RespContinue, nil
}

// EndOfMessage gives the decisions that depended on the whole message, and carries out what
// lists ask for: a tag, quarantine or discarding.
func (s *session) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	s.macros = m
	defer s.reset()
	if s.tx.AwaitsMessage() {
		m.Progress() // mail servers with an old version of the protocol wait without a sign
		if err := s.examine(); err != nil {
			s.tx.Say(slog.LevelError, "message not examined", slog.Any("error", err))
			// The sender is certainly listed, so on_error does not apply.
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
	answer := s.carryOut(d, m)
	if s.wantsEnd && answer != milter.RespTempFail {
		s.tx.Completed()
	}
	return answer, nil
}

// reset forgets the message and deletes its copy.
func (s *session) reset() {
	s.copied.drop()
	s.tx.Reset()
	s.message = message{}
}

// Abort ends the message without an answer.
func (s *session) Abort(milter.Modifier) error {
	s.reset()
	return nil
}

// Unknown is not asked for.
func (s *session) Unknown(string, milter.Modifier) (*milter.Response, error) {
	return milter.RespContinue, nil
}

// Cleanup ends the session.
func (s *session) Cleanup(milter.Modifier) { s.reset() }
