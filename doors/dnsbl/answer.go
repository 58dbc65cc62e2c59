package dnsbl

import (
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"blockd/policy/reply"
	"blockd/policy/verdict"
)

// answer is what a name and a type are answered with, before it is written down.
type answer struct {
	code    int     // RFC 1035, section 4.1.1
	zone    *zone   // nil: the name is in none
	labels  int     // of the name, in front of the zone
	records records // without any, a name that is known has the SOA beside it
	text    string  // of the TXT record
	serial  uint32

	truncated bool // the client is to ask again by TCP
}

// records is the set of those in the answer section.
type records uint8

const (
	recordA records = 1 << iota
	recordTXT
	recordSOA
	recordNS
)

// negative reports whether the SOA says how long "no" holds (RFC 2308).
func (a *answer) negative() bool {
	return a.zone != nil && a.records == 0 && !a.truncated && (a.code == dns.RcodeSuccess || a.code == dns.RcodeNameError)
}

// cut leaves the records out: there is no room for them.
func (a *answer) cut() { a.records, a.truncated = 0, true }

// authoritative reports whether the answer speaks for a zone.
func (a *answer) authoritative() bool {
	return a.zone != nil && a.code != dns.RcodeServerFailure
}

// worker answers messages, one at a time.
type worker struct {
	*Server
	name  name
	texts strings.Builder // the block that texts are cut from
}

// answer answers a question about w.name, of class IN.
func (w *worker) answer(qtype uint16) (a answer) {
	if a.zone, a.labels = w.zoneOf(&w.name); a.zone == nil {
		w.metrics.refused[noZone].Inc()
		return answer{code: dns.RcodeRefused}
	}
	kind, now := answerOther, w.serving()
	a.serial = now.serial
	s := subject{what: isApex}
	if a.labels > 0 {
		s = a.zone.read(&w.name, a.labels)
	}
	loaded := now.loaded[a.zone.number]
	switch {
	case !loaded && s.what != isQuestion:
		a.code, kind = dns.RcodeServerFailure, answerFailed
	case s.what == isApex:
		a.records = apex(qtype)
	case s.what == isTest:
		a.list(qtype, func() string { return "test entry of " + a.zone.Name + " (RFC 5782)" })
	case s.what == isBetween:
	case s.what == isNothing:
		a.code = dns.RcodeNameError
	default:
		kind = w.judge(&a, s, qtype, loaded)
	}
	a.zone.answers[kind].Inc()
	return a
}

// judge asks the lists. Until the lists of the zone are loaded, what others list is listed, as mail
// from it is refused; that no list has a name is not known yet.
func (w *worker) judge(a *answer, s subject, qtype uint16, loaded bool) answerKind {
	v := w.checker.Ask(w.question(a.zone, s))
	switch {
	case v.Internal(), v.Kind != verdict.Blocked && !loaded:
		a.code = dns.RcodeServerFailure
		return answerFailed
	case v.Kind == verdict.Blocked:
		a.list(qtype, func() string { return w.tell(&v) })
		if a.records&recordTXT == 0 {
			w.listed.Listed(&v)
		}
		return answerListed
	case !s.between:
		a.code = dns.RcodeNameError
	}
	return answerClear
}

// list makes a the answer of a listed name.
func (a *answer) list(qtype uint16, text func() string) {
	switch qtype {
	case dns.TypeA:
		a.records = recordA
	case dns.TypeTXT:
		a.records, a.text = recordTXT, text()
	}
}

func apex(qtype uint16) records {
	switch qtype {
	case dns.TypeSOA:
		return recordSOA
	case dns.TypeNS:
		return recordNS
	case dns.TypeANY:
		return recordSOA | recordNS
	}
	return 0
}

// maxText is what one string of a TXT record has room for.
const maxText = 255

// tell remembers v, which is Blocked, and makes the text that says why: printable ASCII of at
// most 255 octets. It names a reference where the history has one.
func (w *worker) tell(v *verdict.Verdict) string {
	list, m := v.ListName(v.Decider), &v.Matches[v.Decider]
	ref := w.newRef()
	if !w.told.Referring(v, ref) {
		ref = ""
	}
	text, tail := "listed in "+list, ""
	if m.Line > 0 {
		text += ", line " + strconv.Itoa(m.Line)
	}
	if reason := v.Reason(v.Decider); reason != "" {
		text += ": " + reason
	}
	if ref != "" {
		tail = " (ref " + ref + ")"
	}
	// An address of a page without a reference leads nowhere.
	if contact := w.checker.Contact(list, ref); contact != "" && (ref != "" || contact == w.checker.Contact(list, "-")) {
		tail += " " + contact
	}
	text = reply.ForClient(text, false)
	return text[:min(len(text), max(0, maxText-len(tail)))] + tail
}
