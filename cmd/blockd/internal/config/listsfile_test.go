package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

const addedList = "[[list]]\nname = \"far\"\nurl = \"https://lists.example/far.txt\"\nmode = \"shadow\"\n"

// listsFolder has a configuration with one list and http.lists_file, which holds text.
func listsFolder(t *testing.T, text string) (configuration, file string) {
	t.Helper()
	dir := t.TempDir()
	configuration, file = filepath.Join(dir, "config.toml"), filepath.Join(dir, "state", "lists.toml")
	testkit.Write(t, configuration, "[index]\npath = \"state/blockd.bdx\"\n[http]\nlists_file = \"state/lists.toml\"\n[[list]]\nname = \"near\"\npath = \"near.txt\"\n")
	testkit.Must(t, os.Mkdir(filepath.Dir(file), 0o700))
	if text != "" {
		testkit.Write(t, file, text)
		testkit.Must(t, os.Chmod(file, 0o640))
	}
	return configuration, file
}

// The lists of both files count, and those of http.lists_file come from the public internet.
func TestListsFile(t *testing.T) {
	configuration, file := listsFolder(t, "# mine\n"+addedList)
	c := testkit.Value(LoadToServe(configuration))(t)
	testkit.MustEqual(t, "lists", len(c.Lists), 2)
	near, far := c.Lists[0], c.Lists[1]
	if near.InListsFile() || !far.InListsFile() || far.Path != filepath.Join(filepath.Dir(file), "subscribed", "far") || c.HTTP.ListsFile != file || !c.Remote(far).Public {
		t.Errorf("%+v, %+v, %q", near, far, c.HTTP.ListsFile)
	}
	testkit.Must(t, os.Remove(file))
	without, changes, err := Reread(configuration, c)
	if err != nil || len(without.Lists) != 1 || !slices.Equal(changes.Removed, []string{"far"}) || len(changes.Beyond) != 1 {
		t.Errorf("without the file: %+v, %+v, %v", without.Lists, changes, err)
	}
	if c, err = LoadLists(configuration, []byte(addedList)); err != nil || len(c.Lists) != 2 || c.Digest() == without.Digest() {
		t.Errorf("by another text: %+v, %v", c.Lists, err)
	}
	if c, err = LoadLists(configuration, nil); err != nil || len(c.Lists) != 1 {
		t.Errorf("by none: %+v, %v", c.Lists, err)
	}
}

// A list that moves between the files is one that needs another process: it may be fetched from elsewhere.
func TestListThatMovesBetweenTheFiles(t *testing.T) {
	configuration, file := listsFolder(t, addedList)
	c := testkit.Value(LoadToServe(configuration))(t)
	text := string(testkit.Read(t, configuration)) + addedList + "path = \"state/subscribed/far\"\n"
	testkit.Write(t, configuration, text)
	testkit.Must(t, os.Remove(file))
	if _, changes, err := Reread(configuration, c); err != nil || !slices.Equal(changes.Changed, []string{"far"}) || len(changes.Beyond) != 1 {
		t.Errorf("%+v, %v", changes, err)
	}
}

