package remote

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/blake2b"

	"blockd/internal/minisign"
	"blockd/internal/testkit"
)

func testdata(t testing.TB, name string) string {
	t.Helper()
	return string(testkit.Read(t, filepath.Join("testdata", "minisign", name)))
}

// publicKey is the second line of a file of minisign, as an administrator copies it.
func publicKey(text string) string { return "minisign:" + strings.Split(text, "\n")[1] }

// serveFiles answers with the text of the path, 404 where there is none.
func serveFiles(t *testing.T, files map[string]string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// signer makes signature files as minisign does, and others.
type signer struct {
	key ed25519.PrivateKey
	id  [8]byte
}

func newSigner(seed byte) signer {
	return signer{ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed)), [8]byte{seed, 1, 2, 3}}
}

func (s signer) public() string {
	raw := append([]byte("Ed"), s.id[:]...)
	return "minisign:" + base64.StdEncoding.EncodeToString(append(raw, s.key.Public().(ed25519.PublicKey)...))
}

func (s signer) sign(text, comment string) string {
	digest := blake2b.Sum512([]byte(text))
	signed := ed25519.Sign(s.key, digest[:])
	global := ed25519.Sign(s.key, append(append([]byte{}, signed...), comment...))
	line := append([]byte("ED"), s.id[:]...)
	return "untrusted comment: any\n" + base64.StdEncoding.EncodeToString(append(line, signed...)) + "\n" +
		"trusted comment: " + comment + "\n" + base64.StdEncoding.EncodeToString(global) + "\n"
}

func TestSignedLists(t *testing.T) {
	good, thief := newSigner(1), newSigner(2)
	list := strings.Repeat("bulk.example\n", 100_000) // which needs many blocks
	edited := func(old, new string) string {
		text := good.sign(list, "timestamp:1")
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in %q", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	sameID := thief
	sameID.id = good.id
	notFound := "-"
	tests := []struct {
		name, signature string
		class           Class // "": it is taken
		text            string
	}{
		{"signed", good.sign(list, "timestamp:1"), "", ""},
		{"with line ends of another system", strings.ReplaceAll(good.sign(list, "x"), "\n", "\r\n"), "", ""},
		{"without a last line end", strings.TrimSuffix(good.sign(list, ""), "\n"), "", ""},
		{"another untrusted comment", edited("any", "signed by somebody else"), "", ""},
		{"another file", good.sign("bulk.example\nmore.example\n", "x"), Signature, "the file is not the one that was signed"},
		{"another key", thief.sign(list, "x"), Signature, "the file was signed with another key"},
		{"another key of the same number", sameID.sign(list, "x"), Signature, "the trusted comment is not signed by the key"},
		{"another trusted comment", edited("timestamp:1", "timestamp:2"), Signature, "the trusted comment is not signed by the key"},
		{"of the file itself", testdata(t, "old.minisig"), Signature, "the signature is of minisign's old kind"},
		{"a web page", "<html>\n<p>\n404\n</p>\n", Signature, "what is published as the signature is none of minisign"},
		{"empty", "", Signature, "is none of minisign"},
		{"cut", good.sign(list, "x")[:200], Signature, "is none of minisign"},
		{"endless", strings.Repeat("x\n", minisign.MaxSignature), Signature, "larger than 16384 octets"},
		{"not published", notFound, Status, "404"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"/lists/spam.txt": list}
			if tt.signature != notFound {
				files["/lists/spam.txt.minisig"] = tt.signature
			}
			x := newFixture(t, Source{URL: serveFiles(t, files) + "/lists/spam.txt?key=1", Signature: good.public()})
			if tt.class != "" {
				x.refuses(tt.class, tt.text)
				return
			}
			x.fetch()
			x.holds(list)
			x.counted(1, 0, 0, 0)
		})
	}
}

// TestSignatureOfMinisign takes what minisign 0.11 has made.
func TestSignatureOfMinisign(t *testing.T) {
	files := map[string]string{"/list.txt": testdata(t, "list.txt"), "/list.txt.minisig": testdata(t, "list.txt.minisig")}
	x := newFixture(t, Source{URL: serveFiles(t, files) + "/list.txt", Signature: publicKey(testdata(t, "key.pub"))})
	x.fetch()
	x.holds(files["/list.txt"])
}

// TestSignatureThatIsAdded: a copy from before is fetched anew, since nobody has
// held it against the signature.
func TestSignatureThatIsAdded(t *testing.T) {
	good := newSigner(1)
	url := serveFiles(t, map[string]string{"/l": "bulk.example\n", "/l.minisig": good.sign("other.example\n", "x")}) + "/l"
	x := newFixture(t, Source{URL: url})
	x.fetch()
	err := x.again(Source{URL: url, Signature: good.public()}).FetchDue(t.Context())
	testkit.Got(err)(t, "FetchDue()", "…signature: …")
}

