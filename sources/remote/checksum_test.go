package remote

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

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
			list, err := url.Parse(tt.list)
			testkit.Must(t, err)
			c, err := parseChecksum(tt.checksum, list)
			got := c.sum
			if c.url != nil {
				got = c.url.String()
			}
			if err != nil || got != tt.want {
				t.Errorf("parseChecksum(%q) = %q, %v; want %q", tt.checksum, got, err, tt.want)
			}
			if list.String() != tt.list {
				t.Errorf("the list's own URL has become %s", list)
			}
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
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("findSum() = %q, %v; want %q", got, err, tt.want)
			}
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
