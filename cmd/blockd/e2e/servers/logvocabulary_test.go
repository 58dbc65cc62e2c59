package servers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// vocabulary are the fields of a decision's log line in their order, from docs/operation.md.
func vocabulary(t *testing.T) (fields []string) {
	t.Helper()
	text := testkit.Value(os.ReadFile(filepath.Join(e2e.Root, "docs", "operation.md")))(t)
	_, table, _ := strings.Cut(string(text), "\n### Fields\n")
	table, _, _ = strings.Cut(table, "\n#")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		fields = append(fields, row[1])
	}
	if len(fields) < 20 {
		t.Fatalf("docs/operation.md: fields %q", fields)
	}
	return fields
}

// decided are the words of the lines that are about a decision, as docs/operation.md has them.
var decided = regexp.MustCompile(`msg="(?:sender (?:blocked|deferred|quarantined|tagged|discarded|allowed|excused|would be blocked|unchecked)|recipient (?:exempt|put off|not taken))(?: again)?"`)

var logField = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)`)

// checkVocabulary holds the lines of a log that are about decisions to the fields and their
// order, and notes which doors have written some.
func checkVocabulary(t *testing.T, log string, order []string, doors map[string]bool) {
	t.Helper()
	for line := range strings.Lines(log) {
		at := decided.FindStringIndex(line)
		if at == nil {
			continue
		}
		var names []string
		for _, field := range logField.FindAllStringSubmatch(line[at[1]:], -1) {
			if names = append(names, field[1]); field[1] == "door" {
				doors[field[2]] = true
			}
			if field[1] == "client" && strings.Count(field[2], ":") == 1 {
				t.Errorf("client with a port: %s", line)
			}
		}
		if !slices.IsSortedFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
			t.Errorf("fields %q, want the order of docs/operation.md: %s", names, line)
		}
		for _, name := range names {
			if !slices.Contains(order, name) {
				t.Errorf("docs/operation.md does not have field %q: %s", name, line)
			}
		}
		for _, name := range []string{"door", "client", "helo", "ref", "sender", "recipient"} {
			if !slices.Contains(names, name) {
				t.Errorf("field %q is missing: %s", name, line)
			}
		}
	}
}
