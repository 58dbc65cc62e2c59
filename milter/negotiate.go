package milter

import (
	"fmt"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// actions are what this filter may want to do to messages.
func (s *Server) actions() milter.OptAction {
	var a milter.OptAction
	if s.checker.Uses(policy.TagOnMatch) {
		a |= milter.OptAddHeader
	}
	if s.checker.Uses(policy.QuarantineOnMatch) {
		a |= milter.OptQuarantine
	}
	if s.settings.Results != "" {
		a |= milter.OptAddHeader | milter.OptChangeHeader
	}
	return a
}

// protocol is what this filter does not want to hear of, and where it has nothing
// to say. OptSkip is never among it: a mail server that has been told to skip at
// one RCPT asks about no further one, and lets all of them in.
func (s *Server) protocol() milter.OptProtocol {
	p := milter.OptNoBody | milter.OptNoData | milter.OptNoUnknown | milter.OptNoHeloReply
	if s.settings.ClientRejectAt != "connect" {
		p |= milter.OptNoConnReply
	}
	if s.checker.Sources().Header() || s.settings.Results != "" {
		return p | milter.OptNoHeaderReply
	}
	return p | milter.OptNoHeaders | milter.OptNoEOH
}

// forMessages is leave where whole messages have to be seen, to the octet. They are
// sent only of senders that are not accepted at MAIL.
func forMessages(leave milter.OptProtocol) milter.OptProtocol {
	return leave&^(milter.OptNoHeaders|milter.OptNoEOH|milter.OptNoBody) |
		milter.OptNoHeaderReply | milter.OptNoBodyReply | milter.OptHeaderLeadingSpace
}

// version is the highest that we speak, and 2 the lowest that is known.
const version, oldest = 6, 2

// negotiate agrees with any mail server on what it offers of what we want. To ask
// for what was not offered would make Postfix drop the filter.
//
// Whether messages have to be seen is asked anew for every connection: lists change.
func (s *Server) negotiate(theirs, _ uint32, offered, wanted milter.OptAction, canLeave, leave milter.OptProtocol, _ milter.DataSize) (uint32, milter.OptAction, milter.OptProtocol, milter.DataSize, error) {
	if theirs < oldest {
		return 0, 0, 0, 0, fmt.Errorf("a mail server that speaks version %d of the milter protocol", theirs)
	}
	if s.checker.NeedsMessages() {
		leave = forMessages(leave)
	}
	return min(theirs, version), wanted & offered, leave & canLeave, milter.DataSize64K, nil
}
