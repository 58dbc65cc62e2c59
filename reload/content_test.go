package reload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/stamp"
	"blockd/internal/testkit"
	"blockd/lists"
)

// old makes the file's time one that can be trusted, and the same each time.
func (d *daemon) old(name string) {
	d.t.Helper()
	long := time.Now().Add(-time.Hour).Truncate(time.Hour)
	d.must(os.Chtimes(d.path(name), long, long))
}

func TestMoved(t *testing.T) {
	tests := []struct {
		name  string
		do    func(*daemon)
		moved bool
	}{
		{"nothing", func(d *daemon) {}, false},
		{"another size", func(d *daemon) { d.write("a.txt", "longer.example\n"); d.old("a.txt") }, true},
		{"a younger time", func(d *daemon) { d.must(os.Chtimes(d.path("a.txt"), time.Now(), time.Now())) }, true},
		{"an older time", func(d *daemon) { d.must(os.Chtimes(d.path("a.txt"), time.Unix(1, 0), time.Unix(1, 0))) }, true},
		{"another mode", func(d *daemon) { d.must(os.Chmod(d.path("a.txt"), 0o600)) }, true},
		{"another file of equal size and time", func(d *daemon) {
			d.write("new", "xxx.example\n")
			d.old("new")
			d.rename("new", "a.txt")
		}, true},
		{"gone", func(d *daemon) { d.remove("a.txt") }, true},
		{"another file beside it", func(d *daemon) { d.write("c.txt", "c.example\n") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "b.example\n"})
			d.old("a.txt")
			var c fileCache
			c.read(t.Context(), time.Now(), d.sources())
			tt.do(d)
			testkit.Equal(t, "moved", c.moved(d.sources()), tt.moved)
			if c.moved(d.sources()) {
				t.Error("moved twice")
			}
		})
	}
}

func TestMovedKnowsFilesThatComeAndGo(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "a.example\n", "b.txt": "b.example\n"})
	both := d.sources()
	twice := append([]index.Source{both[0]}, both...) // two lists may read one file
	var c fileCache
	c.read(t.Context(), time.Now(), twice)
	for _, tt := range []struct {
		name    string
		sources []index.Source
		moved   bool
	}{{"the same", twice, false}, {"one less", both[:1], true}, {"one more", both, true}, {"as before", both, false}} {
		testkit.Equal(t, fmt.Sprintf("%s: moved", tt.name), c.moved(tt.sources), tt.moved)
	}
}

// TestHashIsKeptForAnOldStamp: what is old is not read again until forget, and what is young is read until it is old.
// A file that cp -p has rewritten in place, with its old size and time, is young.
func TestHashIsKeptForAnOldStamp(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "one.example\n"})
	var c fileCache
	hash := func(later time.Duration) [16]byte {
		t.Helper()
		now, faults := c.read(t.Context(), time.Now().Add(later), d.sources())
		if len(now) != 1 || len(faults) > 0 {
			t.Fatalf("read = %v, %v", now, faults)
		}
		return now[0].hash
	}
	d.old("a.txt")
	first := hash(0)
	if !c.unsure {
		t.Error("sure of a file that has just been changed")
	}
	d.write("a.txt", "two.example\n")
	d.old("a.txt")
	second := hash(time.Hour)
	if c.unsure || second == first {
		t.Error("a file with its old size and time was not read again, or is young for ever")
	}
	info := c.seen[d.path("a.txt")]
	c.hashes[d.path("a.txt")] = first
	testkit.Equal(t, "a file whose stamp is as before was read again", hash(time.Hour), first)
	c.forget()
	if hash(time.Hour) != second || !stamp.Same(info, c.seen[d.path("a.txt")]) {
		t.Error("forget has not forgotten")
	}
}

func TestFollowTellsOfNewFoldersOnly(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "a.example\n"}).open()
	w := newWatch(d.Reloader.log)
	defer w.close()
	told := func() bool {
		select {
		case <-w.changed:
			return true
		default:
			return false
		}
	}
	w.follow(d.settings.Lists)
	if !told() {
		t.Error("what happened before the folder was watched would be lost")
	}
	w.follow(d.settings.Lists)
	if told() {
		t.Error("told of a folder that is watched already")
	}
	w.follow(nil)
	testkit.Equal(t, "folders are watched for no list", len(w.events.WatchList()), 0)
}

