package lists_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

var update = flag.Bool("update", false, "write testdata/bad/*.want and suffixes.bin anew")

// lintLine and lintSummary are the objects of docs/lists.md, section 9.
type lintLine struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column,omitempty"` // not of section 9: for the caret below the line
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Class   string `json:"class"`
	Message string `json:"message"`
}

type lintSummary struct {
	File    string `json:"file"`
	Summary struct {
		Format  string `json:"format"`
		Lines   int    `json:"lines"`
		Entries int    `json:"entries"`
		Keys    int    `json:"keys"`
		Errors  int    `json:"errors"`
		Skipped int    `json:"skipped"`
		Verdict string `json:"verdict"`
		Why     string `json:"why"`
	} `json:"summary"`
}

// TestBadLists lints each file of testdata/bad as the format that its name ends
// with, and compares everything that is said about it.
func TestBadLists(t *testing.T) {
	paths, err := filepath.Glob("testdata/bad/*")
	if err != nil || len(paths) < 19 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".want") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := lintOutput(t, path, lists.Settings{Format: strings.TrimPrefix(filepath.Ext(name), ".")})
			if *update {
				testkit.Write(t, path+".want", got)
			}
			want := testkit.Read(t, path+".want")
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func lintOutput(t *testing.T, path string, s lists.Settings) []byte {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	file := filepath.Base(path)
	sum, keys, err := lists.Lint(t.Context(), path, s, func(it *lists.Item) error {
		if it.Class == lists.Comment || it.Class == lists.Blank {
			return nil
		}
		l := lintLine{File: file, Line: it.Line, Column: it.Column, Kind: it.Kind.String(), Class: string(it.Class), Message: it.Message}
		if it.Kind != lists.Skip && it.Kind != lists.Err {
			l.Key, l.Scope, l.Action, l.Reason = it.Name(), it.Scope.String(), it.Action.String(), it.Reason
		}
		return enc.Encode(l)
	})
	if (err != nil) != (sum.Verdict == lists.Refused) {
		t.Errorf("verdict %s with %v", sum.Verdict, err)
	}
	end := lintSummary{File: file}
	end.Summary.Format, end.Summary.Lines, end.Summary.Entries, end.Summary.Keys = sum.Format, sum.Lines, sum.Entries, keys
	end.Summary.Errors, end.Summary.Skipped, end.Summary.Verdict, end.Summary.Why = sum.Errors, sum.Skipped, string(sum.Verdict), sum.Why
	testkit.Must(t, enc.Encode(end))
	return out.Bytes()
}

// TestEveryFaultHasAHint: whoever reads an error is told what to do.
func TestEveryFaultHasAHint(t *testing.T) {
	seen := map[lists.Class]bool{}
	paths, _ := filepath.Glob("testdata/bad/*")
	for _, path := range paths {
		lists.Lint(t.Context(), path, lists.Settings{Format: strings.TrimPrefix(filepath.Ext(path), ".")}, func(it *lists.Item) error {
			if it.Kind != lists.Skip && it.Class != "" {
				seen[it.Class] = true
			}
			return nil
		})
	}
	for class := range seen {
		if lists.Hint(class) == "" {
			t.Errorf("no hint for %s", class)
		}
	}
	if len(seen) < 18 {
		t.Errorf("testdata/bad shows %d classes only", len(seen))
	}
}
