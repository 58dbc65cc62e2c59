package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// signature is Source.Signature, parsed: a public key of minisign, and where
// the signature is published. The zero signature accepts any file.
type signature struct {
	key ed25519.PublicKey
	id  [8]byte // which key of the publisher's it is
	url *url.URL
}

func (s signature) expected() bool { return s.url != nil }

const (
	// signatureEnding is what minisign adds to a file's name.
	signatureEnding = ".minisig"

	keyMark    = "Ed" // Ed25519, of a public key
	hashedMark = "ED" // a signature of the file's BLAKE2b-512
	oldMark    = "Ed" // a signature of the file itself

	trustedMark = "trusted comment: "

	// maxSignature bounds a signature file. One has some 300 octets, and minisign
	// itself lets the trusted comment have 8 KiB.
	maxSignature = 16 << 10
)

// decodeBase64 accepts one way to write the octets, and no other. The library would
// skip line ends.
func decodeBase64(text string) ([]byte, error) {
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		return nil, base64.CorruptInputError(i)
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

var errKey = errors.New(`want "minisign:" and a public key, 56 letters that begin with RW`)

func parseSignature(text string, list *url.URL) (signature, error) {
	if text == "" {
		return signature{}, nil
	}
	encoded, ok := strings.CutPrefix(text, "minisign:")
	raw, err := decodeBase64(encoded)
	if !ok || err != nil || len(raw) != len(keyMark)+8+ed25519.PublicKeySize || string(raw[:2]) != keyMark {
		return signature{}, errKey
	}
	return signature{key: raw[10:], id: [8]byte(raw[2:10]), url: besideURL(list, signatureEnding)}, nil
}

// verifySignature reports why the file at path, a draft of s, is not what the
// owner of the key has signed. Like a checksum, the signature is fetched
// after the list.
func (f *Fetcher) verifySignature(ctx context.Context, s *source, path string) error {
	if !s.sig.expected() {
		return nil
	}
	text, err := f.beside(ctx, s, s.sig.url, Signature, "the signature file", maxSignature)
	if err != nil {
		return err
	}
	signed, err := s.sig.parse(text)
	if err != nil {
		return fault(Signature, "%w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash, err := blake2b.New512(nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if !ed25519.Verify(s.sig.key, hash.Sum(nil), signed) {
		return fault(Signature, "the file is not the one that was signed")
	}
	return nil
}

// parse returns the signature of the file from a signature file, if it is
// made by the configured key and its trusted comment is signed too.
//
// The old kind signs the file itself, and would need the whole file in memory. minisign
// makes it only when asked to (-l).
func (s signature) parse(text []byte) ([]byte, error) {
	lines := strings.Split(string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))), "\n")
	if len(lines) < 4 || !strings.HasPrefix(lines[2], trustedMark) {
		return nil, errors.New("what is published as the signature is none of minisign")
	}
	line, err := decodeBase64(lines[1])
	global, err2 := decodeBase64(lines[3])
	if err != nil || err2 != nil || len(line) != len(hashedMark)+8+ed25519.SignatureSize || len(global) != ed25519.SignatureSize {
		return nil, errors.New("what is published as the signature is none of minisign")
	}
	mark, id, signed := string(line[:2]), [8]byte(line[2:10]), line[10:]
	switch {
	case mark == oldMark:
		return nil, errors.New("the signature is of minisign's old kind; want one without -l")
	case mark != hashedMark:
		return nil, errors.New("the signature is of an unknown kind")
	case id != s.id:
		return nil, errors.New("the file was signed with another key")
	case !ed25519.Verify(s.key, append(bytes.Clone(signed), strings.TrimPrefix(lines[2], trustedMark)...), global):
		return nil, errors.New("the trusted comment is not signed by the key")
	}
	return signed, nil
}
