package index

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
)

func plain(list, path string) Source {
	return Source{List: list, Path: path, Settings: lists.Settings{Format: "plain"}}
}

func TestBuildFromLists(t *testing.T) {
	yes, no := true, false
	block := plain("block", testkit.File(t, "block.txt", "# two\nbulk.test\npromo@shop.test\noffers@\n!news.bulk.test\n198.51.100.0/24\nno entry here\n"))
	block.Settings.Reason, block.Settings.Subdomains = "spam", &yes
	exact := plain("exact", testkit.File(t, "exact.txt", "bulk.test\nbulk.test\n"))
	exact.Settings.Subdomains, exact.Mode, exact.Settings.MaxBytes = &no, Shadow, 1<<20
	missing := plain("later", filepath.Join(t.TempDir(), "absent.txt"))
	missing.Optional = true
	sources := []Source{block, exact, missing}

	path := filepath.Join(t.TempDir(), "lists.bdx")
	var stages []string
	d, err := Build(t.Context(), path, sources, Options{Progress: func(p Progress) {
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		testkit.AtMost(t, "progress", p.Done, p.Total)
	}})
	testkit.Must(t, err)
	defer d.Discard()
	testkit.EqualDeep(t, "stages", stages, []string{"read", "write", "verify"})
	testkit.Fails(os.Stat(path))(t, "before Publish the target exists", fs.ErrNotExist)
	publish(t, d)
	ix := opened(t, path)
	testkit.Got(ix.Generation(), len(ix.Generation()))(t, "generation, and its length", d.Index().Generation(), 32)
	if age := time.Since(ix.Built()); age < 0 || age > time.Hour {
		t.Errorf("built %v ago", age)
	}

	table := ix.Lists()
	for i, row := range table {
		if !row.Source.Equal(sources[i]) || !reflect.DeepEqual(row, d.Report.Lists[i]) {
			t.Errorf("row %d is %+v, the report says %+v", i, row, d.Report.Lists[i])
		}
	}
	if r := table[0]; r.Summary.Errors != 1 || r.NetworkEntries != 1 || r.Summary.Lines != 7 || r.Summary.Hash == [16]byte{} {
		t.Errorf("row 0: %+v, %d networks", r.Summary, r.NetworkEntries)
	}
	r := table[2]
	testkit.Got(r.Summary.Verdict, r.Summary.Why)(t, "a missing file's row", lists.Refused, "missing…")
	testkit.Got(d.Report.Keys, d.Report.Entries, d.Report.Duplicates)(t, "keys, entries, duplicates", 5, 6, 1)

	for _, tt := range []struct{ sender, want string }{
		{"x@bulk.test", "1:1 exact block, 0:2 tree block spam"},
		{"x@mx.bulk.test", "0:2 tree block spam"},
		{"offers@news.bulk.test", "0:5 tree allow, 0:2 tree block spam, 0:4 local block spam"},
		{"PROMO@Shop.Test", "0:3 exact block spam"},
		{"x@shop.test", ""},
		{"x@notbulk.test", ""},
		{"<>", ""},
		{"root", ""},
	} {
		matches, err := ix.Lookup(nil, sender(t, tt.sender), time.Now())
		var got []string
		for _, m := range matches {
			text := fmt.Sprintf("%d:%d %s %s", m.Row, m.Line, scopeNames[m.Scope], actionNames[m.Action])
			if m.Action == lists.Block && m.Reason != "" {
				text += " " + m.Reason
			}
			got = append(got, text)
		}
		if err != nil || strings.Join(got, ", ") != tt.want {
			t.Errorf("Lookup(%s) = %s, %v, want %s", tt.sender, strings.Join(got, ", "), err, tt.want)
		}
	}
}

var (
	scopeNames  = [...]string{"exact", "sub", "tree", "local"}
	actionNames = [...]string{"block", "allow", "tempfail", "discard"}
)

