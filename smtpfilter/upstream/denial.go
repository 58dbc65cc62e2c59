package upstream

import (
	"regexp"
	"slices"
	"strings"

	"blockd/smtpfilter/wire"
)

// refusal is the reason why a server refuses the self-test.
type refusal uint8

const (
	refusesRelay     refusal = iota // it does not relay: the answer that the test is for
	refusesDomain                   // the recipient, or its domain
	refusesClient                   // the client's address or its name in DNS
	refusesHelo                     // the client's HELO
	refusesSender                   // the sender
	refusesForNow                   // greylisting, or any other 4xx
	refusesSomething                // it gives no reason
)

// The words of a refusal that show its reason. They are read in lower case,
// one by one: see refusalWords.
var (
	relayWords = set("relay relays relayed relaying relay-access")
	// denialWords turn a sentence about relaying into a refusal of it.
	denialWords = set("denied deny denies not no cannot can't unable prohibited forbidden refused refuses rejected disallowed disabled " +
		"restricted never don't won't doesn't isn't without unauthorized authentication authenticated")

	clientWords = set("client clients blocked blocklist blocklisted blacklist blacklisted listed dnsbl rbl reputation ptr rdns hostname spamhaus banned")
	heloWords   = set("helo ehlo")
	senderWords = set("sender senders spf dmarc dkim")
	laterWords  = set("greylist greylisted greylisting graylist graylisted graylisting temporarily later again deferred delayed")
	loginWords  = set("authentication authenticate authenticated auth login")
	domainWords = set("unknown found exist exists resolve resolved resolvable undeliverable nullmx")

	// A bare 5.7.1 or 4.7.1 ("a security or policy status", RFC 3463) is taken for
	// a denied relay only if none of these words points elsewhere.
	bareClientWords = set("host ip network server service connection access policy spam content message virus")
	bareDomainWords = set("domain mailbox user account")
)

// phrases are sentences in which servers deny relaying without the word.
var denialPhrases = []string{
	"list of allowed rcpthosts",               // qmail and its descendants
	"i cannot deliver mail for",               // Haraka: no plugin takes the recipient; DNS is not asked
	"delivery is not allowed to this address", // hMailServer: not from outside to outside
	"send to a non-local e-mail address",      // MailEnable: not without a login
	"not a gateway",                           // IMail
}

// invalidRecipient is OpenSMTPD's reply if no rule takes a recipient. OpenSMTPD asks no
// DNS at RCPT. But other servers say so of an address that they could not look up, so
// it counts only for a recipient of the operator's choice.
const invalidRecipient = "invalid recipient"

func set(words string) map[string]bool {
	m := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		m[word] = true
	}
	return m
}

var enhancedCode = regexp.MustCompile(`^([245])\.(\d{1,3})\.(\d{1,3})(?: |$)`)

// refusalOf says what r, a 4xx or 5xx to the self-test's RCPT, objects to. chosen is true
// if the operator has named the recipient.
//
// Servers deny relaying with 5.7.1 (or 4.7.1, put off), with words, or with both. The
// same codes stand in refusals of clients, HELO names and senders. A server that refuses
// one of these does not show what it would do with the recipient.
// The first line with content decides: later lines may be a footer that
// the server adds to each refusal.
func refusalOf(r wire.Reply, chosen bool) refusal {
	enhanced := ""
	for line := range strings.Lines(string(r.Raw)) {
		code, words := refusalWords(line)
		if enhanced == "" {
			enhanced = code
		}
		switch of := lineRefuses(words); {
		case of == refusesRelay && r.Code < 500 && r.Code != 454 && code != "4.7.1":
			return refusesForNow
		case of != refusesSomething:
			return of
		case strings.HasPrefix(code, "5.1.") || strings.HasPrefix(code, "4.1."):
			return refusesDomain
		case chosen && r.Code == 550 && strings.HasPrefix(strings.Join(words, " "), invalidRecipient):
			return refusesRelay
		case r.Code == 530 && anyOf(words, loginWords):
			return refusesRelay // RFC 4954, section 6
		}
	}
	switch {
	case enhanced == "5.7.1" || enhanced == "4.7.1" && r.Code == 454:
		return bareRefusal(r)
	case r.Code < 500:
		return refusesForNow
	}
	return refusesSomething
}

// lineRefuses is refusalOf for the words of one line.
func lineRefuses(words []string) refusal {
	text := strings.Join(words, " ")
	for _, phrase := range denialPhrases {
		if strings.Contains(text, phrase) {
			return refusesRelay
		}
	}
	switch {
	case anyOf(words, heloWords):
		return refusesHelo
	case anyOf(words, clientWords):
		return refusesClient
	case anyOf(words, senderWords):
		return refusesSender
	case anyOf(words, laterWords):
		return refusesForNow
	case anyOf(words, domainWords):
		return refusesDomain
	case anyOf(words, relayWords) && anyOf(words, denialWords):
		return refusesRelay
	}
	return refusesSomething
}

func anyOf(words []string, of map[string]bool) bool {
	return slices.ContainsFunc(words, func(w string) bool { return of[w] })
}

// bareRefusal is refusalOf for a 5.7.1 or 4.7.1 with unclear words.
// Postfix's "Recipient address rejected: Access denied" is the end of a list of
// restrictions that permits only what it names: that is a denied relay too.
func bareRefusal(r wire.Reply) refusal {
	for line := range strings.Lines(string(r.Raw)) {
		_, words := refusalWords(line)
		if strings.HasPrefix(strings.Join(words, " "), "recipient address rejected access denied") {
			continue
		}
		for _, w := range words {
			switch {
			case bareClientWords[w]:
				return refusesClient
			case bareDomainWords[w]:
				return refusesDomain
			}
		}
	}
	return refusesRelay
}

// refusalWords takes a line of a reply apart: its enhanced code and its words, in lower
// case. A text with an @ or a dot is an address, a host name or a web page. It is
// an echo or the server's own name, and no word.
func refusalWords(line string) (enhanced string, words []string) {
	line = strings.TrimSpace(line[min(4, len(line)):])
	if m := enhancedCode.FindString(line); m != "" {
		enhanced, line = strings.TrimSpace(m), line[len(m):]
	}
	for _, w := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ';' || r == ',' || r == '(' || r == ')' }) {
		w = strings.Trim(strings.ToLower(w), `.:!?"'<>[]-`)
		if w != "" && !strings.ContainsAny(w, "@.") {
			words = append(words, w)
		}
	}
	return enhanced, words
}
