package reload

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

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
	if got, err := glob("one/*.txt"); err != nil || !slices.Equal(got, []string{"one/a.txt", "one/b.txt"}) {
		t.Errorf("relative glob = %q, %v", got, err)
	}
	if got, err := glob("pl*"); err != nil || !slices.Equal(got, []string{"plain"}) {
		t.Errorf("glob without a folder = %q, %v", got, err)
	}
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
	d.mkdir("x")
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
