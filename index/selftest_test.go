package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
)

// tested builds one list and returns the error of its self-tests.
func tested(t *testing.T, s lists.Settings, text string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bdx")
	d, err := Build(t.Context(), path, []Source{{List: "l", Path: testkit.File(t, "l.txt", text), Settings: s}}, Options{})
	if err == nil {
		d.Discard()
	}
	if left := temporaryFiles(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
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
	if left := temporaryFiles(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	keys, entries := ix.Counts()
	if keys != 2 || entries != 2 {
		t.Errorf("%d keys, %d entries, want good.test and shared.test of b", keys, entries)
	}
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
	if rows[0].Summary.Errors != 1 || rows[1].Summary.Errors != 0 {
		t.Errorf("errors %d and %d, want gmail.com refused under the guard", rows[0].Summary.Errors, rows[1].Summary.Errors)
	}
}
