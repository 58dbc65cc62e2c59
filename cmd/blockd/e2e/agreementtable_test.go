package e2e

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// comparePage holds a page of docs to a table between two marks; -update writes it.
func comparePage(t *testing.T, path, mark string, table [][]string) {
	t.Helper()
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	page := testkit.Read(t, path)
	head, rest, ok := strings.Cut(string(page), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	now := markdown(table)
	switch {
	case *update:
		testkit.Write(t, path, head+begin+now+end+tail)
	case old != now:
		t.Errorf("%s shows another table (go test ./e2e -run '%s$' -update writes it)", path, t.Name())
	}
}

// markdown is a table whose first row is its head.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	return b.String()
}
