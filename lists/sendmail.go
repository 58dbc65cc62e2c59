package lists

import "strings"

// sendmailLine reads one line of an access map: a key, with a tag or without, blanks,
// and what is to be done. makemap(8) refuses lines that begin with a blank.
func sendmailLine(r *reading, text string) {
	if blankAt(r.at.text) > 0 {
		r.fail(Syntax, "", "begins with a blank, which makemap refuses")
		return
	}
	if !r.utf8(text) {
		return
	}
	key, value := cutAccess(text)
	tag, key := cutTag(key)
	switch {
	case tag != "" && !strings.EqualFold(tag, fromTag) && !strings.EqualFold(tag, connectTag):
		r.skip(Directive, "the tag "+tag+": is not about the sender")
	case key == "":
		r.fail(Syntax, text, "a tag without a key; there is no blank between them")
	case key == "<>":
		r.fail(NullSender, key, "the null sender cannot be listed")
	case value == "":
		r.fail(MissingValue, "", "a key without an action")
	case r.sendmailAction(value):
		r.sendmailKey(tag, key)
	}
}

// The tags of keys that are read, in any case.
const (
	fromTag    = "From"
	connectTag = "Connect"
	ipv6Tag    = "IPv6"
)

// cutTag takes the tag off a key, without its colon. A client's IPv6 address has
// colons too, and sendmail writes it with a tag of its own.
func cutTag(key string) (tag, rest string) {
	tag, rest, ok := strings.Cut(key, ":")
	switch _, groups := leadingGroups(key); {
	case !ok || groups || looksNet(key) || !isOption(tag):
		return "", key
	case strings.EqualFold(tag, ipv6Tag):
		return connectTag, key
	}
	return tag, rest
}

// sendmailKey queues the entry of a key. A tag says whether the sender or the
// client is meant; without one the key itself does.
func (r *reading) sendmailKey(tag, key string) {
	if inner, rest, ok := strings.Cut(key, ":"); ok && strings.EqualFold(inner, ipv6Tag) {
		key = rest
	}
	_, groups := leadingGroups(key)
	switch client := groups || looksNet(key); {
	case strings.EqualFold(tag, connectTag) && !client:
		r.fail(Unsupported, key, "a client is listed by its address, not by its name")
	case strings.EqualFold(tag, fromTag) && client:
		r.fail(Unsupported, key, "From: is about the sender, and this is a client's address")
	default:
		r.postfixKey(key)
	}
}

// sendmailAction reads the value of an entry.
func (r *reading) sendmailAction(value string) bool {
	value = unquote(value)
	word, text := cutWord(value)
	r.because(text)
	switch strings.ToUpper(word) {
	case "OK", "RELAY":
		r.action = Allow
		return true
	case "REJECT":
		return r.refuse(Block, word)
	case "DISCARD":
		return r.refuse(Discard, word)
	}
	text, class := errorText(value)
	switch class {
	case '4':
		r.because(text)
		return r.refuse(Tempfail, word)
	case '5':
		r.because(text)
		return r.refuse(Block, word)
	}
	return r.fail(UnsupportedAction, word, "an action that a list of senders cannot take")
}

// errorText reads "550 text", ERROR:5.7.1:"550 text" and ERROR:"550 text". It
// returns the text for the client, as ParseAnswer reads it, and the class of its codes,
// 4 or 5; 0 if there is none, or two that contradict each other.
func errorText(value string) (text string, class byte) {
	text = value
	status := ""
	if hasFold(value, "error:") {
		text = value[len("error:"):]
		if code, rest, ok := strings.Cut(text, ":"); ok && isStatus(code) {
			text, class, status = rest, code[0], code
		}
		text = unquote(text)
	}
	code, rest := cutWord(text)
	switch coded := isCode(code) && rest != ""; {
	case coded && class != 0 && class != code[0]:
		return "", 0
	case coded:
		class = code[0]
		if word, _ := cutWord(rest); status != "" && !isStatus(word) {
			text = code + " " + status + " " + rest
		}
	case status != "":
		text = strings.TrimSpace(status + " " + text)
	}
	return text, class
}

// isStatus tells an enhanced status code of class 4 or 5 (RFC 3463, section 2).
func isStatus(code string) bool {
	class, rest, ok := strings.Cut(code, ".")
	subject, detail, more := strings.Cut(rest, ".")
	return ok && more && (class == "4" || class == "5") && allDigits(subject) && len(subject) <= 3 && allDigits(detail) && len(detail) <= 3
}

// sendmailMark tells a tagged key with a value: "From:bulk.test REJECT". The form
// "From: promo@bulk.test" of a pasted header has a blank behind the colon.
func sendmailMark(text string) bool {
	for _, tag := range [...]string{"from:", "to:", "connect:", "spam:", "delay:", "tls_"} {
		if hasFold(text, tag) && len(text) > len(tag) && blankAt(text[len(tag):]) == 0 {
			return indexBlank(text) > 0
		}
	}
	return false
}
