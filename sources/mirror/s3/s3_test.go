package s3

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

func TestObjectsAreAList(t *testing.T) {
	store := newStore(t)
	store.put(t, "lists/", "")
	store.put(t, "lists/a.txt", "Ann@Bulk.test\n!bob@bulk.test\n.below.test # why\nno entry\n/^x/\n")
	store.put(t, "lists/b ü%2F\"+.gz", packed(t, "=only.test\n192.0.2.0/24\n"))
	store.put(t, "lists/empty.txt", "")
	store.put(t, "lists.old/c.txt", "old.test\n")
	store.put(t, "lists-c.txt", "old.test\n")
	c := copyOf(t, Options{DSN: store.url("lists"), Settings: lists.Settings{Format: "plain"}})
	told := c.Read(t)
	if told.Rows != 7 || told.Refused != 2 || told.First[0].ID != "lists/a.txt:4" || told.First[0].Class != lists.Syntax {
		t.Fatalf("%+v", told)
	}
	want := []string{"192.0.2.0/24\tb\tt\t\tlists/b ü%2F\"+.gz:2\t", "ann@bulk.test\tb\tx\t\tlists/a.txt:1\t", "below.test\tb\ts\t\tlists/a.txt:3\t",
		"bob@bulk.test\ta\tx\t\tlists/a.txt:2\t", "only.test\tb\tx\t\tlists/b ü%2F\"+.gz:1\t"}
	if got := c.Lines(t); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	for _, change := range []struct {
		what string
		do   func()
	}{
		{"another text", func() { store.put(t, "lists/a.txt", "new@bulk.test\n") }},
		{"one more", func() { store.put(t, "lists/d.txt", "d.test\n") }},
		{"one less", func() { store.files.DeleteObject("lists", "lists/d.txt") }},
	} {
		change.do()
		if _, err := c.Mirror.Follow(t.Context(), c.Source); err != mirror.ErrTooOld {
			t.Errorf("%s: %v", change.what, err)
		}
		c.Read(t)
	}
	store.put(t, "lists-d.txt", "old.test\n")
	c.Follow(t) // an object that is not below the prefix
}

func TestDriver(t *testing.T) {
	store, rows := newStore(t), map[string]string{}
	put := func(t testing.TB) {
		text := ""
		for _, entry := range slices.Sorted(maps.Keys(rows)) {
			text += map[string]string{"block": "", "allow": "!"}[rows[entry]] + entry + "\n"
		}
		store.put(t, "list", text)
	}
	put(t)
	mirrortest.Run(t, mirrortest.Driver{
		Open: func(t testing.TB) mirror.Source {
			return mustOpen(t, Options{DSN: store.url("list"), Settings: lists.Settings{Format: "plain"}})
		},
		Put:    func(t testing.TB, entry, action string) { rows[entry] = action; put(t) },
		Remove: func(t testing.TB, entry string) { delete(rows, entry); put(t) },
		Asked:  func(testing.TB) int { return int(store.listings.Load() + store.gets.Load()) },
	})
}

func TestFormats(t *testing.T) {
	store := newStore(t)
	store.put(t, "hosts", "0.0.0.0 bulk.test\n")
	store.put(t, "entries", lists.EntriesHead+"\nann@bulk.test\tp\tx\t1893456000\tfrom:7\twhy\n")
	store.put(t, "plain", "bulk.test\n")
	no := false
	for _, tt := range []struct {
		prefix   string
		settings lists.Settings
		want     string
	}{
		{"hosts", lists.Settings{}, "bulk.test\tb\tx\t\thosts:1\t"},
		{"hosts", lists.Settings{Format: "rows"}, "bulk.test\tb\tx\t\thosts:1\t"},
		{"hosts", lists.Settings{Format: "hosts"}, "bulk.test\tb\tx\t\thosts:1\t"},
		{"entries", lists.Settings{Format: "entries"}, "ann@bulk.test\tp\tx\t1893456000\tfrom:7\twhy"},
		{"plain", lists.Settings{Format: "plain", Action: lists.Allow}, "bulk.test\ta\tt\t\tplain:1\t"},
		{"plain", lists.Settings{Format: "plain", Subdomains: &no}, "bulk.test\tb\tx\t\tplain:1\t"},
	} {
		c := copyOf(t, Options{DSN: store.url(tt.prefix), Settings: tt.settings})
		c.Read(t)
		if got := c.Lines(t); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s, %+v: %q", tt.prefix, tt.settings, got)
		}
	}
}