func TestPublicKeys(t *testing.T) {
	good := newSigner(1).public()
	for _, bad := range []string{
		"minisign:", "RWQ", good[:len(good)-1], good + "A", good[len("minisign:"):], "pgp:" + good, " " + good, good + "\n",
		"minisign:" + base64.StdEncoding.EncodeToString([]byte("ED"+strings.Repeat("k", 40))),
		"minisign:" + base64.StdEncoding.EncodeToString([]byte("Ed"+strings.Repeat("k", 41))),
	} {
		err := (Source{Name: "n", Path: "p", URL: "https://x/y", Signature: bad}).Validate()
		testkit.Got(err)(t, fmt.Sprintf("signature %q", bad), "…signature: want …")
	}
	testkit.Should(t, (Source{Name: "n", Path: "p", URL: "https://x/y", Signature: good}).Validate())
}

// TestChecked holds that nobody but the server makes a copy young.
func TestChecked(t *testing.T) {
	s := Source{URL: serveFiles(t, map[string]string{"/l": "bulk.example\n"}) + "/l"}
	x := newFixture(t, s)
	s.Path = x.path
	testkit.Equal(t, "never checked before there is a copy", s.Checked().IsZero(), true)
	began := time.Now()
	x.fetch()
	at := s.Checked()
	testkit.Got(at.Before(began), at.After(time.Now()))(t, fmt.Sprintf("Checked() = %s before %s, or in the future", at, began), false, false)
	other := s
	other.URL += "?other"
	testkit.Equal(t, "never checked: another URL", other.Checked().IsZero(), true)
	backup := began.Add(-365 * 24 * time.Hour)
	testkit.Must(t, os.Chtimes(x.path, backup, backup))
	testkit.Equal(t, "never checked: a file that is not what was stored", s.Checked().IsZero(), true)
	x.fetch() // the content is what the server has
	testkit.Equal(t, "checked before the server has confirmed it", s.Checked().Before(began), false)
}

// TestFetchDue asks no server twice within Every.
func TestFetchDue(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Write([]byte("bulk.example\n"))
	}))
	defer server.Close()
	s := Source{URL: server.URL, Every: time.Hour}
	x := newFixture(t, s)
	due := func(want int, when string) {
		t.Helper()
		testkit.Must(t, x.FetchDue(t.Context()))
		testkit.Equal(t, fmt.Sprintf("%s: requests", when), asked, want)
	}
	due(1, "no copy")
	due(1, "fetched a moment ago")
	testkit.Write(t, x.path, "edited.example\n")
	due(2, "edited")
	x.holds("bulk.example\n")
	r := readReceipt(x.path)
	r.Checked = r.Checked.Add(-time.Hour)
	testkit.Must(t, x.sources[0].remember(r))
	due(3, "an hour ago")
	r.Checked = time.Now().Add(time.Hour)
	testkit.Must(t, x.sources[0].remember(r))
	due(4, "in the future")
}

// FuzzSignature: of what is taken only the untrusted comment, and what follows the
// last line, is not the signer's.
func FuzzSignature(f *testing.F) {
	golden := testdata(f, "list.txt.minisig")
	f.Add([]byte(golden))
	f.Add([]byte(testdata(f, "old.minisig")))
	f.Add([]byte(newSigner(1).sign("x", "y")))
	f.Add([]byte("\n\ntrusted comment: \n\n"))
	f.Add([]byte(strings.ReplaceAll(golden, "\n", "\r\n") + "more"))
	s := testkit.Value(parseSignature(publicKey(testdata(f, "key.pub")), &url.URL{}))(f)
	want := strings.Split(golden, "\n")[1:4]
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := s.key.Signature(text); err != nil {
			return
		}
		got := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")[1:4]
		testkit.MustEqual(t, fmt.Sprintf("forged: %q", text), strings.Join(got, "\n"), strings.Join(want, "\n"))
	})
}

