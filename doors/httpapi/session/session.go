// Package session keeps who has signed in with a browser. A browser has a secret in a cookie; here are its hash, and whose
// rights it has: those of a token, which is looked up at each request, or those of a person for whom somebody else has vouched.
//
// A file has the sessions, so that a restart, or a process that takes over, ends none. The file is the truth: it is
// read again when another process has changed it. It has hashes alone, so a thief of the file cannot sign in.
package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"
)

// The bounds of a Set. Beyond them the session that has been unused for longest ends.
const (
	Most      = 1000 // sessions, some 500 octets each
	PerHolder = 20   // sessions of one holder, so that one holder ends only its own
)

// secretBytes is how much of a secret is random.
const secretBytes = 32

// Session is one browser that has signed in.
type Session struct {
	ID     string    `json:"id"` // the SHA-256 of its secret, in hexadecimal digits
	Token  string    `json:"token,omitempty"`
	Person *Person   `json:"person,omitempty"` // nil: Token has the rights
	Made   time.Time `json:"made"`
	Used   time.Time `json:"used"` // the last request of it that is known
}

// Person is somebody for whom an identity provider has vouched. The rights are those that the person had at that time.
type Person struct {
	Subject string   `json:"subject"` // unique at the provider, and never another's
	Name    string   `json:"name"`    // for people
	Scope   string   `json:"scope"`
	Owners  []string `json:"owners,omitempty"`
	Rules   string   `json:"rules"` // a hash of the settings by which the rights were given
}

// holder is whose session it is, for PerHolder.
func (s *Session) holder() string {
	if s.Person != nil {
		return "person " + s.Person.Subject
	}
	return "token " + s.Token
}

// newSecret draws what a browser gets, and its ID.
func newSecret() (secret, id string) {
	var chance [secretBytes]byte
	rand.Read(chance[:]) // never fails: it ends the process rather
	secret = base64.RawURLEncoding.EncodeToString(chance[:])
	return secret, idOf(secret)
}

// idOf is the ID of the session with a secret.
func idOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
