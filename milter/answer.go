package milter

import (
	"github.com/d--j/go-milter"

	"blockd/policy"
	"blockd/policy/reply"
)

// Replies of this package. All others are decisions of package policy.
var (
	replyInternal    = reply.Reply{Code: 451, Enhanced: "4.3.0", Text: "Internal error, try again"}
	replyNoSender    = reply.Reply{Code: 553, Enhanced: "5.1.7", Text: "Sender address is not understood"}
	replyManySenders = reply.Reply{Code: 550, Enhanced: "5.6.0", Text: "Message header has too many senders"}
	replyManyResults = reply.Reply{Code: 550, Enhanced: "5.6.0", Text: "Message header has too many Authentication-Results of ours"}
)

// headerField is the header field that tags a message. The SMTP filter writes the same one.
const headerField = "X-Blockd"

// response returns r as an answer of the milter protocol.
func response(r reply.Reply) *milter.Response {
	answer, err := milter.RejectWithCodeAndReason(uint16(r.Code), r.Enhanced+" "+r.Line())
	if err != nil { // the text is too long for a packet of 64 KiB; our replies have at most 510 octets
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

// fieldText returns text as the mail server wants the value of a header field. After the
// agreement to keep blanks, the mail server adds none after the colon.
func (s *session) fieldText(text string) string {
	if s.exact {
		return " " + text
	}
	return text
}

// carryOut quarantines, tags or discards the message as the decision says, and returns the
// answer to its end. If the library returns an error, the connection is gone, or the library
// closes it at the next event.
func (s *session) carryOut(d policy.Decision, m milter.Modifier) *milter.Response {
	var err error
	outcome, answer := "", milter.RespAccept
	switch d.Outcome {
	case policy.Discard:
		outcome, answer = outDiscarded, milter.RespDiscard
	case policy.Quarantine:
		outcome, err = outQuarantined, m.Quarantine("blockd: "+d.Tag.String())
	case policy.Mark:
		// On top, above any X-Blockd field that the message has brought along.
		outcome, err = outTagged, m.InsertHeader(0, headerField, s.fieldText(d.Tag.String()))
	}
	if err == nil && d.Outcome != policy.Discard && s.tx.FirstSeen() {
		err = m.InsertHeader(0, policy.FirstSeenField, s.fieldText(policy.FirstSeenYes))
	}
	if err != nil {
		s.logMessage("message not dealt with", d, err)
		return milter.RespTempFail
	}
	if outcome != "" {
		s.metrics.messages.WithLabelValues(outcome).Inc()
		s.logMessage("message "+outcome, d, nil)
	}
	return answer
}