func TestRefusedSources(t *testing.T) {
	good := plain("good", testkit.File(t, "good.txt", "bulk.test\n"))
	torn := plain("torn", testkit.File(t, "torn.gz", tornGzip(t)))
	torn.Settings.Reason = "of the torn list"
	absent := plain("absent", filepath.Join(t.TempDir(), "absent.txt"))
	sources := []Source{torn, good, absent}
	path := filepath.Join(t.TempDir(), "x.bdx")

	_, err := Build(t.Context(), path, sources, Options{})
	var refused *SourcesError
	if !errors.As(err, &refused) || len(refused.Errs) != 2 {
		t.Fatalf("Build = %v, want two refused sources", err)
	}
	for i, name := range []string{"torn", "absent"} {
		var file *lists.FileError
		var source *SourceError
		if !errors.As(refused.Errs[i], &source) || source.List != name || !errors.As(source, &file) || !strings.HasPrefix(refused.Errs[i].Error(), "list "+name+": ") {
			t.Errorf("error %d: %v", i, refused.Errs[i])
		}
	}
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "2 sources refused: list torn: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error text: %v", err)
	}

	d := built(t, path, sources, Options{KeepGoing: true})
	for i, want := range []lists.Verdict{lists.Refused, lists.Loaded, lists.Refused} {
		row := d.Index().Lists()[i]
		if row.Summary.Verdict != want || (row.Summary.Why != "") != (want == lists.Refused) {
			t.Errorf("row %d: %+v", i, row.Summary)
		}
		if (d.Report.Lists[i].Refused != nil) != (want == lists.Refused) {
			t.Errorf("report %d: %v", i, d.Report.Lists[i].Refused)
		}
	}
	if keys, _ := d.Index().Counts(); keys != 1 {
		t.Errorf("%d keys, want the good list's alone", keys)
	}
	testkit.Equal(t, "reasons of refused lists are in the file", d.Index().file.Sections[format.SecReasons].Items, 0)
	for text, want := range map[string]int{"x@bulk.test": 1, "x@d7.torn.test": 0} {
		got := testkit.Value(d.Index().Lookup(nil, sender(t, text), testTime))(t)
		testkit.Equal(t, fmt.Sprintf("Lookup(%s) = %v", text, got), len(got), want)
	}
}

// tornGzip is a packed list that lacks its last bytes: all of its lines come out
// before the damage shows.
func tornGzip(t testing.TB) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for i := range 50_000 {
		fmt.Fprintf(w, "d%d.torn.test\n!bulk.test # reason %d\n", i, i)
	}
	testkit.Must(t, w.Close())
	return packed.String()[:packed.Len()-4]
}

func TestBuildRefusesOptions(t *testing.T) {
	good := plain("good", testkit.File(t, "good.txt", "bulk.test\n"))
	long := good
	long.List = strings.Repeat("x", 65)
	users := good
	users.List, users.Settings.PerRecipient = "users", true
	for _, tt := range []struct {
		name    string
		sources []Source
		options Options
		want    string
	}{
		{"too few bits", []Source{good}, Options{BitsPerKey: 7.9}, "7.9 bits a key: want 8 to 20"},
		{"too many bits", []Source{good}, Options{BitsPerKey: 21}, "21 bits a key: want 8 to 20"},
		{"no name", []Source{{Path: good.Path}}, Options{}, `list name "": want 1 to 64 octets`},
		{"long name", []Source{long}, Options{}, `list name "` + long.List + `": want 1 to 64 octets`},
		{"long path", []Source{plain("good", strings.Repeat("x", 4097))}, Options{}, "list good: path of 4097 octets, want at most 4096"},
		{"too many", make([]Source, 65_536), Options{}, `65536 list files are more than an index holds: 65535; list "" has 65536 of them`},
		{"too many users", append(slices.Repeat([]Source{users}, 65_535), good), Options{},
			`65536 list files are more than an index holds: 65535; list "users" has 65535 of them: one CSV file or a database with a column owner has any number of users`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), tt.sources, tt.options)
			testkit.Equal(t, "Build", fmt.Sprint(err), tt.want)
		})
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	folder := t.TempDir()
	source := plain("good", testkit.File(t, "good.txt", strings.Repeat("bulk.test\n", 100_000)))
	for _, stage := range []string{"read", "write", "verify"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Build(ctx, filepath.Join(folder, "x.bdx"), []Source{source}, Options{Progress: func(p Progress) {
			if p.Stage == stage {
				cancel()
			}
		}})
		testkit.IsError(t, fmt.Sprintf("cancelled in stage %s: Build", stage), err, context.Canceled)
		nothingLeft(t, folder)
		cancel()
	}
}

