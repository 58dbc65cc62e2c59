package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// TestMain is the child too: what it does is its only argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && children[os.Args[1]] != nil {
		children[os.Args[1]]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var children = map[string]func(){
	"builder": func() {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
	},
	"is of another version": func() { send(os.Stdout, answer{Version: "0/0 of yesterday"}) },
	"ends at once":          func() {},
	"fails":                 func() { fmt.Fprintln(os.Stderr, "disk on fire\nand more"); os.Exit(3) },
	"crashes":               func() { hello(); panic("a defect") },
	"is killed":             func() { hello(); syscall.Kill(os.Getpid(), syscall.SIGKILL) },
	"is hung":               func() { hello(); select {} },
	"talks and hangs": func() {
		hello()
		for range time.Tick(time.Millisecond) {
			send(os.Stdout, answer{Progress: &index.Progress{Stage: "read"}})
		}
	},
	"writes rubbish":       func() { os.Stdout.WriteString("no frame at all, and never one") },
	"announces too much":   func() { hello(); os.Stdout.Write([]byte{255, 255, 255, 255}) },
	"says nothing":         func() { hello(); send(os.Stdout, struct{}{}) },
	"stops in the middle":  func() { hello(); os.Stdout.Write([]byte{9, 0, 0, 0, '{'}) },
	"has made nothing":     func() { hello(); send(os.Stdout, answer{Made: &index.Made{}}) },
	"has made a text file": func() { made("no index\n", index.Made{}) },
	"makes names up": func() {
		serveInstead(func(m *index.Made) { m.Segments.Made = []string{"../lists.txt"} })
	},
	"counts rows that are not there": func() {
		serveInstead(func(m *index.Made) { m.Rows = []index.MadeRow{{Row: 7}} })
	},
}

func hello() { send(os.Stdout, answer{Version: version()}) }

func made(text string, m index.Made) {
	hello()
	var r request
	receive(os.Stdin, &r)
	os.WriteFile(string(r.Temp), []byte(text), 0o600)
	send(os.Stdout, answer{Made: &m})
}

func serveInstead(change func(*index.Made)) {
	hello()
	var r request
	receive(os.Stdin, &r)
	r.Urgent = true
	m, err := serve(r, os.Stdout)
	if err != nil {
		panic(err)
	}
	change(m)
	send(os.Stdout, answer{Made: m})
}

// fixture is a list in a folder of its own.
type fixture struct {
	*testing.T
	folder, list, path string
	log                *testkit.Log
}

func newFixture(t *testing.T, text string) *fixture {
	f := &fixture{T: t, folder: t.TempDir(), log: &testkit.Log{}}
	f.list, f.path = filepath.Join(f.folder, "li\xffst.txt"), filepath.Join(f.folder, "lists.bdx")
	testkit.Must(t, os.WriteFile(f.list, []byte(text), 0o600))
	return f
}

func (f *fixture) builder(child string) *Builder {
	b := New(f.log.Logger(), child)
	b.from = 0
	return b
}

func (f *fixture) sources() []index.Source {
	guard := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(f)
	no := false
	return []index.Source{
		{List: "a", Path: f.list, Settings: lists.Settings{Format: "plain", Subdomains: &no, Action: lists.Tempfail, Guard: guard}},
		{List: "b", Path: filepath.Join(f.folder, "none"), Optional: true, Settings: lists.Settings{Guard: guard}, Exceptions: index.AllExceptions},
	}
}

func (f *fixture) build(b *Builder) (*index.Draft, error) {
	return b.Build(f.Context(), f.path, f.sources(), index.Options{Cache: f.path + index.CacheSuffix, LastGood: true, Hold: map[int]error{}}, false)
}

// left are the files of the folder but the list, the lock and those of its cache.
func (f *fixture) left() (names []string) {
	filepath.WalkDir(f.folder, func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); err == nil && !d.IsDir() && path != f.list && !strings.HasSuffix(name, ".lock") {
			names = append(names, name)
		}
		return err
	})
	return names
}

