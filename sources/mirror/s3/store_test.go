package s3

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"blockd/internal/testkit"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

const (
	key    = "AKIAEXAMPLE"
	secret = "s3cret/+%@:? x"
)

// store is an S3 store that runs until the test ends, with a bucket "lists". A test may answer a question in its place.
type store struct {
	*httptest.Server
	files    *s3mem.Backend
	instead  atomic.Value // of func(http.ResponseWriter, *http.Request) bool
	listings atomic.Int64
	gets     atomic.Int64
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{files: s3mem.New()}
	handler := gofakes3.New(s.files).Server()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") {
			s.listings.Add(1)
		} else {
			s.gets.Add(1)
		}
		if instead, ok := s.instead.Load().(func(http.ResponseWriter, *http.Request) bool); ok && instead(w, r) {
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Server.Close)
	testkit.Must(t, s.files.CreateBucket("lists"))
	return s
}

// put stores an object.
func (s *store) put(t testing.TB, key, text string) {
	t.Helper()
	if _, err := s.files.PutObject("lists", key, map[string]string{"Last-Modified": "Mon, 02 Jan 2006 15:04:05 GMT"}, strings.NewReader(text), int64(len(text)), nil); err != nil {
		t.Error(err)
	}
}

// do answers questions in the place of the store, where answer says so by true.
func (s *store) do(answer func(http.ResponseWriter, *http.Request) bool) { s.instead.Store(answer) }

func (s *store) address() string { return strings.TrimPrefix(s.URL, "http://") }

// url is that of a prefix, with a key and a secret.
func (s *store) url(prefix string) string {
	return "s3://" + key + ":" + strings.ReplaceAll(url.QueryEscape(secret), "+", "%20") + "@" + s.address() + "/lists/" + prefix
}

func mustOpen(t testing.TB, o Options) *Source {
	t.Helper()
	s, err := Open(o)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// copyOf is a copy of a source, which leaves no temporary files.
func copyOf(t testing.TB, o Options) *mirrortest.Copy {
	t.Helper()
	o.Folder = t.TempDir()
	c := mirrortest.NewCopy(t, mustOpen(t, o), o.Settings)
	t.Cleanup(func() {
		if left, err := os.ReadDir(o.Folder); err != nil || len(left) > 0 {
			t.Errorf("temporary files stay: %v, %v", left, err)
		}
	})
	return c
}

// wantFault checks an error's class and that its text has want, and no secret.
func wantFault(t testing.TB, err error, class mirror.Class, want string) {
	t.Helper()
	mirrortest.WantFault(t, err, class, want, secret, "Signature=")
}

// fails reads a copy, which fails.
func fails(t testing.TB, c *mirrortest.Copy, class mirror.Class, want string) {
	t.Helper()
	_, err := c.Mirror.Read(t.Context(), c.Source)
	wantFault(t, err, class, want)
}

func packed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprint(w, text)
	testkit.Must(t, w.Close())
	return b.String()
}
