package msgauth

import (
	"strings"
)

// Results writes the value of an Authentication-Results field (RFC 8601, section
// 2.2): what was found of one message, in the name of id, a host name of ours. SPF
// that was not asked for is not in it, nor is a message that was not looked at.
// The lines are folded with CRLF and a tab, and what a sender wrote is in it as a
// token or a quoted text of printable ASCII only.
func Results(id string, f SPF, sender string, m *Message) string {
	var b strings.Builder
	b.WriteString(id)
	before := b.Len()
	if f.Result != "" {
		method(&b, "spf", f.Result, "smtp.mailfrom", sender)
	}
	if m != nil {
		for _, s := range m.Signatures {
			method(&b, "dkim", dkimResult(s), "header.d", s.Domain, "header.s", s.Selector, "header.a", s.Algorithm)
		}
	}
	if b.Len() == before {
		b.WriteString("; none")
	}
	return b.String()
}

// dkimResult is a word of RFC 8601, section 2.7.1.
func dkimResult(s Signature) string {
	switch s.Proof {
	case Pass:
		return "pass"
	case Unknown, Short:
		return "temperror"
	}
	return "fail"
}

// method adds one result with its properties, pairs of name and value.
func method(b *strings.Builder, name, result string, properties ...string) {
	b.WriteString(";\r\n\t" + name + "=" + result)
	for i := 0; i < len(properties); i += 2 {
		if v := properties[i+1]; v != "" {
			b.WriteString(" " + properties[i] + "=" + pvalue(v))
		}
	}
}

// maxValue bounds what is repeated of a sender's text, so that lines stay short.
const maxValue = 320

// pvalue writes a value so that no reader can see more than one value in it. An
// address of plain characters stands as it is; everything else is quoted.
func pvalue(s string) string {
	s = s[:min(len(s), maxValue)]
	plain := true
	b := make([]byte, 0, len(s)+2)
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c < ' ' || c > '~':
			c, plain = '?', false
		case c == '"' || c == '\\':
			b, plain = append(b, '\\'), false
		case c == ' ' || strings.IndexByte(`()<>,;:/[]?=`, c) >= 0:
			plain = false
		}
		b = append(b, c)
	}
	if plain && len(s) > 0 && strings.Count(s, "@") <= 1 {
		return s
	}
	return string(append(b, '"'))
}

// Claims reports whether an Authentication-Results field of a message from outside
// may be taken for one of id's, and so must go before id adds its own (RFC 8601,
// section 5). value is what stands behind the colon.
//
// Comments, quotes, blanks, case, a dot at the end and the spelling of an
// internationalised name make no difference. A field whose first part cannot be
// read for certain claims to be anybody's, so it is one of id's too.
func Claims(value, id string) bool {
	words, err := scan(value)
	if err != nil {
		return true
	}
	ours, name, gap := sameName(id), "", false
	for i, w := range words {
		if w.sign == ';' {
			return name == "" // which is nobody's
		}
		gap = gap || i > 0 && !w.joined
		if w.sign != 0 && w.sign != '.' && !gap {
			return true // a sign that no name has
		}
		if name += w.text; w.sign != 0 {
			name += string(w.sign)
		}
		// A name may end at every gap, and one that does not go on beyond it.
		if last := i == len(words)-1; (last || !words[i+1].joined || words[i+1].sign == ';') && sameName(name) == ours {
			return true
		}
	}
	return name == ""
}

// sameName is the same for all spellings of one name.
func sameName(s string) string {
	if name := canonical(s); name != "" {
		return name
	}
	return strings.TrimSuffix(strings.ToLower(s), ".")
}