// TestFollow has two Reloaders at one index file, as two processes at an upgrade. The one that follows must come to serve
// what the other one builds, also a change that its own gate would refuse, and must not build.
func TestFollow(t *testing.T) {
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "s%d@many.example\n", i)
	}
	old := newDaemon(t, map[string]string{"a.txt": "one@a.example\n", "b.txt": many.String()})
	next := newDaemon(t, nil)
	next.dir, next.settings = old.dir, old.settings
	next.settings.Lists = append([]List(nil), old.settings.Lists...)
	next.settings.Lists[1].MaxShrink, old.settings.Lists[1].MaxShrink = 0, 0.9
	old.open()
	builds := 0
	old.Reloader.settings.Build = func(context.Context, string, []index.Source, index.Options, bool) (*index.Draft, error) {
		builds++
		return nil, errors.New("it builds")
	}
	old.start()
	old.Follow(true)
	next.open().start()
	for n := range 3 {
		entry := fmt.Sprintf("new%d@a.example", n)
		old.write("a.txt", "one@a.example\n"+entry+"\n")
		next.waitListed(entry)
		next.wait("built", func() bool { return next.Live().Generation() == generationOf(t, next) })
		old.wait("the same generation", func() bool {
			old.Replaced()
			return old.Live().Generation() == next.Live().Generation()
		})
		old.waitListed(entry)
	}
	old.write("b.txt", "s1@many.example\n") // the old one's gate refuses it
	next.waitUnlisted("s2@many.example")
	old.wait("the same generation", func() bool {
		old.Replaced()
		return old.Live().Generation() == next.Live().Generation()
	})
	old.waitUnlisted("s2@many.example")
	if builds > 0 || old.count("it builds") > 0 {
		t.Errorf("the one that follows has built %d times:\n%s", builds, old.log)
	}
	old.Follow(false)
	old.write("a.txt", "last@a.example\n")
	old.wait("a build of its own", func() bool { return old.count("it builds") > 0 })
}

// generationOf is the generation of the index file.
func generationOf(t *testing.T, d *daemon) string {
	t.Helper()
	ix := testkit.Value(index.Open(d.settings.Path))(t)
	return ix.Generation()
}

func TestGlob(t *testing.T) {
	d := newDaemon(t, nil)
	for _, folder := range []string{"one", "two", "two/deep.txt", ".hidden"} {
		d.mkdir(folder)
	}
	for _, file := range []string{"one/b.txt", "one/a.txt", "one/.c.txt", "one/d.txt~", "one/e.csv", "two/a.txt", ".hidden/a.txt", "plain", "[x].txt"} {
		d.write(file, "x")
	}
	tests := []struct{ name, pattern, want string }{
		{"in the order of names", "one/*.txt", "one/a.txt one/b.txt"},
		{"hidden files when they are meant", "one/.*.txt", "one/.c.txt"},
		{"folders", "*/a.txt", "one/a.txt two/a.txt"},
		{"hidden folders when they are meant", ".*/a.txt", ".hidden/a.txt"},
		{"a folder is a match, and then refused", "two/*.txt", "two/a.txt two/deep.txt"},
		{"classes", "one/[a-b].txt", "one/a.txt one/b.txt"},
		{"one character", "one/?.csv", "one/e.csv"},
		{"no such folder", "three/*.txt", ""},
		{"no such file", "one/*.zip", ""},
		{"a file for a folder", "plai?/a.txt", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := glob(filepath.Join(d.dir, tt.pattern))
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], d.dir+"/")
			}
			if err != nil || strings.Join(got, " ") != tt.want {
				t.Errorf("glob(%q) = %q, %v, want %q", tt.pattern, got, err, tt.want)
			}
		})
	}
	t.Chdir(d.dir)
	testkit.EqualSlices(t, "relative glob", testkit.Value(glob("one/*.txt"))(t), []string{"one/a.txt", "one/b.txt"})
	testkit.EqualSlices(t, "glob without a folder", testkit.Value(glob("pl*"))(t), []string{"plain"})
	if _, err := glob("one/[a"); err == nil {
		t.Error("no error from a broken pattern")
	}
	if _, err := glob("plain/*.txt"); err == nil {
		t.Error("a file where a folder must be is no empty folder")
	}
	if (List{Path: "[x].txt"}).isGlob() {
		t.Error("a file that has the name of a pattern is that file")
	}
}

