package history

import (
	"encoding/hex"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A line is eight hexadecimal digits, a blank, texts with a tab between them, LF. The
// digits are the CRC-32C of the text after the blank. Empty texts at the end are left
// out. Controls, DEL and backslash are written as \xNN, so that neither a
// tab nor a line end comes from a client.
const (
	fileHead = "blockd decisions 1\n"
	sumSize  = 9 // digits and blank
	texts    = 21

	// maxLine is the longest line: every text at its bound, with every octet escaped.
	maxLine = sumSize + texts*(4*maxText+1)
)

// castagnoli is the table of the checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The flags of a line: a letter each.
const (
	flagExempt        = 'e'
	flagShadow        = 's'
	flagAuthenticated = 'a'
	flagFirstSeen     = 'f'
	flagUnasked       = 'u'
	flagSole          = 'o'
	flagCorrespondent = 'c'
	flagExcused       = 'x'
	flagSeveral       = 'm'
	flagHearsay       = 'h'
)

// appendLine adds the line of r. It allocates only to grow dst.
func appendLine(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = append(dst, "........ "...)
	dst = strconv.AppendInt(dst, r.Time.UnixMilli(), 10)
	for _, text := range [...]string{r.Door, r.Outcome, r.Verdict} {
		dst = appendText(append(dst, '\t'), text)
	}
	dst = append(dst, '\t')
	if r.Client.IsValid() {
		dst = r.Client.WithZone("").AppendTo(dst)
	}
	for _, text := range [...]string{r.Helo, r.Sender, r.Recipient, r.Generation, r.Ref} {
		dst = appendText(append(dst, '\t'), text)
	}
	dst = appendFlags(append(dst, '\t'), r)
	if r.List != "" || r.Source != "" {
		for _, text := range [...]string{r.Source, r.List, r.File} {
			dst = appendText(append(dst, '\t'), text)
		}
		dst = strconv.AppendInt(append(dst, '\t'), int64(r.Line), 10)
		for _, text := range [...]string{r.Entry, r.Scope, r.Action, r.Reason} {
			dst = appendText(append(dst, '\t'), text)
		}
	}
	if r.Repeated > 0 || r.Owner != "" {
		if r.List == "" && r.Source == "" {
			dst = append(dst, "\t\t\t\t\t\t\t\t"...) // the texts of the entry
		}
		dst = append(dst, '\t')
		if r.Repeated > 0 {
			dst = strconv.AppendInt(dst, int64(r.Repeated), 10)
		}
		dst = appendText(append(dst, '\t'), r.Owner)
	}
	for dst[len(dst)-1] == '\t' {
		dst = dst[:len(dst)-1]
	}
	sum := digits(crc32.Checksum(dst[start+sumSize:], castagnoli))
	copy(dst[start:], sum[:])
	return append(dst, '\n')
}

func digits(sum uint32) (text [sumSize - 1]byte) {
	hex.Encode(text[:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return text
}

func appendFlags(dst []byte, r *Record) []byte {
	if r.Exempt {
		dst = append(dst, flagExempt)
	}
	if r.Shadow {
		dst = append(dst, flagShadow)
	}
	if r.Authenticated {
		dst = append(dst, flagAuthenticated)
	}
	if r.FirstSeen {
		dst = append(dst, flagFirstSeen)
	}
	if r.Unasked {
		dst = append(dst, flagUnasked)
	}
	if r.Sole {
		dst = append(dst, flagSole)
	}
	if r.Correspondent {
		dst = append(dst, flagCorrespondent)
	}
	if r.Pardoned {
		dst = append(dst, flagExcused)
	}
	if r.Several {
		dst = append(dst, flagSeveral)
	}
	if r.Hearsay {
		dst = append(dst, flagHearsay)
	}
	return dst
}

// appendText escapes. Nearly every text is plain.
func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	plain := 0
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f || c == '\\' {
			const digits = "0123456789abcdef"
			dst = append(dst, s[plain:i]...)
			dst = append(dst, '\\', 'x', digits[c>>4], digits[c&15])
			plain = i + 1
		}
	}
	return append(dst, s[plain:]...)
}

// summed reports whether a line without its end agrees with its checksum.
func summed(line []byte) bool {
	if len(line) < sumSize || line[sumSize-1] != ' ' {
		return false
	}
	return digits(crc32.Checksum(line[sumSize:], castagnoli)) == [sumSize - 1]byte(line)
}

// parseLine reads the text after the checksum. The texts of r are parts of it,
// unless they were escaped.
func parseLine(line string, r *Record) error {
	var parts [texts]string
	n, rest, more := 0, line, true
	for ; more; n++ {
		if n == texts {
			return errNoLine
		}
		parts[n], rest, more = strings.Cut(rest, "\t")
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	*r = Record{Time: time.UnixMilli(at).UTC()}
	if parts[4] != "" && err == nil {
		r.Client, err = netip.ParseAddr(parts[4])
	}
	for i, to := range [...]*int{14: &r.Line, 19: &r.Repeated} {
		if to != nil && parts[i] != "" && err == nil {
			*to, err = strconv.Atoi(parts[i])
		}
	}
	if err != nil {
		return errNoLine
	}
	for i, to := range [...]*string{1: &r.Door, &r.Outcome, &r.Verdict, nil, &r.Helo, &r.Sender, &r.Recipient, &r.Generation, &r.Ref,
		nil, &r.Source, &r.List, &r.File, nil, &r.Entry, &r.Scope, &r.Action, &r.Reason, nil, &r.Owner} {
		if to != nil {
			if *to, err = unescape(parts[i]); err != nil {
				return err
			}
		}
	}
	for _, c := range parts[10] {
		switch c {
		case flagExempt:
			r.Exempt = true
		case flagShadow:
			r.Shadow = true
		case flagAuthenticated:
			r.Authenticated = true
		case flagFirstSeen:
			r.FirstSeen = true
		case flagUnasked:
			r.Unasked = true
		case flagSole:
			r.Sole = true
		case flagCorrespondent:
			r.Correspondent = true
		case flagExcused:
			r.Pardoned = true
		case flagSeveral:
			r.Several = true
		case flagHearsay:
			r.Hearsay = true
		default:
			return errNoLine
		}
	}
	return nil
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if len(s) < i+4 || s[i+1] != 'x' {
			return "", errNoLine
		}
		c, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil {
			return "", errNoLine
		}
		b.WriteByte(byte(c))
		i += 3
	}
	return b.String(), nil
}
