package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"blockd/bloom/filter"
	"blockd/internal/term"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// filterLists have every kind of key, and what no filter has.
var filterLists = map[string]string{
	"first.txt":  "promo@bulk.test\noffers@\nbulk.test\n=alone.test\n.below.test\n!press@bulk.test\n198.51.100.7\nmüller@bücher.test\n",
	"second.txt": "=bulk.test\nother.test\n\"#odd\"@bulk.test\n",
}

// exportedFilter is a filter of the lists, under the name that it is opened by.
func exportedFilter(t *testing.T, bdx, kind string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "bl")
	code, _, errs := blockd(t, "", append([]string{"filter", "export", "-i", bdx, "--as", kind, "-p", "0.001", "-o", out}, flags...)...)
	testkit.MustEqual(t, "export: "+errs, code, 0)
	if kind == "redisbloom" {
		return out + ".rbd"
	}
	return out
}

func TestFilterExportAndCompare(t *testing.T) {
	race.Skip(t)
	bdx := compileLists(t, filterLists)
	for _, kind := range []string{"guava", "redisbloom", "redisson", "bits"} {
		path := exportedFilter(t, bdx, kind)
		testkit.Got(blockd(t, "", "filter", "compare", path, "--against", bdx, "--json"))(t, kind, 0, `{"keys":8,"false_negatives":0,"asked":1000000,"rate":0.0…`, "…")
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(exportedFilter(t, bdx, "redisson")), "*"))
	testkit.Got(err, len(files), filepath.Base(testkit.At(files, 0)), filepath.Base(testkit.At(files, 1)))(t, "redisson", nil, 2, "bl.bitmap", "bl.json")
}

// bulk.test stands there with two scopes. It is one key.
func TestFilterHasTheSizeOfItsKeys(t *testing.T) {
	bdx := compileLists(t, filterLists)
	path := exportedFilter(t, bdx, "redisson")
	testkit.Has(t, string(testkit.Read(t, path+".json")), `"expectedInsertions":8,`)
	path = exportedFilter(t, bdx, "redisson", "--list", "second", "--keys", "domain")
	testkit.Has(t, string(testkit.Read(t, path+".json")), `"expectedInsertions":2,`)
}

func TestFilterCheck(t *testing.T) {
	bdx := compileLists(t, filterLists)
	path := exportedFilter(t, bdx, "guava")
	const asked = "Promo@Bulk.test\nx@clear.example\nofferS@any.test\nx@a.alone.test\n<>\n\nroot\nMÜLLER@bücher.test\r\n@other.test\nsub.other.test\nclear.example\nx@[192.0.2.1]\n192.0.2.9\n[192.0.2.9]\nx@@\n"
	want := strings.NewReplacer("+", "\tperhaps\n", "-", "\tabsent\n").Replace(
		"Promo@Bulk.test+x@clear.example-offerS@any.test+x@a.alone.test+<>--root-MÜLLER@bücher.test+@other.test+sub.other.test+clear.example-x@[192.0.2.1]-192.0.2.9+[192.0.2.9]+x@@+")
	testkit.Got(blockd(t, asked, "filter", "check", path, "-"))(t, "filter check", 0, want, "…")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{path, "x@clear.example"}, 1, "x@clear.example\tabsent\n"},
		{[]string{path, "x@clear.example", "x@bulk.test"}, 0, "x@clear.example\tabsent\nx@bulk.test\tperhaps\n"},
		{[]string{"--raw", path, "Promo@Bulk.test"}, 1, "Promo@Bulk.test\tabsent\n"},
		{[]string{"--raw", path, "promo@bulk.test"}, 0, "promo@bulk.test\tperhaps\n"},
		{[]string{"--funnel", "utf16", path, "promo@bulk.test"}, 1, "promo@bulk.test\tabsent\n"},
		{[]string{"--keys", "address", path, "x@bulk.test"}, 1, "x@bulk.test\tabsent\n"},
		{[]string{"--json", path, "x@bulk.test"}, 0, `{"input":"x@bulk.test","answer":"perhaps"}` + "\n"},
		{[]string{"--funnel", "int", path, "x@bulk.test"}, 2, ""},
		{[]string{"--funnel", "int", testkit.Root(t) + "/bloom/filter/testdata/guava-64-int.bf", "--", "-2147483648"}, 0, "-2147483648\tperhaps\n"},
		{[]string{"--funnel", "utf16", testkit.Root(t) + "/bloom/filter/testdata/guava-32-utf16.bf", "üser😀0@bulk0.example"}, 0, "üser😀0@bulk0.example\tperhaps\n"},
		{[]string{path}, 2, ""},
		{[]string{"redis://" + testkit.Refusing(t) + "#bl", "x@bulk.test"}, 2, ""},
		{[]string{"redis://localhost", "x@bulk.test"}, 2, ""},
		{[]string{"http://localhost#bl", "x@bulk.test"}, 2, ""},
		{[]string{path + ".gone", "x@bulk.test"}, 2, ""},
	} {
		if code, out, errs := blockd(t, "", append([]string{"filter", "check"}, tt.args...)...); code != tt.code || out != tt.want || code == 2 && errs == "" {
			t.Errorf("%q: %d, %q, %s", tt.args, code, out, errs)
		}
	}
}