func TestPrefixes(t *testing.T) {
	store := newStore(t)
	for i := range 1003 { // two pages
		store.put(t, fmt.Sprintf("many/%04d", i), fmt.Sprintf("s%d.test\n", i))
	}
	for prefix, want := range map[string]int64{"many/": 1003, "": 1003, "many/0007": 1, "many/0": 0, "nothing/": 0} {
		c := copyOf(t, Options{DSN: store.url(prefix), Settings: lists.Settings{Format: "plain"}})
		testkit.Equal(t, fmt.Sprintf("%q", prefix), c.Read(t).Entries, want)
		c.Follow(t)
	}
	anonymous := mustOpen(t, Options{DSN: "s3://" + store.address() + "/lists/many/?region=eu-central-1"})
	text := testkit.Value(anonymous.Plan(t.Context()))(t)
	testkit.Has(t, text, "get 1003 objects of ", "many/0009  ", "and 993 more")
}

// An object that is replaced between its listing and the end of the read never gives a mixture.
func TestReplacedWhileRead(t *testing.T) {
	old, fresh := strings.Repeat("old.test\n", 1000), strings.Repeat("new.test\n", 1000)
	for _, tt := range []struct {
		name     string
		replaces int64
		two      bool
		class    mirror.Class // "": the new one is read
	}{
		{"once", 1, false, ""},
		{"again and again", 1000, false, mirror.ClassRefused},
		{"the second of two", 1, true, mirror.ClassRefused}, // rows of the first are gone to the copy already
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newStore(t)
			store.put(t, "lists/b", old)
			if tt.two {
				store.put(t, "lists/a", "a.test\n")
			}
			n := atomic.Int64{}
			store.do(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/b") {
					if i := n.Add(1); i <= tt.replaces {
						store.put(t, "lists/b", fresh+strings.Repeat("#\n", int(i)))
					}
				}
				return false
			})
			c := copyOf(t, Options{DSN: store.url("lists/"), Settings: lists.Settings{Format: "plain"}})
			if tt.class == "" {
				c.Read(t)
				c.Want(t, "replaced", "new.test b")
				return
			}
			fails(t, c, tt.class, "replaced while it was read")
			if _, has := c.State(); has {
				t.Error("there is a copy")
			}
		})
	}
	t.Run("after it was read", func(t *testing.T) {
		store := newStore(t)
		store.put(t, "lists/a", "a.test\n")
		store.put(t, "lists/b", "b.test\n")
		store.do(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/b") {
				store.put(t, "lists/a", "c.test\n")
			}
			return false
		})
		c := copyOf(t, Options{DSN: store.url("lists/"), Settings: lists.Settings{Format: "plain"}})
		fails(t, c, mirror.ClassRefused, "replaced while it was read")
	})
}

