package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// fixture is a Fetcher of one source, and what it leaves behind.
type fixture struct {
	*Fetcher
	t    *testing.T
	path string
	log  *testkit.Log
	reg  *prometheus.Registry
}

// newFixture fetches into a fresh folder what s says, with the name "spam".
func newFixture(t *testing.T, s Source, change ...func(*Settings)) *fixture {
	t.Helper()
	x := &fixture{t: t, log: &testkit.Log{}, reg: prometheus.NewRegistry()}
	if s.Path == "" {
		s.Path = filepath.Join(t.TempDir(), "spam.txt")
	}
	s.Name, x.path = "spam", s.Path
	settings := Settings{Sources: []Source{s}, Version: "v1.2.3"}
	for _, c := range change {
		c(&settings)
	}
	var err error
	if x.Fetcher, err = New(settings, x.log.Logger(), x.reg); err != nil {
		t.Fatal(err)
	}
	x.transport.Proxy = nil // whatever the machine of the tests has
	return x
}

// again is a second Fetcher of the same copy, as after a restart.
func (x *fixture) again(s Source) *fixture {
	x.t.Helper()
	s.Path = x.path
	return newFixture(x.t, s)
}

// Fetch is FetchDue for every source.
func (f *Fetcher) Fetch(ctx context.Context) error {
	return f.fetchThose(ctx, func(*source) bool { return true })
}

// fetch fetches once and wants no error.
func (x *fixture) fetch() {
	x.t.Helper()
	testkit.MustEqual(x.t, "Fetch", x.Fetch(x.t.Context()), nil)
}

// refuses fetches once and wants an error of that class with that text in it; the
// copy must be left as it was, and nothing beside it.
func (x *fixture) refuses(class Class, text string) {
	x.t.Helper()
	before, existed := x.stat()
	err := x.Fetch(x.t.Context())
	x.isError(err, class, text)
	if after, exists := x.stat(); exists != existed || exists && (!os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime())) {
		x.t.Errorf("after %v the copy is another one", err)
	}
	x.tidy()
}

func (x *fixture) isError(err error, class Class, text string) {
	x.t.Helper()
	fault, ok := errors.AsType[*Error](err)
	if !ok {
		x.t.Fatalf("Fetch() = %v, want class %s", err, class)
	}
	if fault.Class != class || !strings.Contains(fault.Error(), text) || fault.List != "spam" {
		x.t.Errorf("Fetch() = %v, want class %s and %q", err, class, text)
	}
}

// tidy wants no draft to be left.
func (x *fixture) tidy() {
	x.t.Helper()
	drafts, err := filepath.Glob(filepath.Join(filepath.Dir(x.path), HiddenFolder, "*"+draftMark))
	if err != nil || len(drafts) > 0 {
		x.t.Errorf("drafts are left: %v, %v", drafts, err)
	}
}

func (x *fixture) stat() (os.FileInfo, bool) {
	info, err := os.Stat(x.path)
	return info, err == nil
}

// holds wants the copy to hold text.
func (x *fixture) holds(text string) {
	x.t.Helper()
	have := testkit.Value(os.ReadFile(x.path))(x.t)
	testkit.Equal(x.t, "the copy holds", string(have), text)
}

// counted wants the counts of the four results.
func (x *fixture) counted(changed, unchanged, failed, refused float64) {
	x.t.Helper()
	for r, want := range map[string]float64{"changed": changed, "unchanged": unchanged, "failed": failed, "refused": refused} {
		if have := x.metric(`blockd_fetch_total{list="spam",result="` + r + `"}`); have != want {
			x.t.Errorf("blockd_fetch_total{result=%q} = %v, want %v", r, have, want)
		}
	}
}

// metric is the value of a metric as /metrics shows it.
func (x *fixture) metric(name string) (value float64) {
	x.t.Helper()
	for line := range strings.Lines(testkit.Metrics(x.reg)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			testkit.Value(fmt.Sscan(text, &value))(x.t)
			return value
		}
	}
	x.t.Fatalf("no metric %s", name)
	return 0
}

// write makes the copy hold text, as an earlier fetch would.
func (x *fixture) write(text string) {
	x.t.Helper()
	testkit.Write(x.t, x.path, text)
}

// raw lets every connection be answered by serve, over a pipe: bytes as they are,
// in the time of a synctest bubble. serve's end is its connection's end.
func (x *fixture) raw(serve func(net.Conn)) {
	x.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(theirs)
		}()
		return ours, nil
	}
}

// answers is a server for raw that reads the request and then says text.
func answers(text string) func(net.Conn) {
	return func(c net.Conn) {
		if readRequest(c) {
			io.WriteString(c, text)
		}
	}
}

// hangsAfter says text and then nothing, until the client goes.
func hangsAfter(text string) func(net.Conn) {
	return func(c net.Conn) {
		answers(text)(c)
		io.Copy(io.Discard, c)
	}
}

func readRequest(c net.Conn) bool {
	_, err := http.ReadRequest(bufio.NewReader(c))
	return err == nil
}

// serving lets handler answer, over pipes, until the test's bubble ends.
func (x *fixture) serving(handler http.HandlerFunc) (stop func()) {
	l := testkit.NewPipes()
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	x.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return l.Dial("127.0.0.1"), nil }
	return func() { server.Close() }
}

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