func TestAnotherProcessBuildsTheSame(t *testing.T) {
	f := newFixture(t, "someone@bad.example\nwhole.example\n??\n")
	here := testkit.Value(index.Build(t.Context(), f.path, f.sources(), index.Options{}))(t)
	want := here.Report
	here.Discard()
	d := testkit.Value(f.build(f.builder("builder")))(t)
	defer d.Discard()
	if !reflect.DeepEqual(d.Report.Lists, want.Lists) || d.Report.Keys != want.Keys || d.Report.Bytes != want.Bytes || d.Report.Hash != want.Hash {
		t.Errorf("report\n%+v, want\n%+v", d.Report, want)
	}
	if _, err := index.Build(t.Context(), f.path, f.sources(), index.Options{}); !errors.Is(err, index.ErrLocked) {
		t.Errorf("the draft does not hold the lock: %v", err)
	}
	testkit.Must(t, d.Publish())
	a, _ := addr.Parse("someone@bad.example")
	testkit.Equal(t, "len(m)", len(testkit.Value(d.Index().Lookup(nil, a, time.Now()))(t)), 1)
	again := testkit.Value(f.build(f.builder("builder")))(t)
	defer again.Discard()
	if again.Report.Cached != 1 {
		t.Errorf("the cache of the first build is not used: %+v", again.Report)
	}
}

func TestErrorsOfListsComeAsTheyAre(t *testing.T) {
	f := newFixture(t, "<html><body>\n")
	sources := f.sources()
	sources[1].Optional = false
	_, want := index.Build(t.Context(), f.path, sources, index.Options{})
	_, err := f.builder("builder").Build(t.Context(), f.path, sources, index.Options{}, true)
	all, ok := errors.AsType[*index.SourcesError](err)
	if !ok || len(all.Errs) != 2 || err.Error() != want.Error() || !errors.Is(err, fs.ErrNotExist) || !errors.Is(want, fs.ErrNotExist) {
		t.Fatalf("%v, want %v", err, want)
	}
	fe, ok := errors.AsType[*lists.FileError](all.Errs[0])
	if !ok || fe.Class != lists.HTML || fe.Path != f.list {
		t.Errorf("%+v", fe)
	}
	if f := index.FaultOf(&lists.FileError{Class: lists.Changed, Err: lists.ErrChanged}); !errors.Is(f.Err(), lists.ErrChanged) {
		t.Error("a file that changes does not pass by itself")
	}
}

func TestChildrenThatFail(t *testing.T) {
	for child, want := range map[string]string{
		"is of another version":          "is of another version: \"0/0 of yesterday\"",
		"ends at once":                   "ended without an answer",
		"fails":                          "failed (exit status 3): disk on fire",
		"crashes":                        "failed (exit status 2): panic: a defect",
		"is killed":                      "the build was killed (SIGKILL), by somebody or for want of memory",
		"is hung":                        "got no further for 2s",
		"talks and hangs":                "got no further for 2s",
		"writes rubbish":                 "does not understand",
		"announces too much":             "a frame of 4294967295 octets, at most",
		"says nothing":                   "an answer that says nothing",
		"stops in the middle":            "ended without an answer",
		"has made nothing":               "built by another process: open",
		"has made a text file":           "built by another process",
		"makes names up":                 `"../lists.txt" is no segment`,
		"counts rows that are not there": "source 7 of 2",
	} {
		t.Run(child, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "someone@bad.example\n")
			testkit.Must(t, os.WriteFile(f.path, []byte("what serves"), 0o600))
			b := f.builder(child)
			if strings.Contains(want, "got no further") {
				b.silence = 2 * time.Second
			}
			_, err := f.build(b)
			testkit.Has(t, fmt.Sprint(err), want)
			kept, _ := os.ReadFile(f.path)
			for _, name := range f.left() {
				if strings.Contains(name, ".tmp-") || strings.HasPrefix(name, "new-") {
					t.Errorf("%s is left behind", name)
				}
			}
			testkit.Equal(t, "what serves was touched", string(kept), "what serves")
			d, err := f.build(f.builder("builder"))
			if err != nil {
				t.Fatal("the lock is still held, or worse:", err)
			}
			d.Discard()
		})
	}
}

