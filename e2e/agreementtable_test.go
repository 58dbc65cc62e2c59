package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// compareAgreement holds docs/agreement.md to the table of cases and doors; -update
// writes it.
func compareAgreement(t *testing.T, table [][]string) {
	t.Helper()
	const begin, end = "<!-- agreement -->\n", "<!-- end of agreement -->\n"
	path := filepath.Join(root, "docs", "agreement.md")
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
		t.Errorf("docs/agreement.md shows another table (go test ./e2e -run 'Agreement$' -update writes it)")
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
