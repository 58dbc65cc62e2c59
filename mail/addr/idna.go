package addr

import (
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// profile is UTS 46 for look-ups, non-transitional. It does not judge the ASCII
// that is left, because scanDomain does, and allows hyphens in the third and
// fourth place as it must for names like "r3---sn-a5m.test".
var profile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false),
	idna.StrictDomainName(false), idna.CheckHyphens(false), idna.CheckJoiners(true))

// maxULabel bounds what is handed to the Punycode encoder, whose time grows with the square of its input: 0.9 ms for
// 1,020 octets, 52 ms for 8,100. No label that fits in 63 octets afterwards is longer before: it has at most 59 code
// points, each composed of a few of 4 octets.
const maxULabel = 1024

// dots are the label separators of UTS 46.
var dots = strings.NewReplacer("\u3002", ".", "\uFF0E", ".", "\uFF61", ".")

// mapDomain gives the A-form of a name that has octets above 127. It works label by label, as a list entry for a
// parent domain does: a label is good or bad whatever stands beside it, so no sender escapes the entry for its domain
// by an odd label in front.
func mapDomain(s string) (string, fault) {
	// Before the mapping: it drops these characters and reports nothing.
	if f := badRune(s, true); !f.none() {
		return "", f
	}
	labels := strings.Split(strings.TrimSuffix(dots.Replace(s), "."), ".")
	for i, label := range labels {
		var f fault
		if labels[i], f = mapLabel(label); !f.none() {
			return "", f
		}
	}
	mapped := strings.Join(labels, ".")
	n, seen, f := scanDomain(mapped)
	switch {
	case !f.none():
		return "", f
	case n < len(mapped) || seen&(high|capital|literal) != 0:
		return "", fault{IDNA, "maps to a character that no domain has"}
	}
	return mapped, fault{}
}

// mapLabel gives the A-form of one label. An A-label that the tables cannot convert, as one of a newer Unicode, is
// itself: on the wire it is a name like any other, and DNS compares it so (RFC 5890, section 2.3.2.1).
func mapLabel(label string) (string, fault) {
	n, seen, _ := scanDomain(label)
	switch {
	case label == "":
		return "", syntax("empty domain or label")
	case len(label) > maxULabel || len(label) > maxLabel && seen&high == 0:
		return "", fault{LabelTooLong, "label of more than 63 octets"}
	case n == len(label) && seen&high == 0:
		return strings.ToLower(label), fault{}
	}
	if a := strings.ToLower(norm.NFKC.String(label)); isACE(a) && len(a) > len("xn--") && len(label) > len(a) && strings.IndexByte(a, '.') < 0 { // written in full-width characters
		return mapLabel(a)
	}
	// The library gives "" and no error for a label that is only "xn--": unchecked,
	// an entry for a whole top-level domain.
	bad := fault{IDNA, "not a valid internationalised label"}
	a, err := profile.ToASCII(label)
	switch {
	case err != nil || a == "" || strings.Contains(a, "."):
		return "", bad
	case len(a) > maxLabel:
		return "", fault{LabelTooLong, "label of more than 63 octets in its A-form"}
	}
	// There and back: the mapping above is not checked for characters that Unicode has not assigned.
	if _, ok := toUnicode(a); !ok && isACE(a) {
		return "", bad
	}
	return a, fault{}
}

// toUnicode gives the U-label of an A-label in small letters; false if there is none that has this A-label.
func toUnicode(a string) (u string, ok bool) {
	u, err := profile.ToUnicode(a)
	if err != nil || isACE(u) {
		return "", false
	}
	back, err := profile.ToASCII(u) // the decoder takes what the encoder would never give
	return u, err == nil && back == a
}

// Unicode returns a canonical address with the U-labels of its domain in place of the
// A-labels, as a message in UTF-8 has it (RFC 6532). ok is false if its domain has no
// A-label that can be converted. Parse gives the canonical address back.
func Unicode(address string) (text string, ok bool) {
	at := strings.LastIndexByte(address, '@') + 1
	labels := strings.Split(address[at:], ".")
	for i, label := range labels {
		if !isACE(label) {
			continue
		}
		if u, known := toUnicode(label); known {
			labels[i], ok = u, true
		}
	}
	return address[:at] + strings.Join(labels, "."), ok
}
