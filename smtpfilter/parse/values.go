package parse

import (
	"bytes"
	"math"
	"time"
)

// The bounds of parameter values, in octets.
const (
	maxSizeDigits = 20  // RFC 1870, section 6
	maxHoldDigits = 9   // RFC 4865, section 4.1; RFC 2852 for BY
	maxEnvID      = 100 // RFC 3461, section 4.4
	maxOrcpt      = 500 // RFC 3461, section 4.2
	maxAuth       = 500 // RFC 4954, section 3
)

// parseSize reads the octet count of SIZE. A count over 63 bits is no size: no
// server could take the message, and many overflow.
func parseSize(v []byte) (size int64, ok bool) {
	if !isDigits(v, maxSizeDigits) {
		return 0, false
	}
	for _, c := range v {
		d := int64(c - '0')
		if size > (math.MaxInt64-d)/10 {
			return 0, false
		}
		size = size*10 + d
	}
	return size, true
}

func validSize(v []byte) bool {
	_, ok := parseSize(v)
	return ok
}

func validBody(v []byte) bool {
	return isWord(v, "7BIT") || isWord(v, "8BITMIME") || isWord(v, "BINARYMIME")
}

// validAuth reads an address in xtext, or "<>" (RFC 4954, section 5). Upstream decides
// whether to believe it.
func validAuth(v []byte) bool { return len(v) <= maxAuth && isXtext(v) }

func validRet(v []byte) bool { return isWord(v, "FULL") || isWord(v, "HDRS") }

func validEnvID(v []byte) bool { return len(v) <= maxEnvID && isXtext(v) }

// validNotify reads NEVER alone, or a list of the others, each at most once.
func validNotify(v []byte) bool {
	if isWord(v, "NEVER") {
		return true
	}
	var success, failure, delay bool
	for word := range bytes.SplitSeq(v, []byte(",")) {
		var seen *bool
		switch {
		case isWord(word, "SUCCESS"):
			seen = &success
		case isWord(word, "FAILURE"):
			seen = &failure
		case isWord(word, "DELAY"):
			seen = &delay
		default:
			return false
		}
		if *seen {
			return false
		}
		*seen = true
	}
	return true
}

// validOrcpt reads "type;address" with the address in xtext; of "utf-8" types it
// takes the two forms in ASCII (RFC 6533, section 3).
func validOrcpt(v []byte) bool {
	kind, address, ok := bytes.Cut(v, []byte(";"))
	return ok && len(v) <= maxOrcpt && isKeyword(kind) && len(address) > 0 && isXtext(address)
}

// validBy reads "[+-]seconds;N" or "R", with a "T" after it for a trace.
func validBy(v []byte) bool {
	seconds, mode, ok := bytes.Cut(v, []byte(";"))
	if len(seconds) > 0 && (seconds[0] == '-' || seconds[0] == '+') {
		seconds = seconds[1:]
	}
	return ok && isDigits(seconds, maxHoldDigits) &&
		(isWord(mode, "N") || isWord(mode, "NT") || isWord(mode, "R") || isWord(mode, "RT"))
}

// validPriority reads -9 to 9; "-0" and "+1" are not in the grammar.
func validPriority(v []byte) bool {
	if len(v) == 2 && v[0] == '-' && v[1] != '0' {
		v = v[1:]
	}
	return len(v) == 1 && isDigit(v[0])
}

// validRRVS reads a date, with ";C" or ";R" after it (RFC 7293, section 3.1).
func validRRVS(v []byte) bool {
	date, action, ok := bytes.Cut(v, []byte(";"))
	return validDate(date) && (!ok || isWord(action, "C") || isWord(action, "R"))
}

func validHoldFor(v []byte) bool { return isDigits(v, maxHoldDigits) }

func validDate(v []byte) bool {
	_, err := time.Parse(time.RFC3339, string(v))
	return err == nil
}

// isXtext reports whether b is xtext (RFC 3461, section 4): what isValue takes,
// and "+" before two hexadecimal digits. They are capitals there; Postfix and others take and write small ones, too.
func isXtext(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if b[i] != '+' {
			continue
		}
		if len(b)-i < 3 || !isHex(b[i+1]) || !isHex(b[i+2]) {
			return false
		}
		i += 2
	}
	return true
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isDigits reports whether b is 1 to limit digits.
func isDigits(b []byte, limit int) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return 0 < len(b) && len(b) <= limit
}

// isWord compares without case. Only ASCII reaches it, see isValue.
func isWord(b []byte, word string) bool { return bytes.EqualFold(b, []byte(word)) }