func TestWhereAChecksumIsPublished(t *testing.T) {
	hexed := strings.Repeat("0aB9", 16)
	tests := []struct{ name, list, checksum, want string }{
		{"none", "https://x.example/l.txt", "", ""},
		{"digits", "https://x.example/l.txt", "sha256:" + hexed, strings.ToLower(hexed)},
		{"an ending", "https://x.example/a/l.txt", "sha256:.sha256", "https://x.example/a/l.txt.sha256"},
		{"an ending before the query", "https://x.example/l.txt?key=k", "sha256:.sha256", "https://x.example/l.txt.sha256?key=k"},
		{"an ending of an escaped name", "https://x.example/a%2Fb%20c", "sha256:.sha256", "https://x.example/a%2Fb%20c.sha256"},
		{"a file beside", "https://x.example/a/l.txt", "sha256:SHA256SUMS", "https://x.example/a/SHA256SUMS"},
		{"a file above", "https://x.example/a/l.txt", "sha256:../SHA256SUMS", "https://x.example/SHA256SUMS"},
		{"a path", "https://x.example/a/l.txt", "sha256:/sums/l.txt", "https://x.example/sums/l.txt"},
		{"elsewhere, without our password", "https://u:p@x.example/a/l.txt", "sha256:https://y.example/l", "https://y.example/l"},
		{"beside, with our password", "https://u:p@x.example/a/l.txt", "sha256:.sha256", "https://u:p@x.example/a/l.txt.sha256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := testkit.Value(url.Parse(tt.list))(t)
			c, err := parseChecksum(tt.checksum, list)
			got := c.sum
			if c.url != nil {
				got = c.url.String()
			}
			if err != nil || got != tt.want {
				t.Errorf("parseChecksum(%q) = %q, %v; want %q", tt.checksum, got, err, tt.want)
			}
			testkit.Equal(t, "the list's own URL", list.String(), tt.list)
		})
	}
}

func TestFindSum(t *testing.T) {
	a, b := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	tests := []struct{ name, text, want string }{
		{"as sha256sum prints it", a + "  spam.txt\n", a},
		{"a binary file's mark", a + " *spam.txt\n", a},
		{"one of several", b + "  ham.txt\n" + a + "  spam.txt\n" + b + "  spam.txt.old\n", a},
		{"with a folder", b + "  ham.txt\n" + a + "  ./dist/spam.txt\n", a},
		{"with --tag", "SHA256 (ham.txt) = " + b + "\nSHA256 (spam.txt) = " + a + "\n", a},
		{"as openssl prints it", "SHA256(spam.txt)= " + a + "\n", a},
		{"capitals", strings.ToUpper(a) + "  spam.txt\n", a},
		{"CRLF", a + "  spam.txt\r\n", a},
		{"a digest alone", a, a},
		{"one digest of another name", a + "  /var/tmp/build.out\n", a},
		{"the same twice", a + "  spam.txt\n" + a + "  dist/spam.txt\n", a},
		{"an escaped line", `\` + a + "  spam.txt\n", a},
		{"signed", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n" + a + "  spam.txt\n-----BEGIN PGP SIGNATURE-----\n\niQIz\n", a},

		{"nothing", "", ""},
		{"not there", b + "  ham.txt\n" + a + "  eggs.txt\n", ""},
		{"two different ones", a + "  spam.txt\n" + b + "  spam.txt\n", ""},
		{"too short", a[1:] + "  spam.txt\n", ""},
		{"too long", a + "0  spam.txt\n", ""},
		{"another kind of digest", a + a + "  spam.txt\n", ""},
		{"no hex", strings.Repeat("zz", 32) + "  spam.txt\n", ""},
		{"a web page", "<html>not here</html>", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := findSum(tt.text, "spam.txt")
			testkit.Got(got, err == nil)(t, fmt.Sprintf("findSum() says %v", err), tt.want, tt.want != "")
		})
	}
}

func TestOnlyWhatIsPublishedBecomesTheCopy(t *testing.T) {
	tests := []struct {
		name, checksum string
		published      func(w http.ResponseWriter)
		class          Class // "": is fetched
		text           string
	}{
		{"it agrees", "sha256:.sha256", say(sumOf(list) + "  spam.txt\n"), "", ""},
		{"it is pinned", "sha256:" + strings.ToUpper(sumOf(list)), nil, "", ""},
		{"it is another", "sha256:.sha256", say(sumOf("x") + "  spam.txt\n"), Checksum, "published is " + sumOf("x")},
		{"another is pinned", "sha256:" + sumOf("x"), nil, Checksum, "the file's sha256 is " + sumOf(list)},
		{"it is not there", "sha256:.sha256", func(w http.ResponseWriter) { w.WriteHeader(404) }, Status, "404"},
		{"it is a web page", "sha256:.sha256", say("<html>"), Checksum, `has 0 sha256 for "spam.txt"`},
		{"it is of other files", "sha256:SUMS", say(sumOf("x") + "  a\n" + sumOf("y") + "  b\n"), Checksum, `has 0 sha256 for "spam.txt"`},
		{"it has no end", "sha256:SUMS", say(strings.Repeat(sumOf(list)+"  spam.txt\n", 20_000)), Checksum, "larger than"},
		{"it is cut", "sha256:SUMS", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, sumOf(list))
		}, Truncated, "cut after 64 octets"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/spam.txt" {
					io.WriteString(w, list)
					return
				}
				tt.published(w)
			})
			x := newFixture(t, Source{URL: server.URL + "/spam.txt", Checksum: tt.checksum})
			x.write("old.example\n")
			if tt.class != "" {
				x.refuses(tt.class, tt.text)
				return
			}
			x.fetch()
			x.holds(list)
		})
	}
}

func say(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { io.WriteString(w, text) }
}
