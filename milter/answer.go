package milter

import (
	"github.com/d--j/go-milter"

	"blockd/policy"
)

// Our own replies, beside those of package policy.
var (
	replyInternal    = policy.Reply{Code: 451, Enhanced: "4.3.0", Text: "Internal error, try again"}
	replyNoSender    = policy.Reply{Code: 553, Enhanced: "5.1.7", Text: "Sender address is not understood"}
	replyManySenders = policy.Reply{Code: 550, Enhanced: "5.6.0", Text: "Message header has too many senders"}
	replyManyResults = policy.Reply{Code: 550, Enhanced: "5.6.0", Text: "Message header has too many Authentication-Results of ours"}
)

// headerField is the field of a message that a list has tagged, as the SMTP filter
// writes it.
const headerField = "X-Blockd"

// reply makes an answer of a reply.
func reply(r policy.Reply) *milter.Response {
	answer, err := milter.RejectWithCodeAndReason(uint16(r.Code), r.Enhanced+" "+r.Line())
	if err != nil { // of 64 KiB; ours have 510 octets
		return milter.RespTempFail
	}
	return answer
}

func outcomeOf(d policy.Decision) string {
	switch d.Outcome {
	case policy.Refuse:
		return outRefused
	case policy.Defer:
		return outDeferred
	case policy.Quarantine:
		return outQuarantined
	case policy.Mark:
		return outTagged
	case policy.Discard:
		return outDiscarded
	}
	if d.Exempt {
		return outExempt
	}
	return outAccepted
}

// fieldText is the value of a field as the mail server takes it: after the agreement
// on exact fields it adds no blank behind the colon by itself.
func (s *session) fieldText(text string) string {
	if s.exact {
		return " " + text
	}
	return text
}

// fulfil answers the end of a message. An error of the library is a connection that
// is gone, or one that it closes at the next event.
func (s *session) fulfil(d policy.Decision, m milter.Modifier) *milter.Response {
	var err error
	outcome, answer := "", milter.RespAccept
	switch d.Outcome {
	case policy.Discard:
		outcome, answer = outDiscarded, milter.RespDiscard
	case policy.Quarantine:
		outcome, err = outQuarantined, m.Quarantine("blockd: "+d.Tag.String())
	case policy.Mark:
		// On top, where it stands before any that the message has brought along.
		outcome, err = outTagged, m.InsertHeader(0, headerField, s.fieldText(d.Tag.String()))
	default:
		return answer
	}
	if err != nil {
		s.logMessage("message not dealt with", d, err)
		return milter.RespTempFail
	}
	s.metrics.messages.WithLabelValues(outcome).Inc()
	s.logMessage("message "+outcome, d, nil)
	return answer
}