// Whatever the store answers, the copy stays as it was.
func TestWhateverAStoreAnswers(t *testing.T) {
	const listing = `<?xml version="1.0"?><ListBucketResult>%s<IsTruncated>false</IsTruncated></ListBucketResult>`
	says := func(code int, text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
			return true
		}
	}
	failing := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return says(status, "<Error><Code>"+code+"</Code><Message>no,\n"+secret+"</Message></Error>")
	}
	hangup := func(w http.ResponseWriter) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Close()
		}
	}
	ofObject := func(answer func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			return !r.URL.Query().Has("list-type") && !r.URL.Query().Has("location") && answer(w, r)
		}
	}
	// object begins an answer of so many octets.
	object := func(w http.ResponseWriter, tag string, octets int) {
		w.Header().Set("ETag", tag)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(octets))
	}
	part := func(end func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return ofObject(func(w http.ResponseWriter, r *http.Request) bool {
			object(w, r.Header.Get("If-Match"), 9)
			fmt.Fprint(w, "old.t")
			w.(http.Flusher).Flush()
			end(w, r)
			return true
		})
	}
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
		class  mirror.Class
		want   string
	}{
		{"no right", failing(403, "AccessDenied"), mirror.ClassAuth, "AccessDenied: no, …"},
		{"wrong signature", failing(403, "SignatureDoesNotMatch"), mirror.ClassAuth, "SignatureDoesNotMatch"},
		{"unknown key", failing(403, "InvalidAccessKeyId"), mirror.ClassAuth, "InvalidAccessKeyId"},
		{"clock", failing(403, "RequestTimeTooSkewed"), mirror.ClassAuth, "hint: look at the clock"},
		{"no bucket", failing(404, "NoSuchBucket"), mirror.ClassSchema, "NoSuchBucket"},
		{"another region", failing(301, "PermanentRedirect"), mirror.ClassSchema, "region="},
		{"too often", failing(503, "SlowDown"), mirror.ClassRefused, "SlowDown"},
		{"its own fault", failing(500, "InternalError"), mirror.ClassRefused, "InternalError"},
		{"too many requests", says(429, "later"), mirror.ClassRefused, ""},
		{"not S3", says(200, "<html>welcome</html>"), mirror.ClassRefused, "no list of objects"},
		{"empty", says(200, ""), mirror.ClassRefused, "no list of objects"},
		{"not XML", says(200, "<ListBucketResult>welcome & goodbye"), mirror.ClassRefused, "cannot be read"},
		{"a bad request", failing(400, "InvalidArgument"), mirror.ClassQuery, "InvalidArgument"},
		{"half a list", says(200, listing[:60]), mirror.ClassTruncated, "EOF"},
		{"closes", func(w http.ResponseWriter, _ *http.Request) bool { hangup(w); return true }, mirror.ClassUnreachable, "list"},
		{"hangs", func(w http.ResponseWriter, r *http.Request) bool { hangs(w, r); return true }, mirror.ClassTimeout, "no answer in time"},
		{"lists an object twice", says(200, fmt.Sprintf(listing, strings.Repeat("<Contents><Key>lists/a</Key><ETag>x</ETag><Size>9</Size></Contents>", 2))), mirror.ClassRefused, `lists "lists/a" twice`},
		{"no tag", says(200, fmt.Sprintf(listing, "<Contents><Key>lists/a</Key><Size>9</Size></Contents>")), mirror.ClassRefused, "no ETag"},
		{"a large object", says(200, fmt.Sprintf(listing, "<Contents><Key>lists/a</Key><ETag>x</ETag><Size>9999999999999</Size></Contents>")), mirror.ClassRefused, "at most"},
		{"a size below zero", says(200, fmt.Sprintf(listing, "<Contents><Key>lists/a</Key><ETag>x</ETag><Size>-9</Size></Contents>")), mirror.ClassRefused, "-9 octets"},
		{"many objects", says(200, fmt.Sprintf(listing, strings.Repeat("<Contents><Key>lists/a</Key><ETag>x</ETag><Size>9</Size></Contents>", maxObjects+1))), mirror.ClassRefused, "more than 10000 objects"},
		{"an endless list", func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "<ListBucketResult><Name>")
			for range 40 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<20)); err != nil {
					break
				}
			}
			return true
		}, mirror.ClassTruncated, ""},
		{"a list of nothing without end", says(200, "<ListBucketResult>"+strings.Repeat("<Contents/>", maxTags+1)), mirror.ClassRefused, "an answer of more than 100000 tags"},
		{"no right to an object", ofObject(failing(403, "AccessDenied")), mirror.ClassAuth, "get lists/a: AccessDenied"},
		{"object cut", part(func(w http.ResponseWriter, _ *http.Request) { hangup(w) }), mirror.ClassTruncated, "after 5 of 9 octets"},
		{"object hangs", part(hangs), mirror.ClassTimeout, "after 5 of 9 octets: no answer in time"},
		{"another object", ofObject(func(w http.ResponseWriter, _ *http.Request) bool {
			object(w, `"other"`, 9)
			fmt.Fprint(w, "new.test\n")
			return true
		}), mirror.ClassRefused, "replaced"},
		{"another length", ofObject(func(w http.ResponseWriter, r *http.Request) bool {
			object(w, r.Header.Get("If-Match"), 5)
			fmt.Fprint(w, "old.t")
			return true
		}), mirror.ClassRefused, "replaced"},
		{"wrong checksum", ofObject(func(w http.ResponseWriter, r *http.Request) bool {
			object(w, r.Header.Get("If-Match"), 9)
			w.Header().Set("X-Amz-Checksum-Type", "FULL_OBJECT")
			w.Header().Set("X-Amz-Checksum-Sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
			fmt.Fprint(w, "new.test\n")
			return true
		}), mirror.ClassTruncated, "hecksum"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			store.put(t, "lists/a", "old.test\n")
			timeout := time.Minute
			if tt.class == mirror.ClassTimeout {
				timeout = time.Second
			}
			c := copyOf(t, Options{DSN: store.url("lists/"), Settings: lists.Settings{Format: "plain"}, Timeout: timeout})
			c.Read(t)
			store.do(tt.answer)
			fails(t, c, tt.class, tt.want)
			c.Want(t, "the copy", "old.test b")
		})
	}
}

