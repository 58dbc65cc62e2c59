package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
)

const list = "bulk.example\nspam.example\n"

// serve answers all requests by handler, over plain HTTP on loopback.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// published is a list on a server that knows ETag and Last-Modified.
type published struct {
	text, etag atomic.Value // of string
	requests   atomic.Int32
	whole      atomic.Int32 // requests without a condition
}

func publish(t *testing.T, text, etag string) (*published, *httptest.Server) {
	p := &published{}
	p.set(text, etag)
	return p, serve(t, p.ServeHTTP)
}

func (p *published) set(text, etag string) { p.text.Store(text); p.etag.Store(etag) }

func (p *published) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	if r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since") == "" {
		p.whole.Add(1)
	}
	if etag := p.etag.Load().(string); etag != "" {
		w.Header().Set("ETag", etag)
	}
	http.ServeContent(w, r, "spam.txt", time.Unix(1.7e9, 0), strings.NewReader(p.text.Load().(string)))
}

func TestAListIsFetchedOnceAndThenOnlyAskedFor(t *testing.T) {
	p, server := publish(t, list, `"1"`)
	x := newFixture(t, Source{URL: server.URL + "/spam.txt"})
	x.fetch()
	x.holds(list)
	before, _ := x.stat()
	x.fetch()
	if after, _ := x.stat(); !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Error("an unchanged list has touched the copy")
	}
	testkit.Equal(t, "requests without a condition", p.whole.Load(), 1)
	x.counted(1, 1, 0, 0)
	testkit.Equal(t, x.log.String(), strings.Count(x.log.String(), "\n"), 1)
	p.set(list+"new.example\n", `"2"`)
	x.fetch()
	x.holds(list + "new.example\n")
	x.counted(2, 1, 0, 0)
	x.tidy()
	if age := time.Since(time.Unix(int64(x.metric(`blockd_fetch_last_success_timestamp_seconds{list="spam"}`)), 0)); age < 0 || age > time.Minute {
		t.Errorf("blockd_fetch_last_success_timestamp_seconds is %s old", age)
	}
}

func TestANewETagOfTheSameContentDoesNotTouchTheCopy(t *testing.T) {
	p, server := publish(t, list, `"1"`)
	x := newFixture(t, Source{URL: server.URL})
	x.fetch()
	before, _ := x.stat()
	p.set(list, `"2"`)
	x.fetch()
	if after, _ := x.stat(); !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Error("the copy was touched")
	}
	x.counted(1, 1, 0, 0)
	x.fetch() // by the new ETag
	testkit.Equal(t, "requests without a condition", p.whole.Load(), 1)
}

// What must never be asked for with a condition: an answer "not modified" would
// leave a copy in place that the server has never sent.
func TestTheWholeFileIsAskedForUnlessTheReceiptFits(t *testing.T) {
	tests := []struct {
		name   string
		change func(x *fixture, s *Source)
	}{
		{"nothing has changed", func(*fixture, *Source) {}},
		{"the copy is gone", func(x *fixture, _ *Source) { os.Remove(x.path) }},
		{"the copy was edited", func(x *fixture, _ *Source) { x.write("mine.example\n") }},
		{"the copy was cut", func(x *fixture, _ *Source) { x.write(list[:5]) }},
		{"the receipt is gone", func(x *fixture, _ *Source) { os.Remove(receiptPath(x.path)) }},
		{"the receipt is torn", func(x *fixture, _ *Source) { os.Truncate(receiptPath(x.path), 40) }},
		{"the receipt is empty", func(x *fixture, _ *Source) { os.Truncate(receiptPath(x.path), 0) }},
		{"the receipt is huge", func(x *fixture, _ *Source) { os.Truncate(receiptPath(x.path), 1<<30) }},
		{"the receipt is a folder", func(x *fixture, _ *Source) {
			os.Remove(receiptPath(x.path))
			os.MkdirAll(receiptPath(x.path)+"/x", 0o755)
		}},
		{"the URL is another one", func(_ *fixture, s *Source) { s.URL += "?other" }},
		{"a checksum was configured since", func(_ *fixture, s *Source) { s.Checksum = "sha256:" + sumOf(list) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, server := publish(t, list, `"1"`)
			s := Source{URL: server.URL + "/spam.txt"}
			x := newFixture(t, s)
			x.fetch()
			tt.change(x, &s)
			err := x.again(s).Fetch(t.Context())
			if err != nil && !strings.Contains(tt.name, "folder") {
				t.Fatal(err)
			}
			want := int32(2)
			if tt.name == "nothing has changed" {
				want = 1
			}
			testkit.Equal(t, "requests without a condition", p.whole.Load(), want)
			x.holds(list)
		})
	}
}

