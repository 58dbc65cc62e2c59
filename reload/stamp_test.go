package reload

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/stamp"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/digest"
)

// A start takes a large file that has not changed since the last run as it was, and reads one that has
// changed in any way that the system tells of: also where size and time of writing are as before.
func TestStartReadsWhatHasChangedAlone(t *testing.T) {
	dir := t.TempDir()
	index, path := filepath.Join(dir, "lists.bdx"), filepath.Join(dir, "big.txt")
	text := []byte(strings.Repeat("promo@bulk.test\n", stampedFrom/16+1))
	old := time.Now().Add(-time.Hour)
	write := func(text []byte) [16]byte {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		testkit.Must(t, os.Chtimes(path, old, old))
		return testkit.Value(lists.HashFile(t.Context(), path))(t)
	}
	s := List{Name: "big", Path: path, Settings: lists.Settings{Format: "plain"}}
	sources, _ := expand([]List{s})
	later := time.Duration(0)
	start := func(forced bool) (hash [16]byte, c *fileCache) {
		t.Helper()
		c = &fileCache{fresh: true}
		var err error
		if c.kept, err = readStamps(index); err != nil {
			t.Fatal(err)
		}
		if forced {
			c.forget()
		}
		now, faults := c.read(t.Context(), time.Now(), sources)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		testkit.Must(t, c.keep(index, time.Now().Add(later)))
		return now[0].hash, c
	}
	first := write(text)
	if got, c := start(false); got != first || len(c.kept) > 0 {
		t.Fatalf("the first start, of a file that has just been written, keeps %v", c.kept)
	}
	later = time.Hour
	start(false)
	// A lie in the file of stamps shows who believes it.
	lie := [16]byte{1, 2, 3}
	kept, err := readStamps(index)
	if err != nil || len(kept) != 1 {
		t.Skipf("no stamps on this system: %v, %v", kept, err)
	}
	k := kept[path]
	k.hash = lie
	testkit.Must(t, writeStamps(index, map[string]stamped{path: k}))
	if got, _ := start(false); got != lie {
		t.Error("a file that has not changed was read")
	}
	if got, _ := start(true); got != first {
		t.Error("who asks for all files anew got what was kept")
	}
	k.hash = lie
	for name, change := range map[string]func(){
		"other octets, the same size and time": func() { write(bytes.Replace(text, []byte("promo"), []byte("spams"), 1)) },
		"renamed over": func() {
			text := testkit.Read(t, path)
			testkit.Write(t, path+".new", text)
			os.Chtimes(path+".new", old, old)
			os.Rename(path+".new", path)
		},
		"another mode": func() { os.Chmod(path, 0o640) },
	} {
		write(text)
		if _, c := start(false); len(c.kept) != 1 {
			t.Fatalf("%s: nothing is kept", name)
		}
		kept, _ := readStamps(index)
		k := kept[path]
		k.hash = lie
		writeStamps(index, map[string]stamped{path: k})
		change()
		want := testkit.Value(lists.HashFile(t.Context(), path))(t)
		if got, _ := start(false); got != want {
			t.Errorf("%s: not read", name)
		}
	}
}

// A file of stamps that is torn, or of which a bit has flipped, is none.
func TestTornStamps(t *testing.T) {
	index := filepath.Join(t.TempDir(), "lists.bdx")
	all := map[string]stamped{"/a": {stamp.Stamp{Device: 1, Node: 2, Size: 3, Mode: 4, Written: 5, Changed: 6}, [16]byte{7}}, "/b\n\"": {hash: [16]byte{8}}}
	testkit.Must(t, writeStamps(index, all))
	if got, err := readStamps(index); err != nil || !maps.Equal(got, all) {
		t.Fatalf("%v, %v", got, err)
	}
	text := testkit.Read(t, index+stampsSuffix)
	for n := range len(text) - 1 {
		if _, err := parseStamps(text[:n]); err == nil {
			t.Errorf("%d octets of %d are taken", n, len(text))
		}
		bent := bytes.Clone(text)
		bent[n] ^= 1
		if got, err := parseStamps(bent); err == nil && !maps.Equal(got, all) {
			t.Errorf("octet %d: %v", n, got)
		}
	}
}

