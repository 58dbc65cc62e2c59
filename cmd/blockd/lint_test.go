package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/term"
	"blockd/internal/testkit"
)

const dirty = `# my list
bulk.test
!press@bulk.test
BULK.test  # again
!bulk.test
a@b.example, c@d.example

198.18.0.1/15
`

func TestLintText(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "l.txt", dirty)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"faults and warnings", nil, `DIR/l.txt:4: warning: dup: same as line 2
  | BULK.test  # again
  = …
DIR/l.txt:5: warning: conflict: an exception from line 2, and wins
  | !bulk.test
  = …
DIR/l.txt:6:1: syntax: …
  | a@b.example, c@d.example
  | ^ …
DIR/l.txt:8: warning: host-bits: …
  | 198.18.0.1/15
  = …

file…format  lines  entries  keys  errors  skipped  verdict
DIR/l.txt  plain       8        5     3       1        0  loaded
`},
		{"every line", []string{"--all"}, `DIR/l.txt:1: skip: comment
DIR/l.txt:2: domain bulk.test tree block
DIR/l.txt:3: addr press@bulk.test exact allow
DIR/l.txt:4: warning: dup: same as line 2
  | BULK.test  # again
  = …
DIR/l.txt:5: warning: conflict: an exception from line 2, and wins
  | !bulk.test
  = …
DIR/l.txt:6:1: syntax: …
  | a@b.example, c@d.example
  | ^ …
DIR/l.txt:7: skip: blank
DIR/l.txt:8: warning: host-bits: …
  | 198.18.0.1/15
  = …

…
DIR/l.txt  plain       8        5     3       1        0  loaded
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"lint", "--format", "plain"}, tt.args...)
			code, stdout, stderr := blockd(t, "", append(args, file)...)
			testkit.Got(code, stderr)(t, "exit", 1, "")
			compareLines(t, strings.ReplaceAll(stdout, dir, "DIR"), tt.want)
		})
	}
}

// compareLines compares texts line by line; "…" in want is any text.
func compareLines(t *testing.T, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	testkit.MustEqual(t, "lines of\n"+got, len(gotLines), len(wantLines))
	for i, want := range wantLines {
		head, tail, any := strings.Cut(want, "…")
		if gotLines[i] != want && !(any && strings.HasPrefix(gotLines[i], head) && strings.HasSuffix(gotLines[i], tail)) {
			t.Errorf("line %d is %q, want %q", i+1, gotLines[i], want)
		}
	}
}

// The form of these objects is an interface: docs/lists.md, section 9.
func TestLintJSON(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "l.txt", dirty)
	_, stdout, _ := blockd(t, "", "lint", "--json", "--format", "plain", file)
	want := `{"file":"DIR/l.txt","line":2,"kind":"domain","key":"bulk.test","scope":"tree","action":"block","reason":"","class":"","message":""}
{"file":"DIR/l.txt","line":3,"kind":"addr","key":"press@bulk.test","scope":"exact","action":"allow","reason":"","class":"","message":""}
{"file":"DIR/l.txt","line":4,"kind":"domain","key":"bulk.test","scope":"tree","action":"block","reason":"","class":"dup","message":"same as line 2"}
{"file":"DIR/l.txt","line":5,"kind":"domain","key":"bulk.test","scope":"tree","action":"allow","reason":"","class":"conflict","message":"an exception from line 2, and wins"}
{"file":"DIR/l.txt","line":6,"kind":"err","key":"","scope":"","action":"","reason":"","class":"syntax","message":"…"}
{"file":"DIR/l.txt","line":8,"kind":"cidr","key":"198.18.0.0/15","scope":"tree","action":"block","reason":"","class":"host-bits","message":"…"}
{"file":"DIR/l.txt","summary":{"format":"plain","lines":8,"entries":5,"keys":3,"errors":1,"skipped":0,"verdict":"loaded","why":""}}
`
	compareLines(t, strings.ReplaceAll(stdout, dir, "DIR"), want)
	_, stdout, _ = blockd(t, "", "lint", "--json", "--all", "--format", "plain", file)
	if n := strings.Count(stdout, "\n"); n != 9 {
		t.Errorf("--all gives %d objects, want 8 lines and a summary:\n%s", n, stdout)
	}
}

func TestLintExitCodeAndSummary(t *testing.T) {
	dir := t.TempDir()
	good := writeFile(t, dir, "good.txt", "bulk.test\n")
	warned := writeFile(t, dir, "warned.txt", "bulk.test\nbulk.test\n")
	faulty := writeFile(t, dir, "faulty.txt", "bulk.test\n*.co*\n")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string // in stdout or stderr
	}{
		{"good", []string{"--format=plain", good}, 0, "loaded"},
		{"a warning is allowed", []string{"--format=plain", warned}, 0, "warning: dup"},
		{"a refused line", []string{"--format=plain", good, faulty}, 1, "unsupported"},
		{"a missing file among good ones", []string{"--format=plain", dir + "/none.txt", good}, 1, "none.txt: refused: missing: "},
		{"a folder", []string{dir}, 1, "refused: directory"},
		{"an allow list", []string{"--json", "--format=plain", "--action=allow", good}, 0, `"action":"allow"`},
		{"bare domains exact", []string{"--json", "--format=plain", "--subdomains=false", good}, 0, `"scope":"exact"`},
		{"bare domains with all below", []string{"--json", "--format=hosts", "--subdomains", good}, 0, `"scope":"tree"`},
		{"no list", nil, 2, "want a LIST"},
		{"unknown format", []string{"--format=host", good}, 2, "did you mean hosts?"},
		{"unknown action", []string{"--action=deny", good}, 2, `want "block" or "allow"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := blockd(t, "", append([]string{"lint"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("lint %q = %d, %s%s, want %d and %q", tt.args, code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
}

// An excerpt fits a terminal and shows no control, and its mark stands under the
// fault, whatever the line holds.
func TestLintExcerpt(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 100)
	file := writeFile(t, dir, "l.txt", "日本.example\x00\n"+long+"\x00"+long+"\n\x1b[31mred@bulk.test\n")
	_, stdout, _ := blockd(t, "", "lint", "--format=plain", file)
	lines := strings.Split(stdout, "\n")
	for _, tt := range []struct {
		excerpt int // index of its line
		under   string
	}{{1, `\x00`}, {4, `\x00`}, {7, `\x1b`}} {
		excerpt, mark := lines[tt.excerpt], lines[tt.excerpt+1]
		at := term.Columns(mark[:strings.IndexByte(mark, '^')])
		if where := strings.Index(excerpt, tt.under); where < 0 || term.Columns(excerpt[:where]) != at {
			t.Errorf("the mark is at column %d:\n%s\n%s", at, excerpt, mark)
		}
		if term.Columns(excerpt) > 80 {
			t.Errorf("excerpt of %d columns: %s", term.Columns(excerpt), excerpt)
		}
	}
}

// What lint says of a list by the gate's defaults is what a daemon will do with it.
func TestLintAndTheGate(t *testing.T) {
	dir := t.TempDir()
	suffix := writeFile(t, dir, "suffix.txt", "bulk.test\ncom.tr\ngithub.io\n")
	providers := writeFile(t, dir, "providers.txt", "bulk.test\ngmail.com\n=yahoo.com\naol.com\nqq.com\nweb.de\nmail.ru\n")
	passes := writeFile(t, dir, "passes.txt", "bulk.test\n!press@bulk.test\n#? block x@bulk.test\n#? pass press@bulk.test\n")
	fails := writeFile(t, dir, "fails.txt", "bulk.test\n#? pass x@bulk.test\n")
	frees := writeFile(t, dir, "frees.txt", "bulk.test\n!com\n!10.0.0.0/8\n!11.0.0.0/8\n")
	level1 := writeFile(t, dir, "level1.txt", "# the shape of firehol_level1\n127.0.0.0/8\n::1\n10.0.0.0/8\n198.51.100.0/24\n")
	malformed := writeFile(t, dir, "malformed.txt", "bulk.test\n#? why this\n")
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a public suffix", []string{suffix}, 1, []string{"suffix.txt:2:1: public-suffix: a public suffix", "suffix.txt:3: warning: public-suffix: ", "loaded"}},
		{"allowed", []string{"--allow-public-suffix", suffix}, 0, []string{"suffix.txt:2: warning: public-suffix: "}},
		{"exact", []string{"--subdomains=false", suffix}, 0, []string{"loaded"}},
		{"providers", []string{providers}, 1, []string{"providers.txt:2:1: protected: covers the protected domain gmail.com", "force",
			"providers.txt: refused: protected: entries that cover a protected domain: 6, more than max_protected = 5"}},
		{"an allow list of them: the other lines act", []string{"--action=allow", providers}, 1, []string{"providers.txt:2:1: protected: covers the protected domain gmail.com", "loaded"}},
		{"one's own clients", []string{level1}, 1, []string{"level1.txt:2:1: protected: covers 127.0.0.0/8, this machine itself", "level1.txt:3:1: protected: covers ::1/128, ",
			"level1.txt:4:1: protected: covers 10.0.0.0/8, a private network", "force", "level1.txt  plain       5        1     1       3        0  loaded"}},
		{"exceptions for everybody stay home", []string{frees}, 0, []string{"loaded"}},
		{"exceptions for everybody that reach all lists", []string{"--exceptions=all", frees}, 1, []string{"frees.txt:2:2: public-suffix: ", "frees.txt:3:2: wide: ", "loaded"}},
		{"self-tests that pass", []string{"--json", passes}, 0, []string{
			`"line":3,"kind":"skip","key":"","scope":"","action":"","reason":"","class":"self-test"`, `"skipped":2,"verdict":"loaded"`}},
		{"one that fails", []string{"--json", fails}, 1, []string{
			`"class":"self-test"`, `"verdict":"refused","why":"self-test: line 2: <x@bulk.test> shall pass, and line 1 blocks it: bulk.test"`}},
		{"as text", []string{fails}, 1, []string{"fails.txt: refused: self-test: line 2: <x@bulk.test> shall pass, and line 1 blocks it: bulk.test"}},
		{"as a list of exceptions it passes", []string{"--action=allow", fails}, 0, []string{"loaded"}},
		{"malformed", []string{malformed}, 1, []string{"malformed.txt:2: syntax: a self-test is"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := blockd(t, "", append([]string{"lint", "--format=plain"}, tt.args...)...)
			testkit.Got(code, stderr)(t, "exit", tt.code, "")
			testkit.Has(t, stdout, tt.want...)
		})
	}
}

// TestLintJudgesTheWholeList: lint of one file says that the list is refused for what its other files are now.
func TestLintJudgesTheWholeList(t *testing.T) {
	dir := t.TempDir()
	numbers := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "n%d.test\n", i)
		}
		return b.String()
	}
	config := writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[[list]]", "[[list]]\nname = \"parts\"\npath = \"parts/*.txt\"\nformat = \"plain\"\n[[list]]", 1))
	writeFile(t, dir, "lists/own.txt", "own.test\n")
	a := writeFile(t, dir, "parts/a.txt", numbers(0, 100))
	b := writeFile(t, dir, "parts/b.txt", numbers(100, 200))
	c := writeFile(t, dir, "parts/c.txt", numbers(200, 210))
	runs(t, "compile", "-c", config)
	const shrunk = "are left of 210, less than max_shrink = 0.5 of them"
	runs(t, "lint", "-c", config, a)
	writeFile(t, dir, "parts/a.txt", numbers(0, 40))
	runs(t, "lint", "-c", config, a) // 150 are left
	writeFile(t, dir, "parts/b.txt", numbers(100, 150))
	for _, file := range []string{a, b, c} { // c has not changed
		prints(t, 1, "100 entries "+shrunk, "lint", "-c", config, file)
	}
	more := writeFile(t, dir, "parts/d.txt", numbers(300, 310))
	for _, file := range []string{a, c, more} {
		runs(t, "lint", "-c", config, file) // 110
	}
	testkit.Must(t, os.Remove(b))
	prints(t, 1, "60 entries "+shrunk, "lint", "-c", config, a)
	writeFile(t, dir, "parts/b.txt", numbers(100, 3000))
	for _, file := range []string{a, b, c} {
		runs(t, "lint", "-c", config, file) // it may grow from fewer than 1000
	}
}

