package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
)

// check holds the invariants.
func (r *randomSession) check() {
	delivered, held := map[string]int{}, map[string]int{}
	for _, m := range r.server.Messages() {
		text := string(m.Data)
		if !m.BDAT {
			text = strings.TrimSuffix("\r\n"+text, ".\r\n")
			text = strings.ReplaceAll(text, "\r\n.", "\r\n")[2:]
			if plain := strings.ReplaceAll(text, "\r\n", ""); strings.ContainsAny(plain, "\r\n\x00") {
				r.Errorf("upstream accepted bare octets: %.200q", text)
			}
		}
		tagged := strings.HasPrefix(text, "X-Blockd: list=watch ")
		if tagged {
			text = strings.Join(strings.SplitAfter(text, "\r\n")[4:], "") // with our Received field
		}
		r.checkSender(m, tagged)
		r.checkProof(m)
		delivered[text]++
	}
	for _, text := range r.held() {
		_, text, _ = strings.Cut(text, "\tSat, 01 Jan 2000") // what the filter puts on top
		_, text, _ = strings.Cut(text, "\r\n")
		held[text]++
	}
	for _, m := range r.sent {
		n, kept := delivered[m.text], held[m.text]
		delete(delivered, m.text)
		delete(held, m.text)
		accepted := strings.HasPrefix(m.reply, "250")
		r.total.messages++
		r.total.delivered += min(n+kept, 1)
		switch {
		case n > 1 || kept > 1:
			r.total.twice++
			r.Errorf("delivered %d times, in quarantine %d times: %.200q", n, kept, m.text)
		case accepted && m.upstream && n == 0:
			r.total.lost++
			r.Errorf("client was told 250 for what upstream has not accepted: %.200q", m.text)
		case accepted && m.aside && kept == 0:
			r.total.lost++
			r.Errorf("client was told 250 for what is not in quarantine: %.200q", m.text)
		case accepted && !m.upstream && !m.aside:
			r.Errorf("client was told 250 for a message of no recipients: %.200q", m.text)
		case !accepted && m.reply != "" && kept > 0:
			r.Errorf("in quarantine is what the client was refused with %q: %.200q", m.reply, m.text)
		}
	}
	r.total.altered += len(delivered) + len(held)
	for text := range delivered {
		r.Errorf("upstream accepted what the client did not send: %.200q", text)
	}
	for text := range held {
		r.Errorf("in quarantine is what the client did not send: %.200q", text)
	}
	checkNoListedSender(r.T, r.server.Recipients())
	for _, fault := range r.server.Faults() {
		// A connection cut in mid-body may cut a line; and what follows an early
		// reply of the server's own making is its own affair.
		if !strings.HasPrefix(fault, "unfinished line") {
			r.Errorf("upstream's view: %s", fault)
		}
	}
	if log := r.rig.log.String(); strings.Contains(log, "panicked") || strings.Contains(log, secret) {
		r.Errorf("log:\n%s", log)
	}
	if r.Failed() {
		r.Logf("upstream read: %.3000q\nlog:\n%.3000s", r.server.Log(), r.rig.log)
	}
}

// checkSender holds that a message of a listed sender has gone to no recipients but those that it may reach.
func (r *randomSession) checkSender(m script.Message, tagged bool) {
	if strings.Contains(m.Mail, "@mixed.example") && !r.authenticated() {
		for _, rcpt := range m.Rcpt {
			if strings.Contains(rcpt, "<dave@") || strings.Contains(rcpt, "<erin@") != tagged {
				r.Errorf("%s of mixed: tagged %v", rcpt, tagged)
			}
		}
	}
	if strings.Contains(m.Mail, "@watch.example") {
		for _, rcpt := range m.Rcpt {
			if excused := strings.Contains(rcpt, "<dave@") || strings.Contains(rcpt, "<sales@") || strings.Contains(rcpt, "<postmaster@") || strings.Contains(rcpt, "<abuse@") || r.proves && strict(rcpt); excused == tagged && !r.authenticated() {
				r.Errorf("%s of a sender to be tagged: tagged %v", rcpt, tagged)
			}
		}
	}
}

// checkProof holds that a message which had to prove its sender has, and that no
// author is listed, unless it is for those who have such mail all the same.
func (r *randomSession) checkProof(m script.Message) {
	header, _, _ := strings.Cut(string(m.Data), "\r\n\r\n")
	header += "\r\n"
	late := strings.Contains(m.Mail, "@late.example") && !strings.Contains(header, lateAuthor)
	if !r.proves || r.authenticated() || !late && !strings.Contains(header, phishAuthor) {
		return
	}
	for _, rcpt := range m.Rcpt {
		if strict(rcpt) && strings.Contains(header, phishAuthor) {
			r.Errorf("%s has had mail of %s with %q", rcpt, m.Mail, header)
		}
		if strings.Contains(m.Mail, "@mixed.example") { // a list allows that one
			continue
		}
		if strings.Contains(rcpt, "<bob@") || strings.Contains(rcpt, "<carol@") {
			r.Errorf("%s has had mail of %s with %q", rcpt, m.Mail, header)
		}
	}
}

// strict reports whether only the lists of authors count for a recipient where messages
// decide.
func strict(rcpt string) bool {
	return strings.Contains(rcpt, "<frank@") || strings.Contains(rcpt, "<gina@")
}

// authenticated reports whether the client may have been excused from all lists.
func (r *randomSession) authenticated() bool {
	return strings.Contains(r.rig.log.String(), "client authenticated")
}

// held are the files in quarantine; none may be left in tmp.
func (r *randomSession) held() (texts []string) {
	if left, err := os.ReadDir(filepath.Join(r.aside, "tmp")); err != nil || len(left) > 0 {
		r.Errorf("left in tmp: %v, %v", left, err)
	}
	entries, _ := os.ReadDir(filepath.Join(r.aside, "new")) // it may have been taken away
	for _, e := range entries {
		text := testkit.Read(r, filepath.Join(r.aside, "new", e.Name()))
		texts = append(texts, string(text))
	}
	return texts
}

// checkNoListedSender holds of every recipient that upstream has read, accepted or
// not, that its sender was none of a list that refuses or sets aside. Who that sender
// is, is said by the MAIL on the same connection alone: what a connection had in its
// buffer when the filter gave it up is read later, amid the next one's transaction.
// Behind a successful AUTH the lists are not asked.
func checkNoListedSender(t *testing.T, recipients []script.Recipient) {
	t.Helper()
	for _, r := range recipients {
		mail, rcpt := strings.ToUpper(r.Mail), strings.ToUpper(r.Rcpt)
		if r.Authenticated || !strings.Contains(mail, "BAD.EXAMPLE>") && !strings.Contains(mail, "@JUNK.EXAMPLE>") && !strings.Contains(mail, "@GREY.EXAMPLE>") {
			continue
		}
		if !strings.Contains(rcpt, "<POSTMASTER@") && !strings.Contains(rcpt, "<ABUSE@") && !strings.Contains(rcpt, "<SALES@") && !strings.Contains(rcpt, "<ERIN@") && !strings.Contains(rcpt, "<DAVE@") && !strict(r.Rcpt) {
			t.Errorf("a listed sender reached %s behind %s", r.Rcpt, r.Mail)
		}
	}
}
