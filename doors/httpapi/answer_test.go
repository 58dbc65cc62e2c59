package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/policy/verdict"
)

func TestEntityTag(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	const target = "/v1/check?sender=a@bad.example"
	first := f.ask("GET", target, "")
	tag := first.Header().Get("ETag")
	testkit.MustGot(len(tag), first.Header().Get("Cache-Control"))(t, tag, 18, "private, no-cache")
	for _, tt := range []struct {
		name, target, tags string
		want               int
	}{
		{"the same question", target, tag, http.StatusNotModified},
		{"compared weakly", target, "W/" + tag, http.StatusNotModified},
		{"one of several", target, `"x", ` + tag, http.StatusNotModified},
		{"any", target, "*", http.StatusNotModified},
		{"another tag", target, `"x"`, http.StatusOK},
		{"without its quotes", target, tag[1:17], http.StatusOK},
		{"another question", "/v1/check?sender=b@bad.example", tag, http.StatusOK},
		{"with an explanation", target + "&explain=1", tag, http.StatusOK},
	} {
		w := f.ask("GET", tt.target, "", "If-None-Match: "+tt.tags)
		testkit.Equal(t, tt.name, w.Code, tt.want)
		if tt.want == http.StatusNotModified && (w.Body.Len() > 0 || w.Header().Get("ETag") != tag || w.Header().Get("Content-Type") != "") {
			t.Errorf("%s: 304 with %v and %d octets", tt.name, w.Header(), w.Body.Len())
		}
	}
	f.live = build(t, "bad.example\nother.example\n")
	f.gives(t, http.StatusOK, "GET", target, "", "If-None-Match: "+tag)
}

// TestEntityTagFollowsLiveEntries holds what a tag of the generation would break: the
// answer changes without one.
func TestEntityTagFollowsLiveEntries(t *testing.T) {
	f := newEntryFixture(t)
	const target = "/v1/check?sender=new@ok.example"
	tag := f.ask("GET", target, "", f.read).Header().Get("ETag")
	testkit.Value(f.set.Apply(live.Change{Entry: "new@ok.example", Expires: time.Now().Add(time.Hour)}))(t)
	w := f.ask("GET", target, "", f.read, "If-None-Match: "+tag)
	testkit.Equal(t, "with a live entry", decoded[answer](t, w, http.StatusOK, asJSON).Verdict, verdict.Blocked)
}

func TestHotPathAllocates(t *testing.T) {
	f := newFixture(t, Settings{MaxRate: 1 << 20}, "bad.example\n")
	for _, tt := range []struct {
		name, target string
		most         float64
	}{
		{"clear", "/v1/check?sender=a@ok.example", 8},
		{"listed", "/v1/check?sender=a@bad.example", 12},
	} {
		serve := f.request(tt.target)
		if got := testing.AllocsPerRun(200, serve); got > tt.most {
			t.Errorf("%s: %.0f allocations, want %.0f at most", tt.name, got, tt.most)
		}
	}
}

// blank is a ResponseWriter that costs nothing.
type blank struct{ header http.Header }

func (b blank) Header() http.Header         { return b.header }
func (b blank) Write(p []byte) (int, error) { return len(p), nil }
func (b blank) WriteHeader(int)             {}

// request returns a function that has one request answered.
func (f *fixture) request(target string) func() {
	r, err := http.NewRequest("GET", target, nil)
	if err != nil {
		panic(err)
	}
	r.Host, r.RemoteAddr = "127.0.0.1:8025", "127.0.0.1:40000"
	w := blank{http.Header{}}
	return func() { f.Handler().ServeHTTP(w, r) }
}

// What is wrong is told without all of what was wrong.
func TestDetailIsShort(t *testing.T) {
	f := newEntryFixture(t)
	long := strings.Repeat("ü", 1_000_000)
	for _, w := range []*httptest.ResponseRecorder{
		f.ask("POST", "/v1/check", `{"`+long+`":[]}`, f.read, "Content-Type: application/json"),
		f.ask("POST", "/v1/entries", `{"entry":"x.example","action":"`+long+`"}`, f.write, "Content-Type: application/json"),
		f.ask("POST", "/v1/entries", `{"`+long+`":"x.example"}`, f.write, "Content-Type: application/json"),
		f.ask("GET", "/v1/decisions?"+long, "", f.read),
	} {
		if w.Code == http.StatusOK || w.Body.Len() > 2*maxDetail || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%d of %d octets", w.Code, w.Body.Len())
		}
	}
}