func TestObjectsThatAreNoLists(t *testing.T) {
	store := newStore(t)
	for _, tt := range []struct {
		text  string
		class mirror.Class
		want  string
	}{
		{packed(t, strings.Repeat("bulk.test\n", 1000))[:40], mirror.ClassTruncated, "gzip stream ends in the middle"},
		{"<html>not here</html>", mirror.ClassEncoding, "html"},
		{"PK\x03\x04 and more", mirror.ClassEncoding, "a zip archive"},
		{".a.test\n", mirror.ClassEncoding, "ambiguous"},
	} {
		store.put(t, "lists/a\n", tt.text)
		c := copyOf(t, Options{DSN: store.url("lists/")})
		fails(t, c, tt.class, tt.want)
	}
}

func TestStoreIsAway(t *testing.T) {
	s := mustOpen(t, Options{DSN: "s3://a:b@" + testkit.Refusing(t) + "/lists/a"})
	_, err := s.All(t.Context(), nil)
	wantFault(t, err, mirror.ClassUnreachable, "connection refused")

	store := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	store.do(func(_ http.ResponseWriter, r *http.Request) bool { cancel(); <-r.Context().Done(); return true })
	s = mustOpen(t, Options{DSN: store.url("lists/")})
	if _, err := s.All(ctx, nil); err != context.Canceled {
		t.Errorf("a read whose context has ended: %v", err)
	}
}

