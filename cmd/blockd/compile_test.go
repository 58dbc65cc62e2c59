package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestCompileListsOfTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	hosts := writeFile(t, dir, "ads.hosts", "0.0.0.0 ads.example track.example\n")
	out := dir + "/a.bdx"
	code, stdout, stderr := blockd(t, "", "compile", "-o", out, "--format", "hosts", "--subdomains", hosts)
	if code != 0 || stderr != "" {
		t.Fatalf("compile = %d, %s", code, stderr)
	}
	compareLines(t, strings.ReplaceAll(stdout, dir, "DIR"), `list  file…format  lines  entries  errors  skipped  read
ads   DIR/ads.hosts  hosts       1        2       0        0  34 B

index       DIR/a.bdx, … KiB
keys        2 of 2 entries
filter      … % false positives
generation  …
time        … s
`)
	if code, stdout, _ := blockd(t, "", "check", "-i", out, "x@mx.ads.example"); code != 0 {
		t.Errorf("check of what was compiled: %d, %s", code, stdout)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("index file: %v, %v, want mode 0600: it holds the hash key", info.Mode(), err)
	}
}

func TestCompileJSON(t *testing.T) {
	dir := t.TempDir()
	list := writeFile(t, dir, "bad.txt.gz", "bad.example\nno entry at all\n10.0.0.0/8\n")
	code, stdout, stderr := blockd(t, "", "compile", "-o", dir+"/a.bdx", "--format", "plain", "--json", list)
	if code != 0 || stderr != "" {
		t.Fatalf("compile = %d, %s", code, stderr)
	}
	var got struct {
		File, Generation string
		Keys, Entries    int
		Bytes            int64
		Rate             float64 `json:"false_positive_rate"`
		Lists            []struct {
			List, File, Format, Verdict string
			Lines, Entries, Errors      int
			Networks                    int `json:"networks_left_out"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir + "/a.bdx")
	if err != nil {
		t.Fatal(err)
	}
	if got.File != dir+"/a.bdx" || len(got.Generation) != 32 || got.Keys != 1 || got.Entries != 1 || got.Bytes != info.Size() || len(got.Lists) != 1 {
		t.Fatalf("report %s", stdout)
	}
	if l := got.Lists[0]; l.List != "bad" || l.File != list || l.Format != "plain" || l.Verdict != "loaded" || l.Lines != 3 || l.Errors != 1 || l.Networks != 1 {
		t.Errorf("row %+v", l)
	}
}

func TestCompileRefusesAndKeepsTheOldFile(t *testing.T) {
	config, dir := compiled(t)
	before, err := os.ReadFile(dir + "/a.bdx")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/good.txt"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "trial.txt", "<html>\n")
	code, _, stderr := blockd(t, "", "compile", "-c", config)
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, want := range []string{"/good.txt: missing: ", "/trial.txt: html: ", "2 files refused; " + dir + "/a.bdx stays as it is"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q lacks %q", stderr, want)
		}
	}
	if after, err := os.ReadFile(dir + "/a.bdx"); err != nil || string(after) != string(before) {
		t.Errorf("the old index is not as it was: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 5 { // config, lists, index and its lock
		t.Errorf("something was left behind: %v", left)
	}
}

// A download that failed often leaves an empty file. It takes a person's word to
// believe it, in the configuration for good or on the command line for once.
func TestCompileOfAnEmptiedList(t *testing.T) {
	config, dir := compiled(t)
	writeFile(t, dir, "bad.txt", "# nothing today\n")
	code, _, stderr := blockd(t, "", "compile", "-c", config)
	if code != 1 || !strings.Contains(stderr, "bad.txt: empty: list bad had 5 entries and has none") || !strings.Contains(stderr, "--accept takes it this once") {
		t.Errorf("emptied list: exit %d, %s", code, stderr)
	}
	if code, _, _ := blockd(t, "", "check", "-c", config, "x@bulk.example"); code != 0 {
		t.Error("the old generation is gone")
	}
	if code, _, stderr := blockd(t, "", "compile", "-c", config, "--accept"); code != 0 {
		t.Errorf("--accept: exit %d, %s", code, stderr)
	}
	if code, _, _ := blockd(t, "", "check", "-c", config, "x@bulk.example"); code != 1 {
		t.Error("--accept did not empty the list")
	}
}

func TestCompileOfAListThatMayBeEmptied(t *testing.T) {
	config, dir := compiled(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "config.toml", strings.Replace(string(text), `name = "bad"`, "name = \"bad\"\nallow_empty = true", 1))
	writeFile(t, dir, "bad.txt", "")
	if code, _, stderr := blockd(t, "", "compile", "-c", config); code != 0 {
		t.Errorf("allow_empty: exit %d, %s", code, stderr)
	}
}

// What compile made is what the daemon would have made: it takes it over, though
// they were started from different folders, and hidden files are no lists to both.
func TestServeTakesOverWhatCompileMade(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "lists/*.txt", "lists/*", 1))
	writeFile(t, dir, "lists/b.txt", "b.example\n")
	writeFile(t, dir, "lists/a.txt", "a.example\n")
	writeFile(t, dir, "lists/.a.txt.swp", "no list at all\n")
	t.Chdir(dir)
	if code, _, stderr := blockd(t, "", "compile"); code != 0 {
		t.Fatal(stderr)
	}
	t.Chdir("/")
	d := serveIn(t, dir, "smtp", "http")
	if record := d.log.find("lists swapped in"); record["how"] != "found on disk" {
		t.Errorf("the daemon did not take over the compiled index: %v", record)
	}
	if _, stdout, stderr := blockd(t, "", "check", "-c", dir+"/config.toml", "x@a.example"); !strings.Contains(stdout, "blocked") || stderr != "" {
		t.Errorf("check says %q, %q", stdout, stderr)
	}
}

func TestCompileUsage(t *testing.T) {
	config, dir := compiled(t)
	list := writeFile(t, dir, "l.txt", "a.example\n")
	tests := []struct {
		args []string
		want string
	}{
		{[]string{list}, "need -o FILE.bdx"},
		{[]string{"-o", dir + "/b.bdx"}, "want a LIST"},
		{[]string{"-c", config, "-o", dir + "/b.bdx", list}, "want -c or -o, not both"},
		{[]string{"-c", config, "--format", "plain"}, "--format goes with -o"},
		{[]string{"-o", dir + "/b.bdx", "--format", "plani", list}, "did you mean plain?"},
	}
	for _, tt := range tests {
		code, _, stderr := blockd(t, "", append([]string{"compile"}, tt.args...)...)
		if code != 2 || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("compile %q = %d, %q, want 2 and one line with %q", tt.args, code, stderr, tt.want)
		}
	}
}

func TestListNameOf(t *testing.T) {
	for file, want := range map[string]string{
		"lists/disposable.txt.gz": "disposable",
		"sender_access":           "sender_access",
		"two words.txt":           "two-words",
		".hidden.txt":             "hidden",
		"ümlaut.txt":              "mlaut",
		"...":                     "list",
		strings.Repeat("x", 99):   strings.Repeat("x", 64),
	} {
		got := listNameOf(file)
		if got != want || !listName.MatchString(got) {
			t.Errorf("listNameOf(%q) = %q, want %q", file, got, want)
		}
	}
}
