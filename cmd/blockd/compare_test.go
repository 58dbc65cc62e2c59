package main

import (
	"blockd/internal/testkit"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "old.txt", "one@bad.example\nOne@Bad.Example\nbulk.example\n=exact.example\n192.0.2.7\ngmail.com\n")
	writeFile(t, dir, "new/a.txt", "one@bad.example\nbulk.example\nexact.example\n")
	writeFile(t, dir, "new/b.hosts", "0.0.0.0 more.example\n")
	writeFile(t, dir, "new/.hidden", "hidden.example\n")
	old, now, empty := dir+"/old.txt", dir+"/new", t.TempDir()
	runs(t, "compile", "-o", dir+"/old.bdx", "--format", "plain", old)
	note := "blockd compare: note: 1 line of " + old + " refused; blockd lint '" + old + "' says why\n"
	none := []string{"-c", dir + "/config.toml"}
	writeFile(t, dir, "config.toml", anyPorts)
	for _, tt := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{[]string{old, now}, 1, "" +
			"entries  only A  only B  both  of A  of B\n" +
			"address       0       0     1  100%  100%\n" +
			"domain        1       2     1   50%   33%\n" +
			"client        1       0     0    0%\n" +
			"all           2       2     2   50%   50%\n" +
			"of only A, 1 in B with another reach or action\n" +
			"of only B, 1 in A with another reach or action\n", note},
		{[]string{"--approximate", old, dir + "/old.bdx"}, 0, "" +
			"entries  only A  only B  both  of A  of B\n" +
			"address       0       0     1  100%  100%\n" +
			"domain        0       0     2  100%  100%\n" +
			"client        0       0     1  100%  100%\n" +
			"all           0       0     4  100%  100%\n", note},
		{[]string{old}, 2, "", "blockd compare: want two lists, folders or indexes, A and B; see: blockd compare --help\n"},
		{[]string{"--memory", "1M", old, now}, 2, "", "blockd compare: --memory: want a size such as 256M or 4G, 16M at least, have \"1M\"; see: blockd compare --help\n"},
		{[]string{old, empty}, 2, "", "blockd compare: compare " + empty + ": a folder without lists\n"},
		{[]string{old, dir + "/none.txt"}, 2, "", "blockd compare: " + dir + "/none.txt: missing: no such file or directory\n"},
		{[]string{old, dir + "/none.bdx"}, 2, "", "blockd compare: " + dir + "/none.bdx: no index yet; blockd compile -o makes one\n"},
	} {
		code, out, errs := blockd(t, "", append(append([]string{"compare"}, none...), tt.args...)...)
		testkit.Got(code, out, errs)(t, fmt.Sprintf("compare %q", tt.args), tt.code, tt.out, tt.errs)
	}
	_, out, _ := blockd(t, "", "compare", "-c", dir+"/config.toml", "--json", old, now)
	row := func(onlyA, onlyB, both, other int, a, b float64) map[string]any {
		return map[string]any{"only_a": float64(onlyA), "only_b": float64(onlyB), "both": float64(both), "other_a": float64(other), "other_b": float64(other), "share_a": a, "share_b": b}
	}
	want := row(2, 2, 2, 1, 0.5, 0.5)
	want["a"] = map[string]any{"path": old, "entries": 5.0, "refused": 1.0}
	want["b"] = map[string]any{"path": now, "entries": 4.0, "refused": 0.0}
	want["scale"] = 1.0
	var kinds []any
	for i, kind := range []map[string]any{row(0, 0, 1, 0, 1, 1), row(1, 2, 1, 1, 0.5, 1.0/3), row(1, 0, 0, 0, 0, 0)} {
		kind["kind"] = []string{"address", "domain", "client"}[i]
		kinds = append(kinds, kind)
	}
	want["kinds"] = kinds
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || !reflect.DeepEqual(got, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("--json prints %s (%v), want %v", out, err, want)
	}
}