// What check refuses is never "surely not", however it is written.
func TestFilterClearsNobodyWhoIsListed(t *testing.T) {
	bdx := compileLists(t, filterLists)
	path := exportedFilter(t, bdx, "bits")
	var asked strings.Builder
	for _, local := range []string{"promo", "PROMO", "offers", `"offers"`, "müller", `"#odd"`, "x"} {
		for _, domain := range []string{"bulk.test", "a.Bulk.test.", "alone.test", "below.test", "a.b.below.test", "bücher.test", "xn--bcher-kva.test", "other.test@", "clear.test", "[192.0.2.1]"} {
			fmt.Fprintf(&asked, "%s@%s\n", local, domain)
		}
	}
	_, answers, _ := blockd(t, asked.String(), "check", "-i", bdx, "-")
	_, perhaps, _ := blockd(t, asked.String(), "filter", "check", path, "-")
	lines, blocked := strings.Split(perhaps, "\n"), 0
	for i, line := range strings.Split(strings.TrimSpace(answers), "\n") {
		if strings.Split(line, "\t")[1] != "blocked" {
			continue
		}
		if blocked++; !strings.HasSuffix(lines[i], "\tperhaps") {
			t.Errorf("check: %q, filter: %q", line, lines[i])
		}
	}
	if blocked < 20 {
		t.Errorf("only %d are blocked:\n%s", blocked, answers)
	}
}

// A filter of fewer keys than the index has lacks the others, which are named.
func TestFilterCompareFindsWhatIsMissing(t *testing.T) {
	race.Skip(t)
	bdx := compileLists(t, filterLists)
	path := exportedFilter(t, bdx, "guava", "--keys", "address")
	code, out, errs := blockd(t, "", "filter", "compare", path, "--against", bdx)
	testkit.Got(code, out, errs, strings.Count(errs, "compare: bulk.test is absent\n"))(t, "blockd", 1, "8 keys, 5 false negatives\n1,000,000 absent keys asked, …", "…filter compare: other.test is absent\n…", 1)
	runs(t, "filter", "compare", path, "--against", bdx, "--keys", "address")
	path = exportedFilter(t, bdx, "guava", "--funnel", "utf16")
	says(t, 1, "", "filter", "compare", path, "--against", bdx)
	runs(t, "filter", "compare", path, "--against", bdx, "--funnel", "utf16")
}

// A signal ends the questions to a filter, however slow it is.
func TestFilterCompareEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f, err := filter.New("bits", 1, 0.01)
	funnel, err2 := filter.ParseFunnel("utf8")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	f.Add([]byte("bulk.test"))
	var c comparison
	has := c.asking(ctx, f, funnel)
	if !has("bulk.test") || c.err != nil {
		t.Errorf("before: %v", c.err)
	}
	if cancel(); has("bulk.test") || !errors.Is(c.err, context.Canceled) {
		t.Errorf("after: %v", c.err)
	}
}