// temporaryFiles are the files of a folder that are neither index nor lock.
func temporaryFiles(t testing.TB, folder string) (names []string) {
	t.Helper()
	files := testkit.Value(os.ReadDir(folder))(t)
	for _, f := range files {
		if n := f.Name(); !strings.HasSuffix(n, ".bdx") && !strings.HasSuffix(n, ".lock") {
			names = append(names, n)
		}
	}
	return names
}

// nothingLeft checks that a build has cleaned up behind itself.
func nothingLeft(t testing.TB, folder string) {
	t.Helper()
	testkit.EqualSlices(t, "is left", temporaryFiles(t, folder), nil)
}

func TestSourceEqual(t *testing.T) {
	yes, alsoYes, no := true, true, false
	base := Source{List: "a", Path: "b", Settings: lists.Settings{Subdomains: &yes}}
	same, other := base, base
	same.Settings.Subdomains = &alsoYes
	other.Settings.Subdomains = &no
	unset := base
	unset.Settings.Subdomains = nil
	reason := base
	reason.Settings.Reason = "r"
	if !base.Equal(same) || base.Equal(other) || base.Equal(unset) || unset.Equal(base) || base.Equal(reason) || !unset.Equal(unset) {
		t.Error("Equal does not compare what the settings mean")
	}
}

// A list counts as read once one of its files was, if only in part.
func TestAnyRead(t *testing.T) {
	missing := func(list string) Source { return plain(list, filepath.Join(t.TempDir(), "absent.txt")) }
	optional := missing("optional")
	optional.Optional = true
	path := filepath.Join(t.TempDir(), "read.bdx")
	d, err := Build(t.Context(), path, []Source{
		plain("good", testkit.File(t, "good.txt", "bulk.test\n")), missing("half"), plain("half", testkit.File(t, "half.txt", "bulk.test\nno entry here\n")),
		plain("empty", testkit.File(t, "empty.txt", "# nothing yet\n")), plain("binary", testkit.File(t, "binary.txt", "bulk.test\n\x00\x00\x00")),
		missing("gone"), optional,
	}, Options{KeepGoing: true})
	testkit.Must(t, err)
	defer d.Discard()
	for names, want := range map[string]bool{
		"": true, "good": true, "half": true, "empty": true, "binary": false, "gone": false, "no-row": false, "optional": false,
		"binary gone no-row": false, "gone good": true,
	} {
		testkit.Equal(t, names, d.Index().AnyRead(strings.Fields(names)), want)
	}
}

// tested builds one list and returns the error of its self-tests.
func tested(t *testing.T, s lists.Settings, text string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bdx")
	d, err := Build(t.Context(), path, []Source{{List: "l", Path: testkit.File(t, "l.txt", text), Settings: s}}, Options{})
	if err == nil {
		d.Discard()
	}
	nothingLeft(t, filepath.Dir(path))
	return err
}