// Every fault has its file and its line.
func TestFaultsOfListsFile(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"not TOML":        {"# one\n[[list]\n", "FILE:2: not TOML"},
		"another table":   {"[[list]]\nname = \"far\"\nurl = \"https://a.example/\"\n[smtp]\nlisten = \"\"\n", "FILE:4: smtp: this file may hold [[list]] alone"},
		"a key":           {"listen = 1\n", "FILE:1: listen: this file may hold [[list]] alone"},
		"one table":       {"[list]\nname = \"far\"\n", "FILE:1: list: want [[list]] in two pairs of brackets"},
		"a misspelt key":  {addedList + "reasn = \"x\"\n", "FILE:5: list.reasn: "},
		"a wrong type":    {addedList + "optional = 1\n", "FILE:5: list.optional: want true or false"},
		"out of bounds":   {addedList + "every = \"1s\"\n", "FILE:5: list.every: want 1m to 31d"},
		"the same name":   {strings.Replace(addedList, "far", "near", 1), `FILE:2: list.name: "near" is the name of another list`},
		"twice":           {addedList + "\n" + addedList, `FILE:7: list.name: "far" is the name of another list`},
		"no address":      {"[[list]]\nname = \"far\"\npath = \"/etc/shadow\"\n", "FILE:1: list.url: is missing: a list of http.lists_file is fetched"},
		"a path":          {addedList + "path = \"/etc/cron.d/far\"\n", "FILE:5: list.path: want \"DIR/subscribed/far\", or leave it out"},
		"a source":        {addedList + "[list.source]\nkind = \"sqlite\"\n", "FILE:5: list.source: is not for this file"},
		"plain HTTP":      {strings.Replace(addedList, "https", "http", 1) + "insecure_http = true\n", "FILE:3: list.url: want an https address"},
		"a private one":   {strings.Replace(addedList, "lists.example", "10.1.2.3", 1), "FILE:3: list.url: 10.1.2.3 is not of the public internet"},
		"this machine":    {strings.Replace(addedList, "lists.example", "localhost", 1), "FILE:3: list.url: localhost is not of the public internet"},
		"its checksum":    {addedList + "checksum = \"sha256:http://lists.example/x\"\n", "FILE:5: list.checksum: "},
		"big":             {"#" + strings.Repeat("x", maxListsFile), "FILE: over 1 MiB"},
		"not in the file": {addedList, ""},
	} {
		t.Run(name, func(t *testing.T) {
			configuration, file := listsFolder(t, tt.text)
			said := func(err error) string {
				if err == nil {
					return ""
				}
				return strings.NewReplacer(file, "FILE", filepath.Dir(file), "DIR").Replace(err.Error())
			}
			_, err := LoadToServe(configuration)
			if got := said(err); !strings.Contains("\n"+got, "\n"+tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("said\n%s\nwant\n%s", got, tt.want)
			}
			if name == "big" {
				return
			}
			testkit.Must(t, os.Remove(file))
			if _, by := LoadLists(configuration, []byte(tt.text)); said(by) != said(err) {
				t.Errorf("of the text alone: %v, want %v", by, err)
			}
		})
	}
}

// A file that is torn, or that others may write, is a fault of the whole.
func TestListsFileOfOthers(t *testing.T) {
	configuration, file := listsFolder(t, addedList)
	fault := func() string {
		_, err := Load(configuration)
		if err == nil {
			return ""
		}
		return strings.ReplaceAll(err.Error(), file, "FILE")
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o644: "", 0o660: "FILE: others than its owner may write this file", 0o602: "FILE: others than its owner may write"} {
		testkit.Must(t, os.Chmod(file, mode))
		if got := fault(); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%#o: %q", mode, got)
		}
	}
	testkit.Must(t, os.Chmod(file, 0o600))
	testkit.Write(t, file, "")
	testkit.Begins(t, "empty", fault(), "FILE: empty, as while it is written")
	testkit.Must(t, os.Remove(file))
	testkit.Must(t, os.Mkdir(file, 0o700))
	testkit.Equal(t, "a folder", fault(), "FILE: http.lists_file is no file")
	// A fault there does not hide those of the configuration, which come first.
	testkit.Write(t, configuration, "[http]\nlists_file = \"state/lists.toml\"\nmax_rate = -1\n")
	if got := strings.Split(fault(), "\n"); len(got) != 2 || !strings.Contains(got[0], "config.toml:3: http.max_rate") || got[1] != "FILE: http.lists_file is no file" {
		t.Errorf("%q", got)
	}
}

// The networks of the owner may be asked too.
func TestListsFrom(t *testing.T) {
	configuration, _ := listsFolder(t, strings.Replace(addedList, "lists.example", "10.1.2.3", 1))
	text := string(testkit.Read(t, configuration))
	testkit.Write(t, configuration, strings.Replace(text, "[http]\n", "[http]\nlists_from = [\"10.1.0.0/16\"]\n", 1))
	testkit.Value(Load(configuration))(t)
	testkit.Write(t, configuration, strings.Replace(text, "[http]\n", "[http]\nlists_from = [\"0.0.0.0/0\"]\n", 1))
	testkit.Got(Load(configuration))(t, "given", "…", "…http.lists_from: 0.0.0.0/0 is everybody…")
}