func TestExpand(t *testing.T) {
	d := newDaemon(t, nil)
	d.write("x/1.txt", "")
	d.write("x/2.txt", "")
	all := []List{
		{Name: "glob", Path: d.path("x/*.txt"), Settings: lists.Settings{Reason: "r"}},
		{Name: "file", Path: d.path("missing.txt")}, // Build finds that out
		{Name: "none", Path: d.path("x/*.csv")},
		{Name: "may be none", Path: d.path("x/*.zip"), Optional: true},
		{Name: "broken", Path: d.path("x/[")},
	}
	sources, faults := expand(all)
	var got []string
	for _, s := range sources {
		got = append(got, s.List+":"+filepath.Base(s.Path)+s.Settings.Reason)
	}
	if want := []string{"glob:1.txtr", "glob:2.txtr", "file:missing.txt"}; !slices.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
	if len(faults) != 2 || faults[0].list != "none" || faults[0].class != lists.Missing || faults[1].list != "broken" {
		t.Errorf("faults %+v", faults)
	}
}

func TestFoldersThatAreWatched(t *testing.T) {
	d := newDaemon(t, nil)
	for _, folder := range []string{"lists", "..1", "far/away", "far/x"} {
		d.mkdir(folder)
	}
	d.write("far/away/file", "")
	d.write("..1/config.txt", "")
	d.symlink("..1", "..data")
	d.symlink("..data/config.txt", "config.txt")
	d.symlink("../far/away/file", "lists/linked.txt")
	d.symlink("loop", "loop")
	d.symlink("far", "near")
	tests := []struct{ name, path, want string }{
		{"a file", "lists/file.txt", "lists"},
		{"a file that is not there", "lists/none", "lists"},
		{"a folder that is not there", "none/file", "."},
		{"nor the one above it", "none/deeper/file", "."},
		{"a symlink to a file", "lists/linked.txt", "far/away lists"},
		{"a mounted ConfigMap", "config.txt", ". ..1"},
		{"a folder that is a symlink", "near/away/file", ". far/away"},
		{"a loop", "loop", "."},
		{"a glob", "far/*/file", "far far/away"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, folder := range folders(List{Path: filepath.Join(d.dir, tt.path)}) {
				rel := testkit.Value(filepath.Rel(d.dir, folder))(t)
				got = append(got, rel)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tt.want {
				t.Errorf("folders(%q) = %q, want %q", tt.path, got, tt.want)
			}
		})
	}
}

// TestManySymlinksEnd holds that a tree of symlinks which doubles at each step
// is not walked to its end.
func TestManySymlinksEnd(t *testing.T) {
	d := newDaemon(t, nil)
	d.symlink("./b/b", "a")
	d.symlink("./a/a", "b")
	folders(List{Path: d.path("a/b/a/b")})
}

func TestHintsAreForTheProblem(t *testing.T) {
	for _, class := range []lists.Class{lists.Missing, lists.Directory, lists.NotAFile, lists.Symlink, lists.Permission, lists.Changed,
		lists.Gzip, lists.Truncated, lists.Encoding, lists.Binary, lists.HTML, lists.JSON, lists.NoColumn,
		lists.OnlyErrors, lists.Empty, lists.BadFormat, lists.Ambiguous} {
		if fileProblem("a", "f", &lists.FileError{Class: class, Err: errors.New("x")}).hint() == "" {
			t.Errorf("no hint for %s", class)
		}
	}
	testkit.Equal(t, "hint for a plain error", (problem{err: errors.New("no space left on device")}).hint(), "")
}
