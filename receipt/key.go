package receipt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"blockd/internal/durable"
	"blockd/reply"
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
	path := filepath.Join(folder, "key")
	k, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	var octets [keySize]byte
	rand.Read(octets[:]) // never fails, see crypto/rand
	// A link takes no name that is there: the first one wins, and a file is there whole or not at all.
	draft, err := os.CreateTemp(folder, "key.*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(hex.EncodeToString(octets[:]) + "\n")
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(draft.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := durable.SyncFolder(folder); err != nil {
		return nil, err
	}
	return readKey(path)
}

func readKey(path string) (*Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k := &Key{}
	if n, err := hex.Decode(k.octets[:], []byte(strings.TrimSpace(string(text[:min(len(text), 2*keySize+2)])))); err != nil || n != keySize {
		return nil, fmt.Errorf("%s: want a key of %d hexadecimal digits; remove it, and a new one is made (receipts from before are then unknown)", path, 2*keySize)
	}
	return k, nil
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