func TestSelfTests(t *testing.T) {
	plainFormat, allow := lists.Settings{Format: "plain"}, lists.Settings{Format: "plain", Action: lists.Allow}
	postfix := lists.Settings{Format: "postfix"}
	for _, tt := range []struct {
		rule string
		s    lists.Settings
		text string
		want string // behind "self-test: "; "" = passes
	}{
		{"a listed name", plainFormat, "bulk.test\n#? block x@bulk.test x@mx.bulk.test\n", ""},
		{"before what it is about", plainFormat, "#? block x@bulk.test\nbulk.test\n", ""},
		{"an address and its spellings", plainFormat, "promo@shop.test\n#? block PROMO@Shop.test \"promo\"@shop.test\n#? pass promo+x@shop.test\n", ""},
		{"a name that is not listed", plainFormat, "bulk.test\n#? pass x@notbulk.test <>\n", ""},
		{"an exception", plainFormat, "bulk.test\n!press@bulk.test\n#? pass press@bulk.test\n#? block x@bulk.test\n", ""},
		{"a list of exceptions blocks nobody", allow, "bulk.test\n#? pass x@bulk.test\n", ""},
		{"a refusal for now blocks", postfix, "#? block x@bulk.test\nbulk.test 450 later\n", ""},
		{"so does DISCARD", postfix, "#? block x@bulk.test\nbulk.test DISCARD\n", ""},
		{"nothing to test by", plainFormat, "#? pass x@bulk.test\n", ""},

		{"not listed", plainFormat, "bulk.test\n#? block x@shop.test\n", "<x@shop.test> shall be blocked, and no line does"},
		{"the null sender is never blocked", plainFormat, "bulk.test\n#? block <>\n", "<> shall be blocked, and no line does"},
		{"listed after all", plainFormat, "bulk.test\n#? pass x@mx.bulk.test\n", "<x@mx.bulk.test> shall pass, and line 1 blocks it: bulk.test"},
		{"an exception in the way", plainFormat, "bulk.test\n!bulk.test\n#? block x@bulk.test\n", "<x@bulk.test> shall be blocked, and line 2 is an exception: bulk.test"},
		{"a list of exceptions", allow, "bulk.test\n#? block x@bulk.test\n", "<x@bulk.test> shall be blocked, and line 1 is an exception: bulk.test"},
		{"several", plainFormat, "bulk.test\n#? block a@x.test b@x.test\n#? pass c@bulk.test\n", "<a@x.test> shall be blocked, and no line does; 2 more of its tests fail"},
		{"the refused line was the one that mattered", plainFormat, "a.test\nbulk..test\n#? block x@bulk.test\n", "<x@bulk.test> shall be blocked, and no line does"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			err := tested(t, tt.s, tt.text)
			if tt.want == "" {
				testkit.Should(t, err)
				return
			}
			var refused *SourcesError
			var file *lists.FileError
			if !errors.As(err, &refused) || !errors.As(err, &file) {
				t.Fatalf("error %v", err)
			}
			line := 1 + strings.Count(tt.text[:strings.Index(tt.text, "#?")], "\n")
			if file.Class != lists.SelfTest || file.Line != line || file.Err.Error() != tt.want {
				t.Errorf("%v, want line %d: %s", err, line, tt.want)
			}
			if want := fmt.Sprintf("l.txt:%d: self-test: %s", line, tt.want); !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%q does not end with %q", err, want)
			}
		})
	}
}

// TestSelfTestsAskTheirSourceAlone builds lists that say different things of one
// sender: each is right by itself, also one that only watches.
func TestSelfTestsAskTheirSourceAlone(t *testing.T) {
	sources := []Source{
		plain("a", testkit.File(t, "a.txt", "bulk.test\n#? block x@bulk.test\n")),
		plain("b", testkit.File(t, "b.txt", "!bulk.test\n#? pass x@bulk.test\n")),
		plain("c", testkit.File(t, "c.txt", "shop.test\n#? pass x@bulk.test\n#? block x@shop.test\n")),
		plain("c", testkit.File(t, "c2.txt", "bulk.test\n#? block x@bulk.test\n#? pass x@shop.test\n")), // a glob's second file
	}
	sources[0].Mode = Shadow
	d := testkit.Value(Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), sources, Options{}))(t)
	d.Discard()
}

