// Package minisign signs and checks as the program minisign does: Ed25519 over the BLAKE2b-512 of the octets, and a comment
// that is signed too (https://jedisct1.github.io/minisign/). What either of the two signs, the other one takes.
// Its old kind, which signs the octets themselves and would need all of them in memory, is not taken.
package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"golang.org/x/crypto/blake2b"
)

const (
	// Suffix is what is added to the name of a file for that of its signature.
	Suffix = ".minisig"

	// MaxSignature bounds a signature file, in octets. One has some 300, and minisign itself lets the trusted
	// comment have 8 KiB.
	MaxSignature = 16 << 10

	keyMark    = "Ed" // Ed25519, of a key
	hashedMark = "ED" // a signature of the BLAKE2b-512
	oldMark    = "Ed" // a signature of the octets themselves

	trustedMark   = "trusted comment: "
	untrustedMark = "untrusted comment: "
)

// PublicKey checks signatures. It is comparable. The zero PublicKey takes none.
type PublicKey struct {
	id  [8]byte // which key of its owner it is
	key [ed25519.PublicKeySize]byte
}

var errKey = errors.New(`want "minisign:" and a public key, 56 letters that begin with RW`)

// ParsePublicKey reads "minisign:" and the second line of a file with a public key.
func ParsePublicKey(text string) (k PublicKey, err error) {
	encoded, ok := strings.CutPrefix(text, "minisign:")
	raw, err := decodeBase64(encoded)
	if !ok || err != nil || len(raw) != len(keyMark)+len(k.id)+len(k.key) || string(raw[:2]) != keyMark {
		return k, errKey
	}
	copy(k.id[:], raw[2:])
	copy(k.key[:], raw[10:])
	return k, nil
}

// String is the text that ParsePublicKey reads.
func (k PublicKey) String() string {
	return "minisign:" + base64.StdEncoding.EncodeToString(append(append([]byte(keyMark), k.id[:]...), k.key[:]...))
}

// decodeBase64 accepts one way to write the octets, and no other. The library would skip line ends.
func decodeBase64(text string) ([]byte, error) {
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		return nil, base64.CorruptInputError(i)
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

// Errors of Signature and Check.
var (
	ErrForm       = errors.New("what is published as the signature is none of minisign")
	ErrAnotherKey = errors.New("the file was signed with another key")
	ErrContent    = errors.New("the file is not the one that was signed")
)

// Signature is a signature file whose trusted comment was signed by a key. What it signs is still to be checked.
type Signature struct {
	Comment string // the trusted comment
	by      PublicKey
	signed  []byte
}

// Signature reads a signature file that is made by the key.
func (k PublicKey) Signature(text []byte) (s Signature, err error) {
	lines := strings.Split(string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))), "\n")
	if len(text) > MaxSignature || len(lines) < 4 || !strings.HasPrefix(lines[2], trustedMark) {
		return s, ErrForm
	}
	line, err := decodeBase64(lines[1])
	global, err2 := decodeBase64(lines[3])
	if err != nil || err2 != nil || len(line) != len(hashedMark)+len(k.id)+ed25519.SignatureSize || len(global) != ed25519.SignatureSize {
		return s, ErrForm
	}
	mark, id, signed := string(line[:2]), [8]byte(line[2:10]), line[10:]
	comment := strings.TrimPrefix(lines[2], trustedMark)
	switch {
	case mark == oldMark:
		return s, errors.New("the signature is of minisign's old kind; want one without -l")
	case mark != hashedMark:
		return s, errors.New("the signature is of an unknown kind")
	case id != k.id:
		return s, ErrAnotherKey
	case !ed25519.Verify(k.key[:], append(bytes.Clone(signed), comment...), global):
		return s, errors.New("the trusted comment is not signed by the key")
	}
	return Signature{comment, k, signed}, nil
}

// Check reads all of r, and reports ErrContent if that is not what was signed.
func (s Signature) Check(r io.Reader) error {
	hash, err := blake2b.New512(nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(hash, r); err != nil {
		return err
	}
	if len(s.signed) == 0 || !ed25519.Verify(s.by.key[:], hash.Sum(nil), s.signed) {
		return ErrContent
	}
	return nil
}

// Verify checks octets by the one of keys that has signed them, and returns the trusted comment.
func Verify(keys []PublicKey, octets, signature []byte) (comment string, err error) {
	err = errors.New("no key to check it by")
	for _, k := range keys {
		var s Signature
		if s, err = k.Signature(signature); err == nil {
			return s.Comment, s.Check(bytes.NewReader(octets))
		}
		if !errors.Is(err, ErrAnotherKey) {
			return "", err
		}
	}
	return "", err
}
