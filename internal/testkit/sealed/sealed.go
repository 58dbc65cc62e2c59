// Package sealed is mail that proves where it comes from, for tests: domains with
// records of SPF and keys of DKIM, in a name server of the test, and their letters.
package sealed

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit/nameserver"
)

// The selectors of every domain: of a key of Ed25519, and of one of RSA with 2,048
// bits.
const (
	Ed25519 = "s1"
	RSA     = "s2"
)

// Post signs for x.example and evil.example, whose keys are the same. SPF passes
// 192.0.2.0/24 for x.example, and everybody else's mail of it fails.
type Post struct {
	*nameserver.Server
	keys map[string]crypto.Signer // by selector
}

// NewPost starts the name server. more are records of its zone, in place of those it
// has.
func NewPost(t testing.TB, more nameserver.Zone) *Post {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(large.Public())
	if err != nil {
		t.Fatal(err)
	}
	zone := nameserver.Zone{"TXT x.example": {"v=spf1 ip4:192.0.2.0/24 -all"}}
	for _, domain := range []string{"x.example", "evil.example"} {
		zone["TXT "+Ed25519+"._domainkey."+domain] = []string{"v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)}
		zone["TXT "+RSA+"._domainkey."+domain] = []string{"v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)}
	}
	maps.Copy(zone, more)
	return &Post{nameserver.Serve(t, zone), map[string]crypto.Signer{Ed25519: private, RSA: large}}
}

// Letter is a message without its final dot, with CRLF line ends.
func Letter(from string) string {
	return "From: " + from + "\r\nTo: bob@here.example\r\nSubject: hello\r\n" +
		"Date: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@x.example>\r\n\r\nText.\r\n"
}

// Sign puts a signature of domain on top of a letter. change may be nil.
func (p *Post) Sign(t testing.TB, letter, domain, selector string, change func(*dkim.SignOptions)) string {
	t.Helper()
	o := &dkim.SignOptions{Domain: domain, Selector: selector, Signer: p.keys[selector]}
	if change != nil {
		change(o)
	}
	var out bytes.Buffer
	if err := dkim.Sign(&out, strings.NewReader(letter), o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
