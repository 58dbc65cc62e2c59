package term

import (
	"strings"
	"testing"
)

// A table lines up on any terminal, and none of it is lost.
func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]string{{"list", "entries", "state"}, {"bulk", "12", "ok"}, {"disposable", "8,335", "refused"}}
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"no terminal", 0, `
list        entries  state
bulk             12  ok
disposable    8,335  refused`},
		{"room enough", 28, `
list        entries  state
bulk             12  ok
disposable    8,335  refused`},
		{"room for one blank between columns", 26, `
list       entries state
bulk            12 ok
disposable   8,335 refused`},
		{"no room for the last column", 25, `
list        entries
    state
bulk             12
    ok
disposable    8,335
    refused`},
		{"no room for anything", 5, `
list
    entries
    state
bulk
         12
    ok
disposable
      8,335
    refused`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := Table{rows: rows, Width: tt.width}
			if got := strings.Join(table.Lines(1), "\n"); got != tt.want[1:] {
				t.Errorf("at width %d:\n%s\nwant%s", tt.width, got, tt.want)
			}
		})
	}
}
