package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// exportLists are compiled into one index for the tests of export.
var exportLists = map[string]string{
	"first.txt":  "promo@bulk.test\noffers@\nbulk.test\n=alone.test\n.below.test\n!press@bulk.test\n!free.test\nunder.free.test\n198.51.100.7\n",
	"second.txt": "bulk.test\nother.test\n\"#odd\"@bulk.test\n",
}

func compileLists(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"compile", "-o", filepath.Join(dir, "x.bdx"), "--format", "plain", "--exceptions", "all"}
	var names []string
	for name, text := range files {
		names = append(names, writeFile(t, dir, name, text))
	}
	slices.Sort(names)
	runs(t, append(args, names...)...)
	return filepath.Join(dir, "x.bdx")
}

// linesOf drops comments and blank lines.
func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(l string) bool {
		return l == "" || l[0] == '#' || l[0] == ';'
	})
}

func TestExportWritesInTheOrderOfTheFiles(t *testing.T) {
	bdx := compileLists(t, exportLists)
	code, out, errs := blockd(t, "", "export", "-i", bdx, "--format", "plain")
	want := []string{"promo@bulk.test", "offers@", "bulk.test", "=alone.test", ".below.test", "!press@bulk.test", "!free.test", "under.free.test",
		"198.51.100.7", "other.test", `"#odd"@bulk.test`} // bulk.test is not said again
	if have := linesOf(out); !slices.Equal(have, want) || code != 0 {
		t.Errorf("code %d\nhave %q\nwant %q", code, have, want)
	}
	testkit.Got(out, strings.Count(errs, "\n"))(t, errs, "# written by blockd export: generation …", 1)
}

// TestExportRefusesNobodyMore: where a format has no exceptions, what stands under
// one is not written.
func TestExportRefusesNobodyMore(t *testing.T) {
	bdx := compileLists(t, exportLists)
	code, out, errs := blockd(t, "", "export", "-i", bdx, "--format", "hosts")
	if have := linesOf(out); code != exitFault || !slices.Equal(have, []string{"0.0.0.0 bulk.test", "0.0.0.0 alone.test", "0.0.0.0 other.test"}) {
		t.Errorf("code %d: %q", code, have)
	}
	testkit.Has(t, errs, "2 of them as the name alone", "1 under exceptions left out", "1× local-part", "1× names below", "1× address (allow)")
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	bdx := compileLists(t, exportLists)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"export"}, exitUsage, "want --format, one of plain"},
		{[]string{"export", "--format", "csv"}, exitUsage, "want --format"},
		{[]string{"export", "-i", bdx, "-c", "x", "--format", "plain"}, exitUsage, "not both"},
		{[]string{"export", "-i", bdx, "--format", "plain", "--list", "frist"}, exitUsage, `no list "frist" in the index, did you mean first?`},
		{[]string{"export", "-i", bdx + "x", "--format", "plain"}, exitUsage, "no index yet"},
		{[]string{"export", "-i", bdx, "--format", "plain", "-o", filepath.Join(t.TempDir(), "no", "file")}, exitUsage, "no such file"},
	} {
		says(t, tt.code, tt.says, tt.args...)
	}
}

// No other program can ask for the proof that an exception wants: written without it,
// whoever claims the address would pass there.
func TestExportLeavesOutExceptionsThatWantProof(t *testing.T) {
	const config = "[index]\npath = \"x.bdx\"\n%s[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\n" +
		"[[list]]\nname = \"friends\"\npath = \"friends.txt\"\naction = \"allow\"\n%s"
	for _, tt := range []struct{ name, auth, require, want, says string }{
		{"believed", "", "", "!boss@bulk.example\n!192.0.2.7\n!other.example\nbulk.example\nother.example\n", "plain: 5 entries written\n"},
		{"with require", "", "require = [\"dkim\"]\n", "!192.0.2.7\nbulk.example\nother.example\n", "left out, since the format cannot say them: 1× address (allow with proof), 1× name with names below (allow with proof)"},
		{"no exception is believed", "[auth]\nunverified_allow = \"ignore\"\n", "", "!192.0.2.7\nbulk.example\nother.example\n", "1× address (allow with proof), 1× name with names below (allow with proof)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "bulk.txt", "bulk.example\nother.example\n")
			writeFile(t, dir, "friends.txt", "boss@bulk.example\nother.example\n192.0.2.7\n")
			path := writeFile(t, dir, "config.toml", fmt.Sprintf(config, tt.auth, tt.require))
			runs(t, "compile", "-c", path)
			_, out, errs := blockd(t, "", "export", "-c", path, "--format", "plain")
			_, lines, _ := strings.Cut(out, "\n") // behind the title
			have := strings.SplitAfter(lines, "\n")
			slices.Sort(have)
			want := strings.SplitAfter(tt.want, "\n")
			slices.Sort(want)
			if !slices.Equal(have, want) || !strings.Contains(errs, tt.says) {
				t.Errorf("wrote %q, want %q\nsaid %q, want %q", have, want, errs, tt.says)
			}
		})
	}
}

// TestExportByTheConfiguration: a list that only tags does not refuse, and a list that
// defers does not refuse permanently.
func TestExportByTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	head, _, _ := strings.Cut(anyPorts, "[[list]]")
	config := head
	for _, l := range []struct{ name, more string }{{"refusing", ""}, {"tagging", `on_match = "tag"`}, {"deferring", `on_match = "tempfail"`}, {"shadow", `mode = "shadow"`}} {
		writeFile(t, dir, l.name+".txt", l.name+".test\n")
		config += "[[list]]\nname = \"" + l.name + "\"\npath = \"" + l.name + ".txt\"\nformat = \"plain\"\n" + l.more + "\n"
	}
	config = writeFile(t, dir, "config.toml", config)
	runs(t, "compile", "-c", config)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"refusing.test REJECT", "deferring.test DEFER"}},
		{[]string{"--list", "tagging", "--list", "shadow"}, []string{"tagging.test REJECT", "shadow.test REJECT"}},
	} {
		_, out, errs := blockd(t, "", append([]string{"export", "-c", config, "--format", "postfix"}, tt.args...)...)
		if have := linesOf(out); !slices.Equal(have, tt.want) {
			t.Errorf("%q: %q, want %q; %s", tt.args, have, tt.want, errs)
		}
	}
}
