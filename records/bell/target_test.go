package bell

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// target returns a Target of a server that answers by h.
func target(t *testing.T, h http.HandlerFunc, s Settings) *Target {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s.URL = srv.URL + "/secret-path"
	return testkit.Value(NewTarget(s))(t)
}

func ring(t *testing.T, to *Target) (Answer, error) {
	t.Helper()
	return to.Ring(t.Context(), NewTest("mx.here.example", "1.2.3", time.Now()))
}

func TestRing(t *testing.T) {
	var body []byte
	var header http.Header
	a, err := ring(t, target(t, func(w http.ResponseWriter, r *http.Request) {
		if header = r.Header; r.Method != "POST" || r.URL.Path != "/secret-path" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		body, _ = io.ReadAll(r.Body)
		io.WriteString(w, "taken\nand more")
	}, Settings{Version: "1.2.3", Secret: []byte("0123456789abcdef")}))
	testkit.Got(err, a.Status, a.Text)(t, "Ring", nil, "200 OK", "taken")
	var e map[string]any
	testkit.Must(t, json.Unmarshal(body, &e))
	if e["event"] != "test" || e["host"] != "mx.here.example" || e["version"] != "1.2.3" || e["text"] == "" || e["id"] == "" || e["ready"] != true {
		t.Errorf("body %s", body)
	}
	if problems, ok := e["problems"].([]any); !ok || len(problems) != 0 {
		t.Errorf("problems of a test: %v", e["problems"])
	}
	if header.Get("Content-Type") != "application/json" || header.Get("User-Agent") != "blockd/1.2.3" {
		t.Errorf("header %v", header)
	}
	at, _, _ := strings.Cut(strings.TrimPrefix(header.Get(SignatureHeader), "t="), ",")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if want := sign([]byte("0123456789abcdef"), time.Unix(seconds, 0), body); err != nil || header.Get(SignatureHeader) != want || time.Since(time.Unix(seconds, 0)).Abs() > time.Hour {
		t.Errorf("signature %q, want %q", header.Get(SignatureHeader), want)
	}
}

// Without a secret nothing is signed.
func TestUnsigned(t *testing.T) {
	_, err := ring(t, target(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(SignatureHeader) != "" {
			w.WriteHeader(http.StatusTeapot)
		}
	}, Settings{}))
	testkit.Should(t, err)
}

// Whatever an answer is but a 2xx is an error, in a line, without the address's path.
func TestBadAnswers(t *testing.T) {
	reached := false
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "out of\x1b[31m order", 500) }, "answers 500 Internal Server Error: out of?[31m order"},
		"404": {http.NotFound, "answers 404 Not Found: 404 page not found"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				reached = true
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "answers 307 Temporary Redirect, and redirects are not followed"},
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			io.WriteString(c, "SSH-2.0-x\r\n\r\n")
			c.Close()
		}, "malformed HTTP response"},
		"closes": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		}, "EOF"},
		"giant header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, "server response headers exceeded"},
	} {
		_, err := ring(t, target(t, tt.answer, Settings{}))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-path") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	testkit.Equal(t, "a redirect is followed", reached, false)
}

// A giant answer is read to a bound, and then the connection is closed.
func TestGiantAnswer(t *testing.T) {
	cut := make(chan error, 1)
	a, err := ring(t, target(t, func(w http.ResponseWriter, _ *http.Request) {
		block := []byte(strings.Repeat("x", 1<<20))
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			_, err = w.Write(block)
		}
		cut <- err
	}, Settings{}))
	if err != nil || len(a.Text) > 200 {
		t.Errorf("Ring = %d octets of text, %v", len(a.Text), err)
	}
	testkit.Equal(t, "the gigabyte is cut off", <-cut != nil, true)
}