// An index is made again for anything that could make it another one, and for nothing else.
func TestCurrentIsWhatABuildWouldMakeAgain(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "x@bad.example\n", "b.txt": "y@bad.example\n"}).open()
	current := func(sources []index.Source, hashes digest.Set) bool {
		return Current(t.Context(), d.settings.Path, sources, hashes) != nil
	}
	sources, err := Sources(d.settings.Lists)
	d.must(err)
	if ix := Current(t.Context(), d.settings.Path, sources, 0); ix == nil || ix.Generation() != d.Live().Generation() {
		t.Fatalf("the index that serves is not taken: %v", ix)
	}
	with := func(change func(s []index.Source) []index.Source) []index.Source {
		return change(append([]index.Source{}, sources...))
	}
	guard, err := lists.NewGuard(lists.GuardSettings{Protected: []string{"kept.example"}})
	d.must(err)
	for name, other := range map[string][]index.Source{
		"a list that went":      sources[:1],
		"another order":         {sources[1], sources[0]},
		"a new list":            append(with(func(s []index.Source) []index.Source { return s }), index.Source{List: "c", Path: d.path("c.txt"), Optional: true}),
		"another action":        with(func(s []index.Source) []index.Source { s[0].Settings.Action = lists.Allow; return s }),
		"another guard":         with(func(s []index.Source) []index.Source { s[0].Settings.Guard = guard; return s }),
		"what a list held once": with(func(s []index.Source) []index.Source { s[0].Kept = "content"; return s }),
	} {
		if current(other, 0) {
			t.Errorf("%s: the index is said to be current", name)
		}
	}
	if current(sources, digest.SetOf(digest.SHA1)) {
		t.Error("an index without digests is said to be current")
	}
	d.write("a.txt", "z@bad.example\n")
	if current(sources, 0) {
		t.Error("a file has changed, and the index is said to be current")
	}
	d.write("a.txt", "x@bad.example\n")
	if !current(sources, 0) {
		t.Error("the file is as it was, and the index is said to be another one")
	}
	d.must(os.Remove(d.path("a.txt")))
	if current(sources, 0) {
		t.Error("a file is gone, and the index is said to be current")
	}
	d.write("a.txt", "x@bad.example\n")
	d.must(os.WriteFile(d.settings.Path, []byte("damaged"), 0o600))
	if current(sources, 0) {
		t.Error("a damaged index is said to be current")
	}
}

// Root accepts in a folder that may be another user's: what stands under the note's name
// is replaced, and where a link there leads is left alone.
func TestAcceptFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	elsewhere, path := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "blockd.bdx")
	testkit.Write(t, elsewhere, "root's own\n")
	testkit.Must(t, os.Symlink(elsewhere, acceptedPath(path)))
	if err := Accept(path, "g1"); err != nil || !readAcceptance(path).covers("g1", "a") || readAcceptance(path).covers("g2", "a") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	if err := Accept(path, "g1", "a", "b"); err != nil || !readAcceptance(path).covers("g1", "b") || readAcceptance(path).covers("g1", "c") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	testkit.Equal(t, "the link's target", string(testkit.Value(os.ReadFile(elsewhere))(t)), "root's own\n")
	files := testkit.Value(os.ReadDir(dir))(t)
	testkit.Equal(t, fmt.Sprintf("left behind: %v", files), len(files), 2)
	if err := Accept(filepath.Join(dir, "none", "blockd.bdx"), "g1"); err == nil {
		t.Error("no error of a folder that is not there")
	}
}

// date sets a file's time to so long ago.
func (d *daemon) date(name string, ago time.Duration) {
	d.t.Helper()
	at := time.Now().Add(-ago)
	d.must(os.Chtimes(d.path(name), at, at))
}

const testDay = 24 * time.Hour

func TestOldFileDoesNotReplaceANewerOne(t *testing.T) {
	tests := []struct {
		rule    string
		setup   func(*daemon) // before Open; nil: nothing
		do      func(*daemon)
		refused bool
	}{
		{"an old backup", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, true},
		{"a file that is young enough", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 29*testDay) }, false},
		{"a file of the future", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", -31*testDay) }, false},
		{"an old file as it was, beside a changed one", func(d *daemon) { d.date("a.txt", 99*testDay) },
			func(d *daemon) { d.write("b.txt", "new.example\n") }, false},
		{"a list without a bound", func(d *daemon) { d.settings.Lists[0].MaxAge = 0 },
			func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 9999*testDay) }, false},
		{"one of a glob", func(d *daemon) {
			d.write("lists/1.txt", "old.example\n")
			d.settings.Lists[0].Path = d.path("lists/*.txt")
		}, func(d *daemon) { d.write("lists/2.txt", "new.example\n"); d.date("lists/2.txt", 31*testDay) }, true},
		{"a server has confirmed it", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Now().Add(-time.Hour) }
		}, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, false},
		{"a server has confirmed it long ago", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Now().Add(-31 * testDay) }
		}, func(d *daemon) { d.write("a.txt", "new.example\n") }, true},
		{"a server has never confirmed it", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Time{} }
		}, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
			d.settings.Lists[0].MaxAge = 30 * testDay
			if tt.setup != nil {
				tt.setup(d)
			}
			d.open()
			tt.do(d)
			d.look(t.Context(), true)
			problems := strings.Join(d.Status().Problems, "\n")
			if d.listed("x@new.example") == tt.refused || tt.refused != strings.Contains(problems, ": stale: is of ") {
				t.Errorf("problems %q, want refused %v", problems, tt.refused)
			}
			if tt.refused && !strings.HasSuffix(problems, "Z, older than max_age = 30d, and not what serves") {
				t.Errorf("problem %q", problems)
			}
		})
	}
}

