package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A table lines up on any terminal, and none of it is lost.
func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]string{{"list", "entries", "state"}, {"bulk", "12", "ok"}, {"disposable", "8,335", "refused"}}
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := table{rows: rows, width: tt.width}
			if got := strings.Join(table.lines(1), "\n"); got != tt.want[1:] {
				t.Errorf("at width %d:\n%s\nwant%s", tt.width, got, tt.want)
			}
		})
	}
}

// A checkout runs by the file of its folder, and who has installed blockd by the machine's.
func TestTheFolderGoesBeforeTheMachine(t *testing.T) {
	dir := t.TempDir()
	here, machine := filepath.Join(dir, "config.toml"), filepath.Join(dir, "etc", "config.toml")
	if got := firstFile(here, machine); got != here {
		t.Errorf("with no file: %s, want %s", got, here)
	}
	writeFile(t, dir, "etc/config.toml", "")
	if got := firstFile(here, machine); got != machine {
		t.Errorf("with the machine's file: %s, want %s", got, machine)
	}
	writeFile(t, dir, "config.toml", "")
	if got := firstFile(here, machine); got != here {
		t.Errorf("with both: %s, want %s", got, here)
	}
}
