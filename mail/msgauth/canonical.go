package msgauth

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strings"
)

// bodyHash is the hash of a body in one of the two forms of RFC 6376, section 3.4. It
// takes a line end without CR for one with it, and keeps nothing of the body.
type bodyHash struct {
	relaxed bool
	hash    hash.Hash
	out     []byte // goes to hash next

	ends  int  // line ends that count only if something follows
	blank bool // so do blanks
	cr    bool // the last octet was a CR
	some  bool // something has come that counts
}

func newBodyHash(relaxed bool) *bodyHash { return &bodyHash{relaxed: relaxed, hash: sha256.New()} }

const bodyBuffer = 4096

// Write takes a part of the body. It never fails.
func (b *bodyHash) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n':
			b.ends++
			b.blank, b.cr = false, false
			continue
		case b.cr:
			b.put('\r')
		}
		b.cr = false
		switch {
		case c == '\r':
			b.cr = true
		case b.relaxed && (c == ' ' || c == '\t'):
			b.blank = true
		default:
			b.put(c)
		}
	}
	return len(p), nil
}

func (b *bodyHash) put(c byte) {
	for ; b.ends > 0; b.ends-- {
		b.add('\r', '\n')
	}
	if b.blank {
		b.add(' ')
		b.blank = false
	}
	b.add(c)
	b.some = true
}

func (b *bodyHash) add(octets ...byte) {
	if len(b.out)+len(octets) > bodyBuffer {
		b.hash.Write(b.out)
		b.out = b.out[:0]
	}
	b.out = append(b.out, octets...)
}

// sum ends the body: its last line has an end, and of an empty one relaxed form has
// nothing.
func (b *bodyHash) sum() []byte {
	if b.cr {
		b.put('\r')
	}
	if b.some || !b.relaxed {
		b.add('\r', '\n')
	}
	b.hash.Write(b.out)
	return b.hash.Sum(nil)
}

// headerHash is the hash of what a signature, the field at place own, says of the header:
// the fields that it names, of one name from the bottom up, and itself without b=.
func (h *header) headerHash(s sealTags, own int) []byte {
	places := map[string][]int{}
	for i, f := range h.fields {
		if i != own {
			places[f.name] = append(places[f.name], i)
		}
	}
	sum := sha256.New()
	for _, name := range s.fields {
		if all := places[name]; len(all) > 0 { // one that is not there keeps others from being added
			places[name] = all[:len(all)-1]
			f := h.fields[all[len(all)-1]]
			sum.Write(canonicalField(h.raw[f.from:f.end], s.relaxedHeader))
		}
	}
	f := h.fields[own]
	field := canonicalField(withoutSignature(h.raw[f.from:f.end]), s.relaxedHeader)
	sum.Write(bytes.TrimRight(field, "\r\n"))
	return sum.Sum(nil)
}

// canonicalField is a field in one of the two forms of RFC 6376, section 3.4.
func canonicalField(raw []byte, relaxed bool) []byte {
	if !relaxed {
		return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	name, value, _ := strings.Cut(string(raw), ":")
	words := strings.FieldsFunc(value, func(c rune) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' })
	return []byte(strings.ToLower(strings.TrimRight(name, " \t")) + ":" + strings.Join(words, " ") + "\r\n")
}

// withoutSignature is a DKIM-Signature field with the value of its tag b= gone.
func withoutSignature(raw []byte) []byte {
	from := bytes.IndexByte(raw, ':') + 1
	for from < len(raw) {
		end := len(raw)
		if i := bytes.IndexByte(raw[from:], ';'); i >= 0 {
			end = from + i
		}
		name, _, ok := bytes.Cut(raw[from:end], []byte("="))
		if ok && string(bytes.Trim(name, " \t\r\n")) == "b" {
			return append(raw[:from+len(name)+1:from+len(name)+1], raw[end:]...)
		}
		from = end + 1
	}
	return raw
}