func TestTLS(t *testing.T) {
	store := newStore(t)
	store.put(t, "a", "a.test\n")
	s := mustOpen(t, Options{DSN: store.url("a") + "?tls=true"})
	_, err := s.All(t.Context(), nil)
	wantFault(t, err, mirror.ClassUnreachable, "")
	s = mustOpen(t, Options{DSN: store.url("a") + "?tls=true&tls_ca=/nowhere"})
	_, err = s.All(t.Context(), nil)
	wantFault(t, err, mirror.ClassDisk, "tls_ca: open /nowhere")
}

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
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// copyOf is a copy of a source, which leaves no temporary files.
func copyOf(t testing.TB, o Options) *mirrortest.Copy {
	t.Helper()
	o.Folder = t.TempDir()
	c := mirrortest.NewCopy(t, mustOpen(t, o), o.Settings)
	t.Cleanup(func() {
		left := testkit.Value(os.ReadDir(o.Folder))(t)
		testkit.Equal(t, fmt.Sprintf("temporary files stay: %v", left), len(left), 0)
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

// BenchmarkObject reads an object of so many lines, and then asks whether anything has changed. BLOCKD_TEST_ROWS gives their number.
func BenchmarkObject(b *testing.B) {
	n := mirrortest.BenchRows(100_000)
	var text strings.Builder
	for i := range n {
		x := uint64(i) * 0x9E3779B97F4A7C15
		fmt.Fprintf(&text, "user.%x@mail%d.bulk.example\n", x>>24, x>>44)
	}
	store := newStore(b)
	store.put(b, "list", text.String())
	s := mustOpen(b, Options{DSN: store.url("list"), Settings: lists.Settings{Format: "plain"}, Folder: b.TempDir()})
	mirrortest.Benchmark(b, s, n, nil)
}

func TestURL(t *testing.T) {
	for text, want := range map[string]location{
		"s3://s3.test/lists": {address: "s3.test", tls: true, bucket: "lists"},
		"s3://K:a%2Fb%40%3Ac+d@s3.test:9000/lists/a%20b/?region=eu": {address: "s3.test:9000", tls: true, key: "K", secret: "a/b@:c+d", bucket: "lists", prefix: "a b/", region: "eu"},
		"s3://localhost:9000/lists/a":                               {address: "localhost:9000", bucket: "lists", prefix: "a"},
		"s3://127.0.0.3/lists/a?tls=true&tls_ca=/x":                 {address: "127.0.0.3", tls: true, authorities: "/x", bucket: "lists", prefix: "a"},
		"s3://[2001:db8::1]:9000/lists/a?tls=false":                 {address: "[2001:db8::1]:9000", bucket: "lists", prefix: "a"},
		"s3://s3.test/lists/a?tls=skip-verify":                      {address: "s3.test", tls: true, unverified: true, bucket: "lists", prefix: "a"},
	} {
		got, err := parseURL(text)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
			continue
		}
		testkit.Value(Open(Options{DSN: text}))(t)
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"dsn: want s3://HOST/BUCKET/PREFIX":                                 {DSN: "https://a:hunter2@s3.test/lists"},
		"dsn: want HOST or HOST:PORT":                                       {DSN: "s3:///lists"},
		"dsn: want HOST or HOST:PORT; in a key or secret, / is written %2F": {DSN: "s3://KEY:hunter2/x@s3.test/lists"},
		"dsn: the key or secret: a %":                                       {DSN: "s3://KEY:hunter2%@s3.test/lists"},
		"dsn: want KEY:SECRET before the @":                                 {DSN: "s3://hunter2@s3.test/lists"},
		`dsn: want a bucket behind the host, have ""`:                       {DSN: "s3://a:hunter2@s3.test"},
		"dsn: the prefix: a %":                                              {DSN: "s3://a:hunter2@s3.test/lists/%"},
		`dsn: tls: want "true"`:                                             {DSN: "s3://a:hunter2@s3.test/lists/?tls=maybe"},
		`dsn: unknown parameter "secret"`:                                   {DSN: "s3://s3.test/lists/?secret=hunter2"},
		"dsn: the parameters behind ? cannot":                               {DSN: "s3://s3.test/lists/?secret=hunter2%"},
		"dsn: tls_ca is about TLS":                                          {DSN: "s3://localhost/lists/?tls_ca=/x"},
		"dsn: a control character":                                          {DSN: "s3://a:hunter2@s3.test/lists/\n"},
		`format: unknown format "html"`:                                     {DSN: "s3://s3.test/lists/", Settings: lists.Settings{Format: "html"}},
	} {
		_, err := Open(o)
		mirrortest.WantRefused(t, o.DSN, err, want, "hunter2")
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		prefix, key string
		want        bool
	}{
		{"", "any", true}, {"a", "a", true}, {"a", "a/b", true}, {"a", "a.old", false}, {"a/", "a/b", true}, {"a/", "a/b/c", true}, {"a/", "b/a", false},
	} {
		if got := (&location{prefix: tt.prefix}).covers(tt.key); got != tt.want {
			t.Errorf("%q covers %q: %v", tt.prefix, tt.key, got)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add("s3://K:S@s3.test:9000/lists/prefix/?region=eu&tls=false")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Open(Options{DSN: text}); err == nil {
			s.Close()
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q", text, err)
		}
	})
}
