// Package digest hashes addresses as the clients of hashed DNS lists (HashBL) do: such a client
// sends no address, but the digest of its text in lower case.
//
// SpamAssassin's HashBL plugin sends MD5 and SHA-1 in hexadecimal digits, and SHA-256 in the base32 of
// RFC 4648 without padding, because 64 hexadecimal digits do not fit into a label of DNS. rspamd's
// module rbl sends MD5 and SHA-1 alike.
package digest

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"blockd/mail/addr"
)

// Algorithm is one of the hashes that clients use. Its number stands in index files.
type Algorithm uint8

// The algorithms. MD5 and SHA-1 are broken where two texts of one digest do harm. Here they cost a
// sender who makes such a pair nothing more than that both are blocked as one.
const (
	MD5    Algorithm = 1
	SHA1   Algorithm = 2
	SHA256 Algorithm = 3

	last = SHA256
)

// names are the words of the configuration.
var names = [...]string{MD5: "md5", SHA1: "sha1", SHA256: "sha256"}

// Named returns the algorithm that a word of the configuration names.
func Named(word string) (Algorithm, error) {
	if i := slices.Index(names[:], word); i > 0 {
		return Algorithm(i), nil
	}
	return 0, fmt.Errorf(`want "md5", "sha1" or "sha256", have %q`, word)
}

// String returns the algorithm's word.
func (a Algorithm) String() string {
	if !a.Valid() {
		return fmt.Sprintf("algorithm %d", uint8(a))
	}
	return names[a]
}

// Valid reports whether a is one of the algorithms.
func (a Algorithm) Valid() bool { return a > 0 && a <= last }

// Set is a set of algorithms. The zero Set is empty.
type Set uint8

// SetOf returns the set of these algorithms.
func SetOf(all ...Algorithm) (s Set) {
	for _, a := range all {
		s |= 1 << a
	}
	return s
}

// Has reports whether a is in s.
func (s Set) Has(a Algorithm) bool { return a.Valid() && s&(1<<a) != 0 }

// Len returns the number of algorithms in s.
func (s Set) Len() (n int) {
	for range s.All() {
		n++
	}
	return n
}

// All returns the algorithms of s in ascending order.
func (s Set) All() iter.Seq[Algorithm] {
	return func(yield func(Algorithm) bool) {
		for a := MD5; a <= last; a++ {
			if s.Has(a) && !yield(a) {
				return
			}
		}
	}
}

// String returns the words of s, with a comma and a space between them; "none" if it is empty.
func (s Set) String() string {
	var words []string
	for a := range s.All() {
		words = append(words, a.String())
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

// Digest is the digest of one text by one algorithm. It is a comparable value.
type Digest struct {
	Algorithm Algorithm
	octets    [sha256.Size]byte // zeros after the algorithm's own size
}

// Of returns the digest of text as it is. An invalid algorithm gives the zero Digest. Text
// of up to 320 octets costs no allocation.
func Of[T ~string | ~[]byte](a Algorithm, text T) Digest {
	d := Digest{Algorithm: a}
	var room [320]byte // an address has at most 254 octets, some more with U-labels
	octets := append(room[:0], text...)
	switch a {
	case MD5:
		sum := md5.Sum(octets)
		copy(d.octets[:], sum[:])
	case SHA1:
		sum := sha1.Sum(octets)
		copy(d.octets[:], sum[:])
	case SHA256:
		d.octets = sha256.Sum256(octets)
	default:
		return Digest{}
	}
	return d
}

// Append appends the octets of d to b: 16 of MD5, 20 of SHA-1, 32 of SHA-256.
func (d *Digest) Append(b []byte) []byte {
	size := [...]int{0, md5.Size, sha1.Size, sha256.Size}[d.Algorithm]
	return append(b, d.octets[:size]...)
}

// String returns the digest as clients write it, in lower case.
func (d Digest) String() string {
	if d.Algorithm == SHA256 {
		return strings.ToLower(unpadded.EncodeToString(d.octets[:]))
	}
	return hex.EncodeToString(d.Append(nil))
}

// unpadded is the base32 of RFC 4648, section 6.
var unpadded = base32.StdEncoding.WithPadding(base32.NoPadding)

// base32Len is how long SHA-256 is in base32.
var base32Len = unpadded.EncodedLen(sha256.Size)

// ErrText is the error of a text that is no digest.
var ErrText = errors.New("no digest: want md5 (32) or sha1 (40) in hexadecimal digits, or sha256 in base32 (52) or hexadecimal digits (64)")

// Parse reads a digest in any case. Its length tells the algorithm: 32 hexadecimal digits are MD5, 40
// SHA-1, 64 SHA-256, and so are 52 digits of base32. Any other text gives ErrText.
func Parse(text string) (d Digest, err error) {
	switch len(text) {
	case base32Len:
		d.Algorithm = SHA256
		_, err = unpadded.Decode(d.octets[:], []byte(strings.ToUpper(text)))
		if err == nil && !strings.EqualFold(d.String(), text) {
			err = ErrText // bits after the last octet are set
		}
	case 2 * md5.Size, 2 * sha1.Size, 2 * sha256.Size:
		d.Algorithm = map[int]Algorithm{md5.Size: MD5, sha1.Size: SHA1, sha256.Size: SHA256}[len(text)/2]
		_, err = hex.Decode(d.octets[:], []byte(text))
	default:
		err = ErrText
	}
	if err != nil {
		return Digest{}, ErrText
	}
	return d, nil
}

// Texts returns the texts of a canonical address that clients hash: the address itself, and if its
// domain has A-labels, also the one with U-labels. A client hashes what the message has, and a
// message in UTF-8 has U-labels (RFC 6532).
func Texts(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(address) || !strings.Contains(address, "xn--") {
			return
		}
		if text, ok := addr.Unicode(address); ok {
			yield(text)
		}
	}
}
