package remote

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestPublicAddresses(t *testing.T) {
	s := &source{Source: Source{Public: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}
	for text, want := range map[string]bool{
		"9.9.9.9": true, "2620:fe::fe": true, "10.1.2.3": true, "::ffff:10.1.2.3": true,
		"127.0.0.1": false, "::1": false, "10.2.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "::": false, "fe80::1": false, "fe80::1%lo": false, "fd00::1": false, "fec0::1": false, "224.0.0.1": false, "255.255.255.255": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "198.18.0.1": false,
	} {
		if got := s.allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
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
	if asked != 1 {
		t.Errorf("in a network that is allowed: asked %d times", asked)
	}
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
	if err := x.Fetch(t.Context()); err == nil || asked != 2 {
		t.Errorf("through a proxy: %v, asked %d times", err, asked)
	}
}
