package milter

import (
	"encoding/binary"
	"fmt"

	"github.com/d--j/go-milter"
)

// actions returns the changes that this filter may make to messages.
func (s *Server) actions() milter.OptAction {
	a := milter.OptSetMacros
	needs := s.checker.Needs()
	if needs.Marks {
		a |= milter.OptAddHeader
	}
	if needs.Quarantines {
		a |= milter.OptQuarantine
	}
	if s.settings.Results != "" {
		a |= milter.OptAddHeader | milter.OptChangeHeader
	}
	return a
}

// protocol returns the events that this filter does not need, and those that it does not
// answer. OptSkip is never among them: if a mail server may skip at one RCPT, it asks about no
// further recipient and accepts all of them.
func (s *Server) protocol() milter.OptProtocol {
	p := milter.OptNoBody | milter.OptNoData | milter.OptNoUnknown | milter.OptNoHeloReply
	if s.settings.ClientRejectAt != "connect" {
		p |= milter.OptNoConnReply
	}
	if s.checker.Needs().Header || s.settings.Results != "" {
		return p | milter.OptNoHeaderReply
	}
	return p | milter.OptNoHeaders | milter.OptNoEOH
}

// macros returns the macros that the mail server is to send, as they end the answer to the
// negotiation: for each stage its number and the names, in the order of the stages. Those of a
// stage that is not named stay the mail server's own. The library would ask every connection
// for the same ones, so conn adds these.
//
// Settings of the policy change while the filter runs. What macros returns holds for the
// connections that begin from then on, for in an older one the mail server goes on as agreed.
//
// {mail_addr} is always among them, although a mail server has to resolve each sender for it
// (Postfix: by another process). Without it, a sender that the mail server reads otherwise than
// the client wrote it would escape the lists: (c)<a@bad.example>, bad.example!a.
// {mail_host} and {mail_mailer}, which Postfix sends unless it is told, say nothing more.
func (s *Server) macros() []byte {
	mail := "i "
	if s.settings.SkipAuthenticated || s.checker.Needs().Login {
		mail += "{auth_authen} "
	}
	var p []byte
	for _, of := range [...]struct {
		stage milter.MacroStage
		names string
	}{
		{milter.StageConnect, "j {client_addr}"},
		{milter.StageMail, mail + "{mail_addr}"},
		{milter.StageRcpt, "{rcpt_addr}"},
	} {
		p = binary.BigEndian.AppendUint32(p, uint32(of.stage))
		p = append(append(p, of.names...), 0)
	}
	return p
}

// forMessages changes leave so that the mail server sends whole messages, octet by octet. It
// sends only messages whose sender was not accepted at MAIL.
func forMessages(leave milter.OptProtocol) milter.OptProtocol {
	return leave&^(milter.OptNoHeaders|milter.OptNoEOH|milter.OptNoBody) |
		milter.OptNoHeaderReply | milter.OptNoBodyReply | milter.OptHeaderLeadingSpace
}

// version is the highest version of the protocol that this filter speaks. oldest is the lowest
// that exists.
const version, oldest = 6, 2

// negotiate agrees on the wanted options that the mail server offers. Postfix drops a filter
// that asks for an option that Postfix has not offered.
//
// Lists change, so negotiate decides for every connection whether the filter needs whole
// messages.
func (s *Server) negotiate(theirs, _ uint32, offered, wanted milter.OptAction, canLeave, leave milter.OptProtocol, _ milter.DataSize) (uint32, milter.OptAction, milter.OptProtocol, milter.DataSize, error) {
	if theirs < oldest {
		return 0, 0, 0, 0, fmt.Errorf("a mail server that speaks version %d of the milter protocol", theirs)
	}
	if s.checker.Needs().Message {
		leave = forMessages(leave)
	}
	return min(theirs, version), wanted & offered, leave & canLeave, milter.DataSize64K, nil
}