// A pattern has no key; the filter is written without it, and that is told.
func TestFilterExportWithPatterns(t *testing.T) {
	dir := t.TempDir()
	bdx, out := filepath.Join(dir, "x.bdx"), filepath.Join(dir, "bl.bf")
	list := writeFile(t, dir, "x.txt", "bulk.test\npromo*@*\n")
	runs(t, "compile", "-o", bdx, "--format", "plain", "--patterns", list)
	testkit.Got(blockd(t, "", "filter", "export", "-i", bdx, "--as", "guava", "-o", out))(t, "filter export", 1, "…", "…1 pattern left out…")
	testkit.Value(os.Stat(out))(t)
}

// Nothing is written where it would destroy the index, a folder or a device.
func TestExportsSpareWhatIsThere(t *testing.T) {
	bdx := compileLists(t, filterLists)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "bl.json"), 0o700))
	link := filepath.Join(dir, "link.bdx")
	testkit.Must(t, os.Link(bdx, link))
	before := testkit.Read(t, bdx)
	guava, redisson, plain := []string{"filter", "export", "--as", "guava"}, []string{"filter", "export", "--as", "redisson"}, []string{"export", "--format", "plain"}
	for _, tt := range []struct {
		command   []string
		out, want string
	}{
		{guava, bdx, "is the index that is read"},
		{guava, link, "is the index that is read"},
		{guava, dir, "is a folder"},
		{guava, dir + "/", "want -o OUT, the file to write"},
		{redisson, dir + "/", "want -o OUT, the file to write"},
		{redisson, filepath.Join(dir, "bl"), "bl.json is a folder"},
		{guava, pipe, "is no regular file"},
		{plain, bdx, "is the index that is read"},
		{plain, pipe, "is no regular file"},
	} {
		testkit.Got(blockd(t, "", append(tt.command, "-i", bdx, "-o", tt.out)...))(t, fmt.Sprintf("%q -o %s", tt.command, tt.out), exitUsage, "…", "…"+tt.want+"…")
	}
	if !bytes.Equal(testkit.Read(t, bdx), before) {
		t.Error("the index is another")
	}
	testkit.Equal(t, "files", len(testkit.Value(filepath.Glob(filepath.Join(dir, "*")))(t)), 3)
}

// halfWritten is a filter whose last file cannot be written.
type halfWritten struct{ filter.Filter }

func (f halfWritten) Files(out string) []filter.File {
	files := f.Filter.Files(out)
	files[len(files)-1].Write = func(io.Writer) error { return syscall.ENOSPC }
	return files
}

// Both files of a Redisson filter are those of one filter, also when the disk is full.
func TestFilterFilesComeTogether(t *testing.T) {
	f := testkit.Value(filter.New("redisson", 1, 0.01))(t)
	dir := t.TempDir()
	writeFile(t, dir, "bl.bitmap", "old")
	writeFile(t, dir, "bl.json", "old")
	testkit.IsError(t, "a full disk", writeFilter(t.Context(), io.Discard, term.NewBar(io.Discard), halfWritten{f}, filepath.Join(dir, "bl"), "1 key"), syscall.ENOSPC)
	entries, err := os.ReadDir(dir)
	bitmap := string(testkit.Read(t, filepath.Join(dir, "bl.bitmap")))
	testkit.Got(bitmap, len(entries), err, entries)(t, "string", "old", 2, nil, "…")
}