func TestADateAloneIsTrustedForADay(t *testing.T) {
	now := time.Now()
	date := "Wed, 21 Oct 2015 07:28:00 GMT"
	tests := []struct {
		name string
		r    receipt
		want string
	}{
		{"no receipt", receipt{}, "map[]"},
		{"no validator", receipt{Stored: now}, "map[]"},
		{"a date", receipt{LastModified: date, Stored: now.Add(-23 * time.Hour)}, "map[If-Modified-Since:[" + date + "]]"},
		{"a date after a day", receipt{LastModified: date, Stored: now.Add(-25 * time.Hour)}, "map[]"},
		{"a date from the future", receipt{LastModified: date, Stored: now.Add(time.Hour)}, "map[]"},
		{"an ETag after a day", receipt{ETag: `"1"`, Stored: now.Add(-25 * time.Hour)}, `map[If-None-Match:["1"]]`},
		{"both", receipt{ETag: `"1"`, LastModified: date, Stored: now}, "map[If-Modified-Since:[" + date + `] If-None-Match:["1"]]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Equal(t, "conditions()", fmt.Sprint(tt.r.conditions(now)), tt.want)
		})
	}
}

func TestARequestSaysWhoAsksAndNothingElse(t *testing.T) {
	var last atomic.Pointer[http.Request]
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.Clone(context.Background()))
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
		io.WriteString(w, list)
	})
	x := newFixture(t, Source{URL: server.URL + "/spam.txt"})
	x.fetch()
	x.fetch()
	want := "map[Accept:[*/*] Accept-Encoding:[identity] Connection:[close] User-Agent:[blockd/v1.2.3 (+list fetch)]]"
	got := last.Load()
	have := fmt.Sprint(got.Header)
	testkit.Equal(t, "header and method", [...]string{have, got.Method}, [...]string{want, "GET"})
}

func TestTheCopyIsWhatTheServerSentAsTheFile(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, list)
	w.Close()
	tests := []struct{ name, body, encoding string }{
		{"plain", list, ""},
		{"identity said aloud", list, "identity"},
		{"a packed file", packed.String(), ""},
		{"a packed file that is called an encoding", packed.String(), "gzip"},
		{"nothing", "", ""},
		{"without a last line end", "bulk.example", ""},
		{"a byte order mark", "\xef\xbb\xbf" + list, ""},
		{"an entry that looks like a tag", "<b@bulk.example>\n", ""},
		{"larger than every buffer", strings.Repeat(list, 100_000), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.encoding != "" {
					w.Header().Set("Content-Encoding", tt.encoding)
				}
				w.Header().Set("Content-Type", "text/html") // as some servers say of every file
				io.WriteString(w, tt.body)
			})
			x := newFixture(t, Source{URL: server.URL})
			x.fetch()
			x.holds(tt.body)
		})
	}
}

func TestAnAnswerThatIsNoListIsRefused(t *testing.T) {
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		class   Class
		text    string
	}{
		{"a web page with status 200", say("<!DOCTYPE html><title>Maintenance</title>"), HTML, "web page"},
		{"a web page behind blanks and a mark", say("\xef\xbb\xbf\r\n\t <HTML lang=en>"), HTML, "web page"},
		{"an XML error", say(`<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>`), HTML, "XML"},
		{"too large, and it says so", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000001")
			w.Write(nil)
		}, TooBig, "larger than 1000000 octets"},
		{"too large by one octet", say(strings.Repeat("x", 1_000_001)), TooBig, "larger than 1000000 octets"},
		{"packed unasked", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "whatever")
		}, Encoding, `packed the file as "br"`},
		{"304 to nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, Status, "304"},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, Status, "answers 204 No Content"},
		{"206", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206) }, Status, "206"},
		{"404", http.NotFound, Status, "answers 404 Not Found"},
		{"410", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) }, Status, "410"},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, Status, "429"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, Status, "500"},
		{"a panic of the server", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unreachable, "closed the connection"},
		{"a body without an end", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "bulk.example\n")
			}
		}, TooBig, "larger than"},
		{"more header than anybody needs", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", maxHeaderBytes+4096))
			io.WriteString(w, list)
		}, Unreachable, "exceeded"},
		{"a location that is none", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://[::bad")
			w.WriteHeader(302)
		}, Unreachable, "Location"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, tt.handler)
			for _, existed := range []bool{false, true} {
				x := newFixture(t, Source{URL: server.URL, MaxBytes: 1_000_000})
				if existed {
					x.write(list)
				}
				x.refuses(tt.class, tt.text)
				if tt.class.result() == refused {
					x.counted(0, 0, 0, 1)
				} else {
					x.counted(0, 0, 1, 0)
				}
			}
		})
	}
}

func TestALimitIsReachedByAFileOfThatSize(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, list) })
	x := newFixture(t, Source{URL: server.URL, MaxBytes: int64(len(list))})
	x.fetch()
	x.holds(list)
}

func TestRedirects(t *testing.T) {
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := strings.TrimPrefix(r.URL.Path, "/hop/")
		switch {
		case n == r.URL.Path || n == "0":
			testkit.Equal(t, "Referer", r.Header.Get("Referer"), "")
			io.WriteString(w, list)
		default:
			var hops int
			fmt.Sscan(n, &hops)
			http.Redirect(w, r, fmt.Sprintf("/hop/%d?key=secret", hops-1), http.StatusFound)
		}
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(plain.URL, "http://"), ":")
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down":
			http.Redirect(w, r, plain.URL+"/spam.txt?key=secret", http.StatusFound)
		case "/ftp":
			http.Redirect(w, r, "ftp://127.0.0.1/spam.txt", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/page":
			http.Redirect(w, r, "/error.html", http.StatusSeeOther)
		case "/error.html":
			io.WriteString(w, "<html>gone</html>")
		case "/moved":
			http.Redirect(w, r, "/spam.txt", http.StatusPermanentRedirect)
		default:
			io.WriteString(w, list)
		}
	}))
	t.Cleanup(secure.Close)
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		// A name of this machine that is not known to be one.
		http.Redirect(w, r, "http://lists.example:"+port+"/spam.txt", http.StatusFound)
	})
	trust := func(s *Settings) {
		s.Roots = x509.NewCertPool()
		s.Roots.AddCert(secure.Certificate())
	}
	tests := []struct {
		name     string
		url      string
		insecure bool
		class    Class // "": is fetched
		text     string
	}{
		{"five are followed, without telling where from", plain.URL + "/hop/5?key=secret", false, "", ""},
		{"six are not", plain.URL + "/hop/6", false, Redirect, "more than 5"},
		{"a loop ends", secure.URL + "/loop", false, Redirect, "more than 5"},
		{"https to https", secure.URL + "/moved", false, "", ""},
		{"https to http", secure.URL + "/down", false, Redirect, "leads from https:// to " + plain.URL + "/spam.txt"},
		{"https to http where http is allowed", secure.URL + "/down", true, Redirect, "leads from https:// to "},
		{"https to something else", secure.URL + "/ftp", false, Redirect, "leads from https:// to ftp://"},
		{"to an error page with status 200", secure.URL + "/page", false, HTML, "web page"},
		{"http on this machine to http elsewhere", elsewhere.URL, false, Redirect, "want https://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newFixture(t, Source{URL: tt.url, Insecure: tt.insecure}, trust)
			if tt.class == "" {
				x.fetch()
				x.holds(list)
				return
			}
			x.refuses(tt.class, tt.text)
		})
	}
}

func TestTLS(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				testkit.Equal(t, "asked over HTTP/2", r.ProtoMajor == 2, http2)
				if r.URL.Path == "/short" {
					w.Header().Set("Content-Length", "1000")
					io.WriteString(w, list)
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
				w.(http.Flusher).Flush() // no length, but an end
				io.WriteString(w, list)
			}))
			server.EnableHTTP2 = http2
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			trust := func(s *Settings) {
				s.Roots = x509.NewCertPool()
				s.Roots.AddCert(server.Certificate())
			}
			x := newFixture(t, Source{URL: server.URL}, trust)
			x.fetch()
			x.holds(list)

			newFixture(t, Source{URL: server.URL + "/short"}, trust).refuses(Truncated, "cut after")
			newFixture(t, Source{URL: server.URL}).refuses(Unreachable, "certificate")
		})
	}
	t.Run("plain HTTP at the port of https", func(t *testing.T) {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, list) })
		newFixture(t, Source{URL: strings.Replace(server.URL, "http:", "https:", 1)}).refuses(Unreachable, "HTTP response to HTTPS client")
	})
}

func TestCheckKeepsTheOldCopy(t *testing.T) {
	_, server := publish(t, list, "")
	var seen string
	verdict := errors.New("no entry in it")
	x := newFixture(t, Source{URL: server.URL, Check: func(_ context.Context, path string) error {
		text, err := os.ReadFile(path)
		seen = string(text)
		if err != nil {
			return err
		}
		return verdict
	}})
	x.write("good.example\n")
	x.refuses(Refused, "no entry in it")
	x.counted(0, 0, 0, 1)
	testkit.Equal(t, "Check saw", seen, list)
	x.holds("good.example\n")
	verdict = nil
	x.fetch()
	x.holds(list)
}

// A URL may be the key to a list that is paid for.
func TestNoTextHoldsACredential(t *testing.T) {
	var authorised atomic.Int32
	var status atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user == "anna" && password == "geheim" && r.URL.RawQuery == "key=secret" {
			authorised.Add(1)
		}
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/spam.txt?key=secret", http.StatusFound)
			return
		}
		w.WriteHeader(int(status.Load()))
		io.WriteString(w, list)
	})
	address := strings.TrimPrefix(server.URL, "http://")
	var texts []string
	for _, s := range []Source{
		{URL: "http://anna:geheim@" + address + "/spam.txt?key=secret#secret"},
		{URL: "http://anna:geheim@" + address + "/away?key=secret"},
		{URL: "http://anna:geheim@" + address + "/spam.txt?key=secret", Checksum: "sha256:.sha256"},
		{URL: "http://anna:geheim@127.0.0.1:1/spam.txt?key=secret"},
		{URL: "https://anna:geheim@" + address + "/spam.txt?key=secret"},
	} {
		for _, code := range []int32{200, 404} {
			status.Store(code)
			x := newFixture(t, s)
			err := x.Fetch(t.Context())
			x.Now()
			stop := testkit.Running(t, func(ctx context.Context) { x.Run(ctx) })
			for x.log.String() == "" {
				<-time.After(time.Millisecond)
			}
			stop()
			receipt, _ := os.ReadFile(receiptPath(x.path))
			texts = append(texts, fmt.Sprint(err), x.log.String(), string(receipt))
		}
	}
	for _, bad := range []string{"http://anna:geheim@[::1/x", "http://anna:ge heim@x/", "ftp://anna:geheim@x/?key=secret", "http://anna:geheim@lists.example/?key=secret",
		"https://anna:geheim@/?key=secret", "https://anna:geheim@x:port/"} {
		if err := (Source{Name: "n", Path: "p", URL: bad}).Validate(); err == nil {
			t.Errorf("Validate() of %s = nil", bad)
		} else {
			texts = append(texts, err.Error())
		}
		if err := (Source{Name: "n", Path: "p", URL: "https://x/y", Checksum: "sha256:" + bad}).Validate(); err == nil {
			t.Errorf("Validate() of a checksum from %s = nil", bad)
		} else {
			texts = append(texts, err.Error())
		}
	}
	for _, text := range texts {
		for _, secret := range []string{"anna", "geheim", "secret"} {
			testkit.Lacks(t, text, secret)
		}
	}
	testkit.AtLeast(t, "requests with the credentials", authorised.Load(), 1)
}

func TestAnErrorIsOneShortPrintableLine(t *testing.T) {
	err := fault(Unreachable, "the server says \x1b[31m\n%s", strings.Repeat("ä", 1000))
	err.List = "spam"
	if text := err.Error(); len(text) > maxText+60 || strings.ContainsAny(text, "\x1b\n") || !strings.HasPrefix(text, "list spam: unreachable: the server says ?[31m?ä") {
		t.Errorf("Error() = %q", text)
	}
}

func TestPublicAddresses(t *testing.T) {
	s := &source{Source: Source{Public: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}
	for text, want := range map[string]bool{
		"9.9.9.9": true, "2620:fe::fe": true, "10.1.2.3": true, "::ffff:10.1.2.3": true,
		"127.0.0.1": false, "::1": false, "10.2.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "::": false, "fe80::1": false, "fe80::1%lo": false, "fd00::1": false, "fec0::1": false, "224.0.0.1": false, "255.255.255.255": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "198.18.0.1": false,
	} {
		testkit.Equal(t, text, s.allows(netip.MustParseAddr(text)), want)
	}
	for text, want := range map[string]error{
		"https://lists.example/a": nil, "https://9.9.9.9/a": nil, "http://lists.example/a": ErrInsecure, "https://localhost/a": errNotPublic, "https://x.LOCALHOST./a": errNotPublic,
		"https://127.0.0.1/a": errNotPublic, "https://[::1]:8443/a": errNotPublic, "https://[::ffff:127.0.0.1]/a": errNotPublic, "http://127.0.0.1/a": ErrInsecure,
	} {
		source := Source{Name: "x", URL: text, Path: "/x", Public: true}
		if err := source.Validate(); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// Where a name leads counts, and where a redirect does.
func TestPublicServers(t *testing.T) {
	asked := 0
	inner := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Write([]byte("bulk.example\n"))
	}))
	defer inner.Close()
	outer := httptest.NewTLSServer(http.RedirectHandler(strings.Replace(inner.URL, "127.0.0.1", "127.1.2.3", 1), http.StatusFound))
	defer outer.Close()
	here := func(url string) *fixture {
		x := newFixture(t, Source{URL: url, Public: true, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
		x.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		return x
	}
	x := here(inner.URL)
	x.fetch()
	testkit.Equal(t, "questions in a network that is allowed", asked, 1)
	here(outer.URL).refuses(Redirect, "127.1.2.3 is not of the public internet")
	x = newFixture(t, Source{URL: "https://lists.example/", Public: true})
	x.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	r := httptest.NewRequest("GET", inner.URL, nil) // as a name that leads here
	if _, err := x.through(x.sources[0]).RoundTrip(r); !errors.Is(err, errNotPublic) || asked != 1 {
		t.Errorf("a name that leads here: %v, asked %d times", err, asked)
	}
	// The proxy decides where there is one.
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Method != http.MethodConnect || r.Host != "lists.example:443" {
			t.Errorf("the proxy is asked %s %s", r.Method, r.Host)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	x.transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	err := x.Fetch(t.Context())
	testkit.Got(err != nil, asked)(t, "through a proxy: an error, and requests", true, 2)
}
