package policy

import "blockd/policy/verdict"

// completed says that the next server has accepted a message of the envelope with these
// verdicts, two where it has two spellings of its sender. A door that cannot know says
// it where it knows most: a milter at the end of the message, which the mail server has
// yet to accept. A recipient that was accepted is no message: anybody can name a sender.
func (c *checks) completed(all ...verdict.Verdict) {
	if c.complete == nil {
		return
	}
	for i := range all {
		if v := &all[i]; unlisted(v) {
			c.complete(v.Sender, v.Client)
		}
	}
}

// wantsCompleted reports whether completed is of use for any of these.
func (c *checks) wantsCompleted(all ...verdict.Verdict) bool {
	if c.complete == nil {
		return false
	}
	for i := range all {
		if v := &all[i]; unlisted(v) && (c.wanted == nil || c.wanted(v.Sender, v.Client)) {
			return true
		}
	}
	return false
}

// unlisted reports whether v is about a sender of an envelope whom no list has any entry
// for, and neither for its client. That of an envelope which is not judged is none.
func unlisted(v *verdict.Verdict) bool {
	return v.Source == verdict.EnvelopeSource && v.Kind == verdict.Clear && len(v.Matches) == 0 && !v.Sender.Null()
}
