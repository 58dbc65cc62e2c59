package msgauth

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	"blockd/internal/testkit"

	"github.com/emersion/go-msgauth/dkim"
)

// signer signs as a mail server would, with a key of its own.
type signer struct {
	key    crypto.Signer
	record string // what a zone has of it, without flags
}

func newSigner(t testing.TB) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	return signer{private, "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)}
}

func newRSASigner(t testing.TB, bits int) signer {
	t.Helper()
	private := testkit.Value(rsa.GenerateKey(rand.Reader, bits))(t)
	der := testkit.Value(x509.MarshalPKIXPublicKey(private.Public()))(t)
	return signer{private, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)}
}

// sign puts a signature of domain on top of message.
func (s signer) sign(t testing.TB, message, domain string, change ...func(*dkim.SignOptions)) string {
	t.Helper()
	o := &dkim.SignOptions{Domain: domain, Selector: "s1", Signer: s.key,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: []string{"From", "Subject"}}
	for _, c := range change {
		c(o)
	}
	var out bytes.Buffer
	testkit.Must(t, dkim.Sign(&out, strings.NewReader(message), o))
	return out.String()
}

// resign puts a signature with changed tags on top of message: the field of a
// signature with edit done to it is signed anew, so that nothing is wrong but what
// edit did.
func (s signer) resign(t testing.TB, message, domain string, edit func(field string) string) string {
	t.Helper()
	signed := s.sign(t, message, domain)
	field := edit(signed[:len(signed)-len(message)])
	return s.signField(t, field, message)
}

// signField computes b= of a DKIM-Signature field that signs From and Subject with
// relaxed canonicalization, without the library.
func (s signer) signField(t testing.TB, field, message string) string {
	t.Helper()
	at := strings.LastIndex(field, "b=")
	field = field[:at] + "b="
	var canon strings.Builder
	for _, name := range []string{"From", "Subject"} {
		for line := range strings.Lines(message) {
			if n, v, ok := strings.Cut(line, ":"); ok && n == name {
				canon.WriteString(strings.ToLower(n) + ":" + strings.Join(strings.Fields(v), " ") + "\r\n")
				break
			}
		}
	}
	_, value, _ := strings.Cut(field, ":")
	canon.WriteString("dkim-signature:" + strings.Join(strings.Fields(value), " "))
	sum := crypto.SHA256.New()
	sum.Write([]byte(canon.String()))
	var opts crypto.SignerOpts = crypto.SHA256
	if _, ok := s.key.(ed25519.PrivateKey); ok {
		opts = crypto.Hash(0)
	}
	b := testkit.Value(s.key.Sign(rand.Reader, sum.Sum(nil), opts))(t)
	return field + base64.StdEncoding.EncodeToString(b) + "\r\n" + message
}
