package migration

import (
	"fmt"
	"regexp"
	"strings"
)

// phases are the lists of restrictions that are asked about mail, in the order in which Postfix asks them.
var phases = [...]string{
	"smtpd_client_restrictions", "smtpd_helo_restrictions", "smtpd_sender_restrictions", "smtpd_relay_restrictions",
	"smtpd_recipient_restrictions", "smtpd_data_restrictions", "smtpd_end_of_data_restrictions",
}

// implied is the word that a table without one before it has, by the phase (compatibility with Postfix of before 2.0).
var implied = map[string]string{
	"smtpd_client_restrictions": "check_client_access", "smtpd_helo_restrictions": "check_helo_access",
	"smtpd_sender_restrictions": "check_sender_access", "smtpd_relay_restrictions": "check_recipient_access",
	"smtpd_recipient_restrictions": "check_recipient_access",
}

// looks are the restrictions that ask a table about what an import carries over.
var looks = map[string]about{"check_sender_access": senders, "check_client_access": clients, "check_recipient_access": recipients}

// Restrictions that take a word: a table, another program, a zone of a DNS list, a time.
var (
	tabled = regexp.MustCompile(`^check_[a-z_]+_access$`)
	argued = regexp.MustCompile(`^(check_policy_service|reject_rbl_client|reject_rhsbl_(client|helo|recipient|reverse_client|sender)|permit_dnswl_client|permit_rhswl_client|sleep)$`)
	own    = regexp.MustCompile(`^(reject|defer|permit)(_|$)|^sleep$|^check_policy_service$`)
)

// topics says of tables that are asked about something else what that is.
var topics = map[string]string{
	"check_ccert_access": "the client's certificate", "check_etrn_access": "ETRN", "check_sasl_access": "the login name",
	"check_helo_access": "the HELO name, which blockd has no lists for (smtp.helo = \"valid\" refuses names that are none)",
}

// walk is one list of restrictions being read.
type walk struct {
	*postfix
	phase string
	at    Place
	said  parameter
	part  int  // of said: where the last word was
	warn  bool // warn_if_reject stands before the next one
	apart bool // it is asked for what a table has: its tables become no lists
	ended bool // nothing behind the last word is asked
	words int
}

// maxWords bounds one list of restrictions with all classes in it: sixty classes that name the next one twice never
// end.
const maxWords = 10_000

func (w *walk) list(text string, depth int) (list []restriction, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: restriction classes name one another more than %d deep", w.at, maxDepth)
	}
	items, ok := tokens(text, ", \t")
	if !ok {
		return nil, fmt.Errorf("%s: %s: a brace that is not closed", w.at, w.phase)
	}
	list = []restriction{}
	for len(items) > 0 {
		word, arg := items[0], ""
		if items = items[1:]; len(items) > 0 && (tabled.MatchString(word) || argued.MatchString(word)) {
			arg, items = items[0], items[1:]
		}
		if w.words++; w.words > maxWords {
			return nil, fmt.Errorf("%s: %s: %w: more than %d words", w.at, w.phase, ErrTooBig, maxWords)
		}
		w.at = w.said.place(word, &w.part)
		r, err := w.restriction(word, arg, depth)
		if err != nil {
			return nil, err
		}
		if r.warn = w.warn; word == "warn_if_reject" {
			w.warn = true
			continue
		}
		w.warn = false
		list = append(list, r)
	}
	return list, nil
}

// restriction reads one word with its argument.
func (w *walk) restriction(word, arg string, depth int) (r restriction, err error) {
	text := strings.TrimSpace(word + " " + arg)
	if _, _, _, table := tableName(word, ""); table && arg == "" && implied[w.phase] != "" && !own.MatchString(word) && !w.classes[word] {
		word, arg = implied[w.phase], word
	}
	r.word = word
	about, known := looks[word]
	stays := func(meant, why string) {
		if !w.apart {
			w.Find(w.at, text, w.phase+meant).stays(why)
		}
	}
	switch {
	case word == "warn_if_reject":
	case w.ended && !w.apart:
		stays("", "it is never asked: a word before it ends the restrictions")
		r.word = ""
	case known && arg == "":
		stays("", "no table is named")
	case known:
		r.table, err = w.table(about, arg, w, text)
	case tabled.MatchString(word):
		what := topics[word]
		if what == "" {
			what = "what DNS says"
		}
		if !w.apart {
			w.Find(w.at, text, w.phase+": asks about "+what).Lose("blockd has no lists for it; it stays with Postfix")
		}
	case word == "permit_mynetworks":
		stays(": let pass clients in mynetworks", "smtp.trusted")
		err = w.trusts()
	case word == "permit_sasl_authenticated":
		stays(": let pass who has logged in", "smtp.skip_authenticated")
		yes := true
		w.SkipAuthenticated = &yes
	case w.classes[word]:
		p, ok := w.params.set[word]
		if !ok {
			stays(": a restriction class", "main.cf does not say what it is")
			return r, nil
		}
		inner := walk{postfix: w.postfix, phase: w.phase, at: p.at, said: p, warn: w.warn, apart: w.apart, words: w.words}
		r.class, err = inner.list(p.value, depth+1)
		w.words, w.ended = inner.words, inner.ended
	case own.MatchString(word):
		stays("", "a check of Postfix's own; it stays with Postfix")
		if !w.warn && !w.apart && (word == "reject" || word == "defer") {
			w.Note("%s: to Postfix, blockd has no objection to what its lists let pass, and %q behind it does: keep what is to be let pass before it in a table of Postfix's own", w.at, word)
		}
		w.ended = word == "permit" || word == "permit_auth_destination" || !w.warn && (word == "reject" || word == "defer")
	default:
		stays("", "no restriction that an import knows")
	}
	return r, err
}
