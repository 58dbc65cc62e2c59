package durable

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
)

type row struct {
	Name string `json:"name"`
	N    int    `json:"n"`
	Pad  string `json:"pad,omitempty"`
}

var errBusy, errRow = errors.New("busy"), errors.New("no row")

func settings(path string) TableSettings[string, row] {
	return TableSettings[string, row]{Path: path, Mode: 0o600, Most: 50, MaxLine: 1 << 10, Wait: time.Minute, Busy: errBusy,
		Key: func(r row) string { return r.Name },
		Check: func(r row) error {
			if r.Name == "" {
				return errRow
			}
			return nil
		},
		Old: func(text []byte) (all []row, err error) { return all, json.Unmarshal(text, &all) }}
}

func put(t *Table[string, row], rows ...row) error {
	return t.Change(func(map[string]row) ([]row, []string, error) { return rows, nil, nil })
}

func drop(t *Table[string, row], keys ...string) error {
	return t.Change(func(map[string]row) ([]row, []string, error) { return nil, keys, nil })
}

// holding checks that a table has those rows and no others.
func holding(t *testing.T, what string, table *Table[string, row], want map[string]row) {
	t.Helper()
	var got map[string]row
	testkit.Must(t, table.View(func(rows map[string]row) { got = maps.Clone(rows) }))
	if !maps.Equal(got, want) {
		t.Fatalf("%s: %.300s, want %.300s", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// readIf is what a file has; nothing if it is not there.
func readIf(path string) []byte {
	text, _ := os.ReadFile(path)
	return text
}

// TestTable changes a table by two processes' eyes at random, cuts and damages its file as crashes do, and compares it with a map.
func TestTable(t *testing.T) {
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "table")
		model := map[string]row{}
		if seed%2 == 0 { // of the program before
			testkit.Write(t, path, "[{\"name\":\"old\",\"n\":1},\n {\"name\":\"k3\",\"n\":2}]")
			model["old"], model["k3"] = row{"old", 1, ""}, row{"k3", 2, ""}
		}
		tables := []*Table[string, row]{NewTable(settings(path)), NewTable(settings(path))}
		for step := range 100 {
			table, key := tables[rng.IntN(2)], fmt.Sprintf("k%d", rng.IntN(20))
			switch what := rng.IntN(20); {
			case what < 10:
				r := row{key, step, strings.Repeat("x", rng.IntN(900))}
				testkit.Must(t, put(table, r))
				model[key] = r
			case what < 15:
				testkit.Must(t, drop(table, key))
				delete(model, key)
			case what < 16 && !strings.HasPrefix(string(readIf(path)), "["): // a crash in the middle of a line
				f := testkit.Value(os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600))(t)
				io.WriteString(f, `{"row":{"name":"torn","n":1}}`[:1+rng.IntN(28)])
				testkit.Must(t, f.Close())
			case what < 17:
				gone := testkit.Value(table.Erase(func(r row) bool { return r.Name == key }))(t)
				testkit.Equal(t, "erased", gone == 1, model[key].Name != "")
				delete(model, key)
				if gone == 1 && strings.Contains(string(testkit.Read(t, path)), `"`+key+`"`) {
					t.Fatalf("the file still has %s", key)
				}
			case what < 18:
				tables[rng.IntN(2)] = NewTable(settings(path))
			default:
				holding(t, fmt.Sprintf("seed %d, step %d", seed, step), table, model)
			}
		}
		holding(t, "at the end", NewTable(settings(path)), model)
	}
}

// TestTableBounds: what does not fit is refused, and nothing of the change is there.
func TestTableBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table")
	s := settings(path)
	s.Over = func(r row) bool { return r.N == 0 }
	table := NewTable(s)
	want := map[string]row{}
	for i := range s.Most {
		r := row{Name: fmt.Sprint(i), N: 1}
		testkit.Must(t, put(table, r))
		want[r.Name] = r
	}
	testkit.IsError(t, "one more", put(table, row{Name: "more", N: 1}), ErrFull)
	testkit.IsError(t, "no row", put(table, row{Name: "1", N: 7}, row{}), errRow)
	if err := put(table, row{"1", 2, strings.Repeat("x", s.MaxLine)}); err == nil {
		t.Error("a row longer than a line was taken")
	}
	holding(t, "after what was refused", table, want)
	testkit.Must(t, put(table, row{Name: "1"})) // ends
	testkit.Must(t, put(table, row{Name: "more", N: 1}))
	delete(want, "1")
	want["more"] = row{Name: "more", N: 1}
	holding(t, "one for another", table, want)
	for range 2 * tableSlack { // the file is tidied
		testkit.Must(t, put(table, row{Name: "more", N: 1}))
	}
	testkit.AtMost(t, "lines", strings.Count(string(testkit.Read(t, path)), "\n"), 2*s.Most+tableSlack)
	holding(t, "next process", NewTable(s), want)
}

