package msgauth

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
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

type zone = nameserver.Zone

func resolverOf(t testing.TB, s *nameserver.Server) *Resolver {
	t.Helper()
	return newResolver(t, Settings{Server: s.Address})
}

func newResolver(t testing.TB, settings Settings) *Resolver {
	t.Helper()
	return testkit.Value(NewResolver(settings))(t)
}

// vectors is a folder of test vectors that others made: NAME.msg with the DNS
// records in NAME.dns and what came of each signature in NAME.result. A file that
// holds another one's name stands for it.
const vectors = "dkim/vectors"

// stricter are the signatures, by vector and place, that hold by the vector and
// not here, and why.
var stricter = map[string]string{
	"07-algo_mismatch 0": "two key records under one name: RFC 6376, section 3.6.2.2, leaves it open",
	"09-limited_body 0":  "l= leaves a part of the body unsigned",
}

func readVector(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testkit.Shared(t, vectors), name))
	if os.IsNotExist(err) {
		return nil
	}
	testkit.Must(t, err)
	if target := string(bytes.TrimSpace(b)); filepath.Ext(target) == filepath.Ext(name) && !strings.ContainsAny(target, " \n") {
		return readVector(t, target)
	}
	return b
}

// vectorZone reads "NAME: TEXT", with lines that go on after a backslash.
func vectorZone(text string) zone {
	z := zone{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		switch value = strings.TrimSpace(value); value {
		case "TEMPERROR":
			z["TXT "+name] = []string{"!SERVFAIL"}
		case "PERMERROR":
		default:
			z["TXT "+name] = append(z["TXT "+name], value)
		}
	}
	return z
}

func TestVectors(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testkit.Shared(t, vectors), "*.msg"))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".msg")
		t.Run(name, func(t *testing.T) {
			s := nameserver.Serve(t, vectorZone(string(readVector(t, name+".dns"))))
			message := bytes.ReplaceAll(bytes.ReplaceAll(readVector(t, name+".msg"), []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
			m := testkit.Value(resolverOf(t, s).Message(t.Context(), netip.Addr{}, bytes.NewReader(message)))(t)
			var want struct {
				Results []struct{ Domain, State string }
			}
			if data := readVector(t, name+".result"); data != nil {
				testkit.Must(t, json.Unmarshal(data, &want))
			} else if m.Fault == "" {
				t.Errorf("no fault, and the vector has no result: %+v", m)
			}
			if len(m.Signatures) < len(want.Results) { // those of the vector are at most five
				t.Fatalf("%d signatures, want %d", len(m.Signatures), len(want.Results))
			}
			for i, s := range m.Signatures[:len(want.Results)] {
				wanted := map[string]State{"SUCCESS": Pass, "TEMPFAIL": Unknown, "PERMFAIL": No}[want.Results[i].State]
				if why := stricter[name+" "+string(rune('0'+i))]; why != "" {
					if s.Proof == Pass {
						t.Errorf("signature %d passes, and should not: %s", i, why)
					}
					t.Logf("signature %d: stricter than the vector: %s (%s)", i, why, s.Reason)
				} else if s.Proof != wanted {
					t.Errorf("signature %d: %s (%s), want %s", i, s.Proof, s.Reason, wanted)
				}
			}
		})
	}
}