// One that does not answer is left when ctx ends.
func TestHang(t *testing.T) {
	release := make(chan struct{})
	to := target(t, func(http.ResponseWriter, *http.Request) { <-release }, Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := to.Ring(ctx, NewTest("h", "v", time.Now()))
		done <- err
	}()
	cancel()
	testkit.Equal(t, "an error", <-done != nil, true)
	close(release)
}

// A certificate that nobody vouches for is a fault; one of the authorities in notify.ca is good.
func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	stranger := testkit.Value(NewTarget(Settings{URL: srv.URL}))(t)
	testkit.Got(ring(t, stranger))(t, "a stranger's certificate", testkit.Any, "…certificate…")
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	known := testkit.Value(NewTarget(Settings{URL: srv.URL, Roots: roots}))(t)
	testkit.Equal(t, "Ring", testkit.Value(ring(t, known))(t).Status, "204 No Content")
}

func TestCheckURL(t *testing.T) {
	for _, tt := range []struct {
		url      string
		insecure bool
		ok       bool
	}{
		{"https://hooks.example.org/T/B/x", false, true},
		{"https://10.0.0.7:8443/x", false, true}, // inside
		{"http://127.0.0.1:9000/", false, true},
		{"http://[::1]:9000/", false, true},
		{"http://localhost/", false, true},
		{"http://hooks.example.org/", false, false},
		{"http://hooks.example.org/", true, true},
		{"http://127.0.0.1.example.org/", false, false},
		{"hooks.example.org/x", false, false},
		{"ftp://hooks.example.org/", true, false},
		{"https:///x", false, false},
		{"https://hooks.example.org/#x", false, false},
		{"https://hooks.example.org/\n", false, false},
	} {
		if err := CheckURL(tt.url, tt.insecure); (err == nil) != tt.ok {
			t.Errorf("CheckURL(%q, %v) = %v", tt.url, tt.insecure, err)
		}
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want string }{
		"good":  {" 0123456789abcdef\r\n", ""},
		"short": {"0123456789\n", "want a secret of 16 to 4096 octets, have 10"},
		"long":  {strings.Repeat("x", mostSecret+1), "want a secret"},
	} {
		path := testkit.Write(t, filepath.Join(dir, name), tt.text)
		secret, err := ReadSecret(path)
		if tt.want == "" && (err != nil || string(secret) != "0123456789abcdef") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %q, %v", name, secret, err)
		}
	}
}

// The receiver in docs/report.md takes what is signed here, and neither another body, nor another secret, nor an old event.
func TestDocumentedReceiver(t *testing.T) {
	python := testkit.Peer(t, "python3")
	document := string(testkit.Read(t, testkit.Root(t)+"/docs/report.md"))
	_, code, ok := strings.Cut(document, "```python\n")
	code, _, ends := strings.Cut(code, "```")
	testkit.MustEqual(t, "docs/report.md has a receiver in Python, and its end", [...]bool{ok, ends}, [...]bool{true, true})
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "receiver.py"), code)
	verified := func(secret, header, body string) bool {
		cmd := exec.Command(python, "-c", "import sys, receiver; sys.exit(0 if receiver.verified(sys.argv[1].encode(), sys.argv[2], sys.argv[3].encode()) else 1)", secret, header, body)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return cmd.Run() == nil
	}
	const secret, body = "0123456789abcdef", `{"event":"degraded","text":"é"}`
	now := sign([]byte(secret), time.Now(), []byte(body))
	for _, tt := range []struct {
		name, secret, header, body string
		want                       bool
	}{
		{"good", secret, now, body, true},
		{"another body", secret, now, body + " ", false},
		{"another secret", "fedcba9876543210", now, body, false},
		{"old", secret, sign([]byte(secret), time.Now().Add(-time.Hour), []byte(body)), body, false},
		{"another time", secret, strings.Replace(now, "t=", "t=1", 1), body, false},
		{"none", secret, "", body, false},
	} {
		testkit.Equal(t, tt.name, verified(tt.secret, tt.header, tt.body), tt.want)
	}
}