// TestOldFileAtTheFirstStart: there is nothing newer that it would replace.
func TestOldFileAtTheFirstStart(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.date("a.txt", 31*testDay)
	d.open()
	if s := d.Status(); !d.listed("x@old.example") || !s.Ready || len(s.Problems) > 0 || len(s.Stale) != 1 || s.Stale[0] != "a" {
		t.Errorf("status %+v", s)
	}
}

// TestListThatGetsOldServesOn goes through a list's life: it is told of once when
// it is old, and once when it is not any more, however often it is looked at.
func TestListThatGetsOldServesOn(t *testing.T) {
	var confirmed atomic.Pointer[time.Time]
	confirm := func(ago time.Duration) {
		at := time.Now().Add(-ago)
		confirmed.Store(&at)
	}
	confirm(0)
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.settings.Lists[0].Confirmed = func() time.Time {
		if info, err := os.Stat(d.path("a.txt")); err == nil && info.Size() == 0 {
			return time.Now()
		}
		return *confirmed.Load()
	}
	d.settings.Lists[1].MaxAge = 30 * testDay
	d.open()
	d.start()
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")

	confirm(31 * testDay) // the server is silent for a month, and no file changes
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")
	d.wantMetric(`blockd_list_stale{list="b"}`, "0")
	d.Now()
	d.looks(2)
	if s := d.Status(); len(s.Problems) > 0 || !s.Ready || !d.listed("x@old.example") || len(s.Stale) != 1 || s.Stale[0] != "a" {
		t.Errorf("status %+v", s)
	}
	if n := d.count("list is old"); n != 1 {
		t.Errorf("told of %d times:\n%s", n, d.log)
	}

	// Another file that is refused does not make what serves younger.
	d.write("a.txt", "")
	d.waitProblem("empty")
	d.looks(2)
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")

	confirm(0)
	d.write("a.txt", "old.example\n")
	d.waitWell()
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")
	if d.count("list is fresh again") != 1 || len(d.Status().Stale) > 0 {
		t.Errorf("not over: %+v\n%s", d.Status(), d.log)
	}
}

// TestFileThatNobodyHasLookedAtMakesNothingYounger: what its server has confirmed
// is the new file, and what serves is the old one.
func TestFileThatNobodyHasLookedAtMakesNothingYounger(t *testing.T) {
	at := time.Now().Add(-31 * testDay)
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.settings.Lists[0].Confirmed = func() time.Time { return at }
	d.open()
	d.write("a.txt", "new.example\n")
	at = time.Now()
	if d.age(at); len(d.Status().Stale) != 1 {
		t.Error("fresh by a file that does not serve")
	}
	d.look(t.Context(), true)
	if !d.listed("x@new.example") || len(d.Status().Stale) > 0 {
		t.Errorf("status %+v", d.Status())
	}
}

// TestTouchedFileIsYoungAgain: writing the same again says that it still holds.
func TestTouchedFileIsYoungAgain(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.date("a.txt", 31*testDay)
	d.open()
	d.start()
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")
	generation := d.Status().Generation
	d.write("a.txt", "old.example\n")
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")
	testkit.Equal(t, "a new generation of the same list", d.Status().Generation, generation)
}

// TestAskingForTheSame says what came of a SIGHUP, which is never nothing.
func TestAskingForTheSame(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	if d.count("nothing changed") > 0 {
		t.Errorf("said unasked:\n%s", d.log)
	}
	d.Now()
	d.wait("an answer", func() bool { return d.count(`msg="nothing changed" generation=`+d.Status().Generation) == 1 })
	d.write("a.txt", "")
	d.waitProblem("empty")
	d.wantCount("lists refused", 1)
	d.Now()
	d.wantCount("lists refused", 2) // the same again
}

// TestListThatSaysWhenItExpires: a list that is older than its own header lets it get has a remark, and serves on.
func TestListThatSaysWhenItExpires(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "# Expires: 4 days (update frequency)\nold.example\n", "b.txt": "always.example\n"})
	d.date("a.txt", 5*testDay)
	d.date("b.txt", 500*testDay)
	d.open()
	for _, now := range []time.Time{time.Now(), time.Now().Add(time.Hour)} {
		d.age(now)
		s := d.Status()
		if len(s.Problems) > 0 || !s.Ready || len(s.Remarks) != 1 || !strings.HasPrefix(s.Remarks[0], "list a: "+d.path("a.txt")+" is of ") ||
			!strings.HasSuffix(s.Remarks[0], ", and says of itself that it is to be fetched anew after 4d") || !d.listed("x@old.example") {
			t.Errorf("%+v", s)
		}
	}
	d.date("a.txt", 3*testDay)
	d.look(t.Context(), true)
	d.age(time.Now())
	testkit.EqualSlices(t, "fetched anew", d.Status().Remarks, nil)
}
