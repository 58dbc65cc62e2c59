package reload

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// daemon is a Reloader with real files, as a daemon has it.
type daemon struct {
	*Reloader
	t        *testing.T
	dir      string
	settings Settings
	reg      *prometheus.Registry
	log      *testkit.Log
}

// The times of the tests: short, since every test waits for them, and far from
// the deadline of the conditions.
const (
	testQuiet = 20 * time.Millisecond
	testPoll  = 150 * time.Millisecond
	deadline  = time.Minute
)

// newDaemon writes the files and opens a Reloader over one list a file: a.txt is
// list a. It does not run yet.
func newDaemon(t *testing.T, files map[string]string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: t.TempDir()}
	d.settings = Settings{Path: filepath.Join(d.dir, "index", "lists.bdx"), Quiet: testQuiet, Poll: testPoll}
	d.mkdir("index")
	for _, name := range []string{"a", "b", "c"} {
		if text, ok := files[name+".txt"]; ok {
			d.write(name+".txt", text)
			d.settings.Lists = append(d.settings.Lists, List{Name: name, Path: d.path(name + ".txt"), Settings: lists.Settings{Format: "plain"}})
		}
	}
	return d
}

func (d *daemon) open() *daemon {
	d.t.Helper()
	d.reg, d.log = prometheus.NewRegistry(), &testkit.Log{}
	r := testkit.Value(Open(d.t.Context(), d.settings, d.log.Logger(), d.reg))(d.t)
	d.Reloader = r
	return d
}

// start runs it until the test or the returned function ends it.
func (d *daemon) start() (stop func()) {
	return d.background(func(ctx context.Context) { d.Run(ctx) })
}

// watching starts it, and waits for its first look: from there on the folders are watched.
func (d *daemon) watching() *daemon {
	d.t.Helper()
	d.start()
	d.looks(1)
	return d
}

// startWithoutEvents is start on a system that has no file events.
func (d *daemon) startWithoutEvents() (stop func()) {
	return d.background(func(ctx context.Context) { d.run(ctx, nil, func() {}) })
}

func (d *daemon) background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	d.t.Cleanup(stop)
	return stop
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

// write writes a file, and makes its folder if need be.
func (d *daemon) write(name, text string) {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(d.path(name)), 0o755))
	d.must(os.WriteFile(d.path(name), []byte(text), 0o644))
}

func (d *daemon) mkdir(name string) {
	d.t.Helper()
	d.must(os.MkdirAll(d.path(name), 0o755))
}

func (d *daemon) rename(from, to string) {
	d.t.Helper()
	d.must(os.Rename(d.path(from), d.path(to)))
}

func (d *daemon) remove(name string) {
	d.t.Helper()
	d.must(os.RemoveAll(d.path(name)))
}

// symlink makes or replaces a symlink at once, as `ln -sfn` and Kubernetes do.
func (d *daemon) symlink(target, name string) {
	d.t.Helper()
	d.must(os.Symlink(target, d.path(name+".new")))
	d.rename(name+".new", name)
}

func (d *daemon) must(err error) {
	d.t.Helper()
	testkit.Must(d.t, err)
}

// listed asks the serving generation.
func (d *daemon) listed(sender string) bool {
	d.t.Helper()
	return listed(d.t, d.Live(), sender)
}

// serves checks what acts: each of these senders is listed, and one behind a ! is not.
func (d *daemon) serves(what string, senders ...string) {
	d.t.Helper()
	for _, s := range senders {
		name, no := strings.CutPrefix(s, "!")
		if d.listed(name) == no {
			d.t.Errorf("%s: %s is listed: %v; status %+v; log:\n%s", what, name, no, d.Status(), d.log)
		}
	}
}

func listed(t *testing.T, ix *index.Index, sender string) bool {
	t.Helper()
	return len(matches(t, ix, sender)) > 0
}

func matches(t *testing.T, ix *index.Index, sender string) []index.Match {
	a, err := addr.Parse(sender)
	testkit.Should(t, err)
	found, err := ix.Lookup(nil, a, time.Now())
	testkit.Should(t, err)
	return found
}

// wait waits until the condition holds.
func (d *daemon) wait(what string, holds func() bool) {
	d.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			d.t.Fatalf("not in %v: %s; status %+v; log:\n%s", deadline, what, d.Status(), d.log)
		}
	}
}

func (d *daemon) waitListed(sender string) {
	d.t.Helper()
	d.wait(sender+" is listed", func() bool { return d.listed(sender) })
}

// served writes a file, and waits until it lists sender.
func (d *daemon) served(name, text, sender string) {
	d.t.Helper()
	d.write(name, text)
	d.waitListed(sender)
}

// cured is served where that ends all problems.
func (d *daemon) cured(name, text, sender string) {
	d.t.Helper()
	d.served(name, text, sender)
	d.waitWell()
}

func (d *daemon) waitUnlisted(sender string) {
	d.t.Helper()
	d.wait(sender+" is not listed", func() bool { return !d.listed(sender) })
}

// waitProblem waits for one problem that has all the words.
func (d *daemon) waitProblem(words ...string) {
	d.t.Helper()
	d.wait("one problem with "+strings.Join(words, ", "), func() bool {
		problems := d.Status().Problems
		if len(problems) != 1 {
			return false
		}
		for _, w := range words {
			if !strings.Contains(problems[0], w) {
				return false
			}
		}
		return true
	})
}

func (d *daemon) waitWell() {
	d.t.Helper()
	d.wait("no problem", func() bool { return len(d.Status().Problems) == 0 })
}

// looks waits until the lists have been looked at so many times more.
func (d *daemon) looks(n int) {
	d.t.Helper()
	for range n {
		last := d.Status().LastAttempt
		d.wait("another look", func() bool { return d.Status().LastAttempt.After(last) })
	}
}

// metric is the value of one sample as /metrics shows it, "" if it is not there.
func (d *daemon) metric(name string) string {
	for line := range strings.Lines(testkit.Metrics(d.reg)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// wantMetric waits for it: what was done is counted a moment after it shows.
func (d *daemon) wantMetric(name, want string) {
	d.t.Helper()
	d.wait(name+" "+want, func() bool { return d.metric(name) == want })
}

// count is how many log lines have the text.
func (d *daemon) count(text string) int {
	n := 0
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// wantCount waits for so many log lines with the text: what was done is told a
// moment after it shows.
func (d *daemon) wantCount(text string, want int) {
	d.t.Helper()
	d.wait(fmt.Sprintf("%d log lines with %q", want, text), func() bool { return d.count(text) == want })
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	testkit.Value(w.Write([]byte(text)))(t)
	testkit.Must(t, w.Close())
	return b.String()
}