// TestAllFailedSelfTestsAreTold, and with KeepGoing the rest is built.
func TestAllFailedSelfTestsAreTold(t *testing.T) {
	bad := "bad.test\nshared.test\n#? pass x@bad.test\n"
	sources := []Source{
		plain("a", testkit.File(t, "a.txt", bad)),
		plain("b", testkit.File(t, "b.txt", "good.test\nshared.test\n#? block x@good.test\n")),
		plain("c", filepath.Join(t.TempDir(), "missing.txt")),
		plain("d", testkit.File(t, "d.txt", bad)),
	}
	path := filepath.Join(t.TempDir(), "x.bdx")
	_, err := Build(t.Context(), path, []Source{sources[0], sources[1], sources[3]}, Options{})
	var refused *SourcesError
	if !errors.As(err, &refused) || len(refused.Errs) != 2 || !strings.Contains(refused.Errs[0].Error(), "list a: ") || !strings.Contains(refused.Errs[1].Error(), "list d: ") {
		t.Errorf("error %v, want one of a and one of d", err)
	}
	d := built(t, path, sources, Options{KeepGoing: true})
	publish(t, d)
	ix := opened(t, path)
	nothingLeft(t, filepath.Dir(path))
	keys, entries := ix.Counts()
	testkit.Equal(t, "keys and entries: good.test and shared.test of b", [...]uint64{keys, entries}, [...]uint64{2, 2})
	for i, want := range []string{"self-test: line 3: <x@bad.test> shall pass, and line 1 blocks it: bad.test", "", "missing: ", "self-test: "} {
		row, told := ix.Lists()[i], d.Report.Lists[i]
		if want == "" && (row.Summary.Verdict != lists.Loaded || told.Refused != nil) ||
			want != "" && (row.Summary.Verdict != lists.Refused || !strings.HasPrefix(row.Summary.Why, want) || told.Refused == nil) {
			t.Errorf("row %d: %+v, %v, want %q", i, row, told.Refused, want)
		}
	}
}

// A key that more sources hold than a record has room for: what the last of them
// say of it is not in the index, and no reason to refuse them.
func TestSelfTestsOfACrowdedKey(t *testing.T) {
	path := testkit.File(t, "l.txt", "bulk.test\n#? block x@bulk.test\n")
	var sources []Source
	for i := range format.MaxSources + 2 {
		sources = append(sources, plain(fmt.Sprint("l", i), path))
	}
	d := built(t, filepath.Join(t.TempDir(), "x.bdx"), sources, Options{})
	testkit.Equal(t, "dropped: the test tests nothing", d.Report.Dropped, 2)
}

// A guard is named in the row, so that a reader sees that another one was asked.
func TestRowNamesItsGuard(t *testing.T) {
	guard := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
	path := testkit.File(t, "a.txt", "bulk.test\ngmail.com\n")
	a, b := plain("a", path), plain("b", path)
	a.Settings.Guard = guard
	target := filepath.Join(t.TempDir(), "x.bdx")
	published(t, target, []Source{a, b})
	rows := opened(t, target).Lists()
	if rows[0].Guard != guard.ID() || rows[0].Guard == 0 || rows[1].Guard != 0 {
		t.Errorf("guards %x and %x, want %x and 0", rows[0].Guard, rows[1].Guard, guard.ID())
	}
	if !rows[0].Source.Equal(a) || !a.Equal(rows[0].Source) {
		t.Error("a source is not equal to its row")
	}
	testkit.MustEqual(t, "errors under the guard, which refuses gmail.com", rows[0].Summary.Errors, 1)
	testkit.Equal(t, "errors without the guard", rows[1].Summary.Errors, 0)
}
