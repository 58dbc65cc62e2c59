package receipt

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"path/filepath"

	"blockd/internal/durable"
	"blockd/internal/secret"
	"blockd/policy/reply"
)

// proofLength is how many digits of a reference prove that it was made here: 30 bits. Of a thousand million guesses one
// leads to a look into the history, which has no more of what is guessed than before.
const proofLength = 6

// keySize is that of HMAC-SHA256, in octets.
const keySize = 32

// Key makes references that nobody else can make. It is safe for concurrent use.
type Key struct{ octets [keySize]byte }

// OpenKey reads the key of a folder, or makes both. Processes that make one at the same time get the same.
func OpenKey(folder string) (*Key, error) {
	if err := durable.MakeFolder(folder); err != nil {
		return nil, err
	}
	octets, err := secret.Open(filepath.Join(folder, "key"), keySize)
	if err != nil {
		return nil, fmt.Errorf("%w (without the key, receipts from before are unknown)", err)
	}
	return &Key{octets: [keySize]byte(octets)}, nil
}

// NewRef makes a reference: that of package reply, with its proof behind it.
func (k *Key) NewRef() string {
	ref := reply.NewRef()
	return ref + k.proof(ref)
}

// Made reports whether a text is a reference that NewRef has made. It takes the same time for all that look like one.
func (k *Key) Made(ref string) bool {
	if len(ref) != reply.RefLength+proofLength {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(ref[reply.RefLength:]), []byte(k.proof(ref[:reply.RefLength]))) == 1
}

func (k *Key) proof(ref string) string { return reply.Digits(k.sum("ref", ref))[:proofLength] }

// sum is a keyed hash of a text; purpose keeps those of different purposes apart.
func (k *Key) sum(purpose, text string) []byte {
	mac := hmac.New(sha256.New, k.octets[:])
	mac.Write([]byte(purpose + "\x00" + text))
	return mac.Sum(nil)
}