// TestLintReadsAsTheConfigurationSays: a list that the configuration beside it names is read as its
// [[list]] says, however its path is written; flags go first, and other files are guessed.
func TestLintReadsAsTheConfigurationSays(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Must(t, os.Mkdir("lists", 0o755))
	writeFile(t, dir, "lists/wild.txt", "bulk.test\n.wild.test\n")
	writeFile(t, dir, "lists/other.txt", "bulk.test\n.wild.test\n")
	writeFile(t, dir, "lists/glob-1", "bulk.test\n.wild.test\n")
	writeFile(t, dir, "lists/friends.txt", "com\n!x@friend.test\n")
	testkit.Must(t, os.Symlink("wild.txt", "lists/link.txt"))
	config := anyPorts[:strings.Index(anyPorts, "[[list]]")] + `
[[list]]
name = "wild"
path = "lists/wild.txt"
format = "plain"
[[list]]
name = "globs"
path = "lists/glob-*"
format = "postfix"
[[list]]
name = "friends"
path = "lists/friends.txt"
format = "plain"
action = "allow"
[[list]]
name = "missing"
path = "lists/missing.txt"
format = "plain"
`
	writeFile(t, dir, "config.toml", config)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"lists/wild.txt"}, 0, "plain"},
		{[]string{filepath.Join(dir, "lists/../lists/wild.txt")}, 0, "plain"},
		{[]string{"lists/link.txt"}, 0, "plain"},
		{[]string{"--format", "rbldnsd", "lists/wild.txt"}, 0, "rbldnsd"},
		{[]string{"lists/other.txt"}, 1, "ambiguous"},
		{[]string{"lists/glob-1"}, 1, "missing-value"},
		{[]string{"lists/friends.txt"}, 1, "unsupported-action"},
		{[]string{"--action", "block", "lists/friends.txt"}, 1, "public-suffix"},
		{[]string{"lists/missing.txt"}, 1, "missing"},
		{[]string{"-c", "absent.toml", "lists/wild.txt"}, exitFault, "absent.toml"},
	} {
		code, out, errs := blockd(t, "", append([]string{"lint"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+errs, tt.says) {
			t.Errorf("lint %q: %d, want %d with %q:\n%s%s", tt.args, code, tt.code, tt.says, out, errs)
		}
	}
	elsewhere := t.TempDir()
	t.Chdir(elsewhere)
	prints(t, 1, "ambiguous", "lint", filepath.Join(dir, "lists/wild.txt"))
	runs(t, "lint", "-c", filepath.Join(dir, "config.toml"), filepath.Join(dir, "lists/wild.txt"))
	writeFile(t, elsewhere, "config.toml", "[lists]\n")
	says(t, 0, "has faults", "lint", "--format", "plain", filepath.Join(dir, "lists/wild.txt"))
}

// TestShippedListsSayTheirFormat: one line with a leading dot does not make them ambiguous, and the
// example passes lint.
func TestShippedListsSayTheirFormat(t *testing.T) {
	for _, path := range []string{testkit.Root(t) + "/config.toml", testkit.Root(t) + "/packaging/config.toml"} {
		c := testkit.Value(config.Load(path))(t)
		for _, l := range c.Lists {
			if l.Format == "" || l.Format == "auto" {
				t.Errorf("%s: list %s does not say its format", path, l.Name)
			}
		}
	}
	runs(t, "lint", "-c", testkit.Root(t)+"/config.toml", testkit.Root(t)+"/testdata/lists/example.txt")
}