func TestFilterSize(t *testing.T) {
	code, out, errs := blockd(t, "", "filter", "size", "-n", "10M", "-p", "0.001", "--json")
	if code != 0 || !strings.HasPrefix(out, `{"classic":{"bits":143775876,"k":10,"rate":0.001`) || !strings.Contains(out, `"split_block":{"bits":168898304,"k":8,`) ||
		!strings.Contains(out, `"fuse8":{"bits":90177536,"k":3,"rate":0.00390625}}`) {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	prints(t, 0, " 500,000  200 %           15.7 %\n", "filter", "size", "-n", "250k")
}

func TestFilterUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "want size, export, push, check, compare or seen",
		"size":                        "-n: want a number of keys",
		"sizes":                       `unknown command "sizes", did you mean size?`,
		"push redis://x bl":           "want --as, one of bitmap, redisbloom, redisson",
		"push --as bits redis://x bl": "want --as, one of bitmap, redisbloom, redisson",
		"push --as bitmap x bl":       "want a URL such as redis://localhost, and the NAME of a key",
		"push --as bitmap redis://x":  "want a URL such as redis://localhost, and the NAME of a key",
		"push --as bitmap --shards 3 redis://x bl": `--shards: want a power of two from 2 to 4096, or auto, have "3"`,
		"push --as bitmap --shards 1 redis://x bl": `--shards: want a power of two`,
		"push --as bitmap -p 2 redis://x bl":       "-p: want a rate",
		"poke":                                     `unknown command "poke"`,
		"size -n 5Mk":                              "-n: want a number of keys",
		"size -n 1T":                               "-n: want a number of keys",
		"size -n 5000G":                            "-n: want a number of keys",
		"size -n 1k -p 0":                          "-p: want a rate",
		"export --as cuckoo -o x":                  "want --as, one of bitmap, bits, guava, redisbloom, redisson",
		"export --as guava":                        "want -o OUT",
		"export --as guava -o x -p 0":              "-p: want a rate of false positives",
		"export --as guava -o x --keys ip":         "--keys: want some of address, local, domain",
		"export --as guava -o x --funnel int":      "--funnel int takes numbers",
		"export --as bits -o x --funnel utf16":     "--funnel utf16 goes with Guava",
		"compare x":                                "want --against",
		"compare --against x.bdx":                  "want one FILTER",
	} {
		testkit.Got(blockd(t, "", append([]string{"filter"}, strings.Fields(line)...)...))(t, fmt.Sprintf("%q", line), exitUsage, "…", "…"+want+"…")
	}
}

func TestFilterSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.bds")
	run := func(input, wantOut string, wantCode int, wantErr string, flags ...string) {
		t.Helper()
		code, out, errs := blockd(t, input, append(append([]string{"filter", "seen"}, flags...), path, "add-if-absent")...)
		if code != wantCode || out != wantOut || !strings.Contains(errs, wantErr) || wantErr == "" && errs != "" {
			t.Errorf("seen <%q: %d, %q, %q; want %d, %q, %q", input, code, out, errs, wantCode, wantOut, wantErr)
		}
	}
	run("a\nb\na\r\n\nc", "a\nb\nc\n", 0, "", "--size", "64 KiB", "--rotate-at", "0.4")
	run("a\nd\nc\n", "d\n", 0, "", "--max-age", "30d")
	run("", "", 0, "")
	run("e\n"+strings.Repeat("x", maxSender)+"\nf\n", "e\nf\n", 1, "1 lines of 16384 octets or more were left out")
	run("e\nf\n", "", 0, "")
	testkit.Write(t, path, "address,why\n")
	run("a\n", "a\n", 0, "no set of seen keys; it is "+path+".unreadable now, and an empty set begins")
	testkit.Equal(t, "put aside", string(testkit.Read(t, path+".unreadable")), "address,why\n")
}

func TestFilterSeenWrongWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.bds")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{path}, "want FILE.bds and add-if-absent"},
		{[]string{path, "add-if-abent"}, "did you mean add-if-absent?"},
		{[]string{"--rotate-at", "1", path, "add-if-absent"}, "--rotate-at: want a share from 0.01 to 0.9, have 1"},
		{[]string{"--rotate-at", "NaN", path, "add-if-absent"}, "--rotate-at: want a share"},
		{[]string{"--max-age", "30", path, "add-if-absent"}, "--max-age: want a time"},
		{[]string{"--size", "1 KiB", path, "add-if-absent"}, "--size: want 64 KiB to 1 GiB, have 1 KiB"},
		{[]string{"--size", "much", path, "add-if-absent"}, "--size: want octets"},
	} {
		testkit.Got(blockd(t, "", append([]string{"filter", "seen"}, c.args...)...))(t, fmt.Sprintf("%q", c.args), 2, "…", "…"+c.want+"…")
	}
}