func TestTheEndOfTheDaemonEndsTheChild(t *testing.T) {
	f := newFixture(t, "someone@bad.example\n")
	ctx, end := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, end)
	if _, err := f.builder("is hung").Build(ctx, f.path, f.sources(), index.Options{}, false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWhereNoChildCanBeStarted(t *testing.T) {
	f := newFixture(t, "someone@bad.example\n")
	b := f.builder("builder")
	b.command[0] = filepath.Join(f.folder, "none")
	for range 2 {
		d := testkit.Value(f.build(b))(t)
		d.Discard()
	}
	if n := strings.Count(f.log.String(), "no other can be started"); n != 1 {
		t.Errorf("said %d times: %s", n, f.log.String())
	}
}

func TestAnotherProcessReadsAChangedSource(t *testing.T) {
	f := newFixture(t, "someone@bad.example\n")
	b := f.builder("builder")
	d := testkit.Value(f.build(b))(t)
	defer d.Discard()
	testkit.Must(t, d.Publish())
	asked := 0
	o := index.Options{Cache: f.path + index.CacheSuffix, Parse: func(ctx context.Context, cache string, s index.Source) error {
		asked++
		return b.Parse(ctx, cache, s)
	}}
	testkit.Must(t, os.WriteFile(f.list, []byte("someone@bad.example\nanother@bad.example\n"), 0o600))
	updated, report, err := d.Index().Update(t.Context(), f.sources(), o)
	testkit.Must(t, err)
	a, _ := addr.Parse("another@bad.example")
	if m, err := updated.Lookup(nil, a, time.Now()); len(m) != 1 || err != nil || report.Keys != 1 || asked != 1 {
		t.Errorf("%v, %v, %+v, asked %d times", m, err, report, asked)
	}
	testkit.Must(t, os.WriteFile(f.list, []byte("<html><body>\n"), 0o600))
	if _, _, err := updated.Update(t.Context(), f.sources(), o); !errors.Is(err, index.ErrTooDifferent) {
		t.Errorf("a source that is no list: %v", err)
	}
}

func TestSmallListsAreBuiltHere(t *testing.T) {
	f := newFixture(t, "someone@bad.example\n")
	b := f.builder("crashes")
	b.from = inProcess
	d := testkit.Value(f.build(b))(t)
	d.Discard()
}

// What has the priority of the daemon, and what has the last place.
func TestLittleWorkIsPrompt(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, size int64) index.Source {
		path := filepath.Join(dir, name)
		testkit.Write(t, path, text)
		testkit.Must(t, os.Truncate(path, size))
		return index.Source{Path: path}
	}
	half, more, packed := file("half", "a.example\n", promptBuild/2), file("more", "a.example\n", promptBuild/2+1), file("packed", "\x1f\x8b\x08", 100)
	for _, tt := range []struct {
		sources []index.Source
		want    bool
	}{
		{[]index.Source{half, half}, true},
		{[]index.Source{half, more}, false},
		{[]index.Source{half, packed}, false},
		{[]index.Source{{Path: more.Path, Kept: half.Path}, half}, true}, // what is read counts
		{[]index.Source{{Path: filepath.Join(dir, "gone")}}, true},
	} {
		testkit.Equal(t, tt.sources, prompt(tt.sources, promptBuild), tt.want)
	}
}

func TestMemoryIsHalfOfWhatIsLeft(t *testing.T) {
	for _, tt := range []struct{ configured, left, want int64 }{
		{0, 8 << 30, index.DefaultMemory}, {0, 400 << 20, 200 << 20}, {64 << 20, 8 << 30, 64 << 20}, {1 << 30, 1, minMemory},
	} {
		testkit.Equal(t, fmt.Sprintf("memory(%d, %d)", tt.configured, tt.left), memory(tt.configured, tt.left), tt.want)
	}
}

func TestAComplaintIsOneLine(t *testing.T) {
	var c tail
	c.Write([]byte("first\nsecond\n"))
	c.Write(bytes.Repeat([]byte("x"), 2*maxComplaint))
	if c.String() != ": first" || c.kept.Len() != maxComplaint {
		t.Errorf("%q, %d", c.String(), c.kept.Len())
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte{255, 255, 255, 31, '{'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		_ = receive(bytes.NewReader(b), &a)
	})
}