// TestTableFaults: damaged lines are counted, and go with the next change; a file that cannot be read leaves what was known.
func TestTableFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table")
	table := NewTable(settings(path))
	want := map[string]row{"a": {Name: "a", N: 1}}
	testkit.Write(t, path, `{"row":{"name":"a","n":1}}`+"\nnonsense\n"+`{"row":{}}`+"\n"+`{}`+"\n")
	holding(t, "damaged", table, want)
	testkit.Equal(t, "damaged lines", table.Damaged(), 3)
	want["b"] = row{Name: "b"}
	testkit.Must(t, put(table, want["b"]))
	testkit.Equal(t, "damaged lines after a change", table.Damaged(), 0)
	holding(t, "next process", NewTable(settings(path)), want)
	testkit.Must(t, os.Rename(path, path+".kept"))
	testkit.Must(t, os.Mkdir(path, 0o700))
	known := 0
	testkit.IsError(t, "a folder in its place", table.View(func(rows map[string]row) { known = len(rows) }), ErrForeign)
	testkit.Equal(t, "rows that are known", known, 2)
	testkit.Must(t, os.Remove(path))
	holding(t, "a file that is gone", table, nil)
	held := testkit.Value(Lock(path+".lock", errBusy))(t)
	s := settings(path)
	s.Wait = 0
	testkit.IsError(t, "held by another", put(NewTable(s), want["b"]), errBusy)
	testkit.Must(t, held.Close())
}

const childTable = "BLOCKD_TEST_TABLE"

// TestTableKilled: three processes change rows of their own in one table and are killed at any moment; what they were told is done is
// there, and of what they were not told a row whole or not at all.
func TestTableKilled(t *testing.T) {
	if path := os.Getenv(childTable); path != "" {
		table, name := NewTable(settings(path)), os.Getenv(childTable+"_NAME")
		for n := 1; ; n++ {
			testkit.Must(t, put(table, row{name + "a", n, strings.Repeat("x", 900)}, row{name + "b", n, ""}))
			fmt.Println("done", n)
		}
	}
	path := filepath.Join(t.TempDir(), "table")
	told := map[string]int{}
	for round := range 4 {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range []string{"p", "q", "r"} {
			child := exec.Command(os.Args[0], "-test.run=TestTableKilled$")
			child.Env = append(os.Environ(), childTable+"="+path, childTable+"_NAME="+name)
			out := testkit.Value(child.StdoutPipe())(t)
			testkit.Must(t, child.Start())
			all.Go(func() {
				defer child.Wait()
				last := 0
				for lines := bufio.NewScanner(out); lines.Scan(); {
					if fmt.Sscanf(lines.Text(), "done %d", &last); last == 20+7*round {
						child.Process.Kill()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				told[name] = last
			})
		}
		all.Wait()
		testkit.Must(t, NewTable(settings(path)).View(func(rows map[string]row) {
			for name, n := range told {
				if a, b := rows[name+"a"].N, rows[name+"b"].N; a != b && b+1 != a || b < n || a > n+1 {
					t.Fatalf("round %d: %s was told %d, and there are %d and %d", round, name, n, a, b)
				}
			}
		}))
	}
}

// TestTableErased: what was erased is in no file, whatever had become of it before; neither is what was over.
func TestTableErased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table")
	s := settings(path)
	s.Over = func(r row) bool { return r.N == 0 }
	table := NewTable(s)
	testkit.Must(t, put(table, row{"anna", 1, "first"}, row{"ben", 1, ""}, row{"old", 0, ""}))
	testkit.Lacks(t, string(testkit.Read(t, path)), "old")
	testkit.Must(t, put(table, row{"anna", 2, "second"}))
	testkit.Must(t, drop(table, "anna"))
	testkit.Write(t, filepath.Join(filepath.Dir(path), ".table.1.new"), "anna in the draft of a process that was killed")
	gone, err := table.Erase(func(r row) bool { return r.Name == "anna" })
	testkit.Got(gone, err)(t, "erased", 0, nil)
	testkit.Lacks(t, string(testkit.Read(t, path)), "anna")
	drafts, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	testkit.EqualSlices(t, "drafts", drafts, nil)
	testkit.Must(t, drop(table, "ben"))
	testkit.Value(table.Erase(func(row) bool { return true }))(t)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a table without rows: %v", err)
	}
}

// TestTableByHand: what editors and copies do to a file is read as it is meant, or is told of.
func TestTableByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table")
	table, a, b, c := NewTable(settings(path)), row{Name: "a", N: 1}, row{Name: "b", N: 1}, row{Name: "c", N: 1}
	testkit.Must(t, put(table, a, b))
	text := testkit.Read(t, path)
	testkit.Write(t, path, text[:len(text)-1]) // an editor that ends no last line
	holding(t, "without a last line end", table, map[string]row{"a": a, "b": b})
	testkit.Must(t, put(table, c))
	holding(t, "with one more", NewTable(settings(path)), map[string]row{"a": a, "b": b, "c": c})
	before := testkit.Read(t, path)
	testkit.Must(t, os.WriteFile(path, []byte(strings.Replace(string(before), `"a"`, `"x"`, 1)), 0o600)) // in place, of the same length
	testkit.Must(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Second)))
	x := row{Name: "x", N: 1}
	holding(t, "restored in place", table, map[string]row{"x": x, "b": b, "c": c})
	other := strings.Repeat(`{"row":{"name":"a","n":1}}`+"\n", 10)
	testkit.Must(t, os.WriteFile(path, []byte(other), 0o600)) // longer, and of other content
	holding(t, "another file in place", table, map[string]row{"a": a})
	testkit.Write(t, path, "")
	holding(t, "emptied", table, map[string]row{"a": a})
	testkit.Equal(t, "damaged lines of an empty file", table.Damaged(), 1)
}
