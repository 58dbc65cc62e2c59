package subscription

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
	"blockd/sources/catalogue"
)

var now = time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)

const address = "https://lists.example/Some_List.v2.txt"

// folder has a configuration with http.lists_file, or without.
func folder(t *testing.T, listsFile bool) (path, lists string) {
	t.Helper()
	dir := t.TempDir()
	path, lists = filepath.Join(dir, "config.toml"), filepath.Join(dir, "lists.toml")
	text := "# mine\n[index]\npath = \"blockd.bdx\"\n[[list]]\nname = \"near\"\npath = \"near.txt\"\n"
	if listsFile {
		text += "[http]\nlists_file = \"lists.toml\"\n"
	}
	testkit.Write(t, path, text)
	return path, lists
}

func open(t *testing.T, path string) *Files {
	t.Helper()
	c := testkit.Value(config.Load(path))(t)
	f := testkit.Value(Open(path, c))(t)
	return f
}

func done(t *testing.T, c *Change, err error) {
	t.Helper()
	if err == nil {
		err = c.Make(nil)
	}
	testkit.Must(t, err)
}

// A list is added, counts, and goes, in the one file and in the other; what else stands there stays octet for octet.
func TestALife(t *testing.T) {
	for _, listsFile := range []bool{true, false} {
		path, lists := folder(t, listsFile)
		own := string(testkit.Read(t, path))
		for _, what := range []string{"ipsum-4", address} {
			c, err := open(t, path).Add(what, now)
			done(t, c, err)
			for _, l := range open(t, path).lists.Lists {
				if l.Name == c.List && (l.Mode != "shadow" || l.InListsFile() != listsFile || l.Path != filepath.Join(filepath.Dir(path), "subscribed", l.Name)) {
					t.Errorf("%s is %+v", what, l)
				}
			}
			if p, ok, err := open(t, path).Of(c.List); !ok || err != nil || p.Enforced || p.InListsFile != listsFile || !p.Since.Equal(now) {
				t.Errorf("%s: %+v, %v, %v", what, p, ok, err)
			}
			if _, err := open(t, path).Add(what, now); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has this list already") {
				t.Errorf("%s again: %v", what, err)
			}
			c, err = open(t, path).Enforce(c.List)
			done(t, c, err)
			if p, ok, err := open(t, path).Of(c.List); !ok || err != nil || !p.Enforced {
				t.Errorf("%s enforced: %+v, %v", what, p, err)
			}
		}
		for _, name := range []string{"some_list.v2", "ipsum-4"} {
			c, err := open(t, path).Remove(name)
			done(t, c, err)
			testkit.Fails(open(t, path).Remove(name))(t, fmt.Sprintf("%s again", name), catalogue.ErrNotSubscribed)
		}
		testkit.Equal(t, "the configuration is now", string(testkit.Read(t, path)), own)
		if listsFile {
			testkit.Equal(t, "the file is now", string(testkit.Read(t, lists)), heading)
			if info, err := os.Stat(lists); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		}
	}
}

// Texts that name no list, and lists that are there already, are refused.
func TestWhatCannotBeAdded(t *testing.T) {
	path, lists := folder(t, true)
	for _, what := range []string{"", "no-such-list", "near.txt", "/etc/passwd", "plain=/etc/passwd", "http://lists.example/a", "https://", "https:///a", "https://u:p@lists.example/a",
		"https://lists.example/#a", "https://lists.example/\n[smtp]", "https://lists.example/a b", "https://lists.example/\x00", "https://lists.example/\xff", "https://lists.example/\u202e",
		"https://lists.example/" + strings.Repeat("x", 2000), "file:///etc/passwd", "HTTPS://lists.example/"} {
		if c, err := open(t, path).Add(what, now); !errors.Is(err, ErrWhat) || len(err.Error()) > 500 {
			t.Errorf("%.60q: %+v, %v", what, c, err)
		}
	}
	for _, what := range []string{"https://127.0.0.1/list", "https://localhost/list", "https://[fd00::1]/list", "https://169.254.169.254/latest/meta-data"} {
		_, err := open(t, path).Add(what, now)
		if !errors.Is(err, ErrWhat) || !strings.Contains(err.Error(), "not of the public internet") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c, err := open(t, path).Add("https://lists.example/near.txt", now)
	done(t, c, err)
	testkit.Equal(t, "a taken name", c.List, "near-2")
	c, err = open(t, path).Add(`https://lists.example/"x\y".txt?key='"\`, now)
	done(t, c, err)
	if _, err := config.Load(path); err != nil {
		t.Errorf("quoted: %v\n%s", err, testkit.Read(t, lists))
	}
}

// No loop fills the file.
func TestMost(t *testing.T) {
	path, _ := folder(t, true)
	for n := range Most {
		c, err := open(t, path).Add(fmt.Sprintf("https://lists.example/%d", n), now)
		done(t, c, err)
	}
	if _, err := open(t, path).Add("https://lists.example/more", now); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "remove one first") {
		t.Error(err)
	}
}

// Nothing is written where the change is not wanted, or somebody was faster; and it can be taken back.
func TestAllOrNothing(t *testing.T) {
	path, lists := folder(t, true)
	no := errors.New("no")
	c := testkit.Value(open(t, path).Add("ipsum-4", now))(t)
	testkit.IsError(t, "a change that is not wanted", c.Make(func() error { return no }), no)
	testkit.Fails(os.Lstat(lists))(t, "the file", os.ErrNotExist)
	done(t, c, nil)
	testkit.Should(t, c.TakeBack())
	testkit.Fails(os.Lstat(lists))(t, "the file", os.ErrNotExist)
	done(t, c, nil)
	text := string(testkit.Read(t, lists))
	enforce, err := open(t, path).Enforce("ipsum-4")
	done(t, enforce, err)
	testkit.Must(t, enforce.TakeBack())
	testkit.Equal(t, "the file", string(testkit.Read(t, lists)), text)
	remove := testkit.Value(open(t, path).Remove("ipsum-4"))(t)
	testkit.Write(t, lists, text+"# by hand\n")
	if err := remove.Make(nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "somebody has just changed") {
		t.Error(err)
	}
	testkit.Write(t, lists, "# theirs\n")
	testkit.IsError(t, "taken back over the change of another", enforce.TakeBack(), ErrRefused)
	testkit.Must(t, os.Remove(lists))
	testkit.Must(t, os.Symlink("elsewhere", lists))
	if err := c.Make(nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is a link to elsewhere") {
		t.Error(err)
	}
	// A configuration that is not good by itself is not made worse.
	testkit.Must(t, os.Remove(lists))
	testkit.Write(t, path, string(testkit.Read(t, path))+"max_rate = -1\n")
	if err := c.Make(nil); !errors.Is(err, ErrUnwanted) || !strings.Contains(err.Error(), "http.max_rate") {
		t.Error(err)
	}
}
