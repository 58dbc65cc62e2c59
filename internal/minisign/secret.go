package minisign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// SecretKey signs. Do not print it.
type SecretKey struct {
	id  [8]byte
	key ed25519.PrivateKey
}

// NewSecretKey makes a key from the system's randomness.
func NewSecretKey() SecretKey {
	var k SecretKey
	rand.Read(k.id[:]) // which ends the process rather than fail
	_, k.key, _ = ed25519.GenerateKey(nil)
	return k
}

// Public is the key that checks what k signs.
func (k SecretKey) Public() (p PublicKey) {
	p.id = k.id
	copy(p.key[:], k.key.Public().(ed25519.PublicKey))
	return p
}

// Sign returns the signature file of octets. The comment is one line.
func (k SecretKey) Sign(octets []byte, comment string) []byte {
	digest := blake2b.Sum512(octets)
	signed := ed25519.Sign(k.key, digest[:])
	global := ed25519.Sign(k.key, append(bytes.Clone(signed), comment...))
	line := append(append([]byte(hashedMark), k.id[:]...), signed...)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%ssignature from blockd\n%s\n%s%s\n%s\n", untrustedMark, base64.StdEncoding.EncodeToString(line),
		trustedMark, comment, base64.StdEncoding.EncodeToString(global))
	return b.Bytes()
}

// A file with a secret key, behind its untrusted comment: "Ed", the kind of its encryption (two zeros: none), "B2", 48 octets
// of the encryption, the id, the key, and the BLAKE2b-256 of "Ed", id and key.
const (
	secretSize = 2 + 2 + 2 + 48 + 8 + ed25519.PrivateKeySize + 32
	idAt       = 54
	keyAt      = idAt + 8
	sumAt      = keyAt + ed25519.PrivateKeySize
)

// MaxKeyFile bounds a file with a key, in octets.
const MaxKeyFile = 4 << 10

// ErrEncrypted says that a secret key wants a password.
var ErrEncrypted = errors.New("the key wants a password, which a daemon has not; make one without: blockd publish keygen FILE, or minisign -G -W")

// ParseSecretKey reads a file with a secret key that has no password.
func ParseSecretKey(text []byte) (k SecretKey, err error) {
	bad := errors.New("no secret key of minisign")
	if len(text) > MaxKeyFile {
		return k, bad
	}
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	if len(lines) < 2 {
		return k, bad
	}
	raw, err := decodeBase64(lines[1])
	if err != nil || len(raw) != secretSize || string(raw[:2]) != keyMark || string(raw[4:6]) != "B2" {
		return k, bad
	}
	if raw[2] != 0 || raw[3] != 0 {
		return k, ErrEncrypted
	}
	// minisign 0.11 writes zeros for the sum of a key without a password. Halves that do not belong together are found below.
	if sum := secretSum(raw); !bytes.Equal(sum[:], raw[sumAt:]) && !bytes.Equal(raw[sumAt:], make([]byte, len(sum))) {
		return k, errors.New("the secret key is damaged")
	}
	k.id, k.key = [8]byte(raw[idAt:keyAt]), bytes.Clone(raw[keyAt:sumAt])
	if !bytes.Equal(ed25519.NewKeyFromSeed(k.key.Seed()), k.key) {
		return SecretKey{}, errors.New("the secret key is damaged")
	}
	return k, nil
}

func secretSum(raw []byte) [32]byte {
	return blake2b.Sum256(append([]byte(keyMark), raw[idAt:sumAt]...))
}

// Files are the two files of the key, as minisign -G -W writes them: let the mode of the first be 0600.
func (k SecretKey) Files() (secret, public []byte) {
	raw := make([]byte, idAt, secretSize)
	copy(raw, keyMark)
	copy(raw[4:], "B2")
	raw = append(append(raw, k.id[:]...), k.key...)
	sum := secretSum(append(raw, make([]byte, 32)...))
	raw = append(raw, sum[:]...)
	id := fmt.Sprintf("%X", reversed(k.id))
	secret = fmt.Appendf(nil, "%sminisign secret key %s of blockd\n%s\n", untrustedMark, id, base64.StdEncoding.EncodeToString(raw))
	public = fmt.Appendf(nil, "%sminisign public key %s of blockd\n%s\n", untrustedMark, id, strings.TrimPrefix(k.Public().String(), "minisign:"))
	return secret, public
}

// reversed: minisign shows an id as a number whose lowest octet comes first.
func reversed(id [8]byte) (r [8]byte) {
	for i, b := range id {
		r[len(id)-1-i] = b
	}
	return r
}
