package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/httpapi"
)

// The command that undoes a removal is one, for entries that look like options too.
func TestUndoIsACommand(t *testing.T) {
	tests := []struct {
		entry  httpapi.LiveEntry
		config string
		want   string
	}{
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block", Author: "ann"}, "", "blockd add x@y.example --author ann"},
		{httpapi.LiveEntry{Entry: "-x@y.example", Action: "allow", Author: "ann"}, "", "blockd add --action allow --author ann -- -x@y.example"},
		{httpapi.LiveEntry{Entry: "--force@y.example", Action: "block"}, "", "blockd add -- --force@y.example"},
		{httpapi.LiveEntry{Entry: "it's@y.example", Action: "block"}, "", `blockd add 'it'\''s@y.example'`},
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block"}, "/etc/blockd/mx 2.toml", `blockd add -c '/etc/blockd/mx 2.toml' x@y.example`},
	}
	for _, tt := range tests {
		if got := undo(&tt.entry, tt.config); got != tt.want {
			t.Errorf("undo(%s) = %s, want %s", tt.entry.Entry, got, tt.want)
		}
	}
}

// With unverified_allow = "ignore" an exception for a sender overrides nothing. Who adds
// one hears of it; one for a client counts.
func TestExceptionThatOverridesNothingIsToldOf(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	for name, text := range map[string]string{
		"l.txt":       "x.example\n",
		"config.toml": "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n[auth]\nunverified_allow = \"ignore\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args []string
		told bool
	}{
		{[]string{"--action", "allow", "friend@x.example"}, true},
		{[]string{"--action", "allow", "192.0.2.1"}, false},
		{[]string{"foe@x.example"}, false},
	} {
		var out, stderr strings.Builder
		cmd := newAdd()
		cmd.SetArgs(append([]string{"-c", config}, tt.args...))
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(stderr.String(), `unverified_allow is "ignore"`); told != tt.told {
			t.Errorf("%q: told %t, want %t: %s", tt.args, told, tt.told, stderr.String())
		}
	}
}
