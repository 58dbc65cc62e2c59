package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

// The shell's own way is asked: the hidden command that its script runs.
func TestCompletionKnowsListsAndEntries(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", "[smtp]\nlisten = \"\"\n[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n[[list]]\nname = \"scam\"\npath = \"scam.txt\"\n[[list]]\nname = \"other\"\npath = \"other.txt\"\n")
	for _, list := range []string{"spam.txt", "scam.txt", "other.txt"} {
		writeFile(t, dir, list, "bulk.example\n")
	}
	config := filepath.Join(dir, "config.toml")
	var out, log bytes.Buffer
	if code := run([]string{"add", "-c", config, "spam@bulk.example", "scam.example"}, nil, &out, &log); code != 0 {
		t.Fatalf("blockd add ended with %d: %s", code, &log)
	}
	const end = ":4\n" // and no files beside
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"export", "-c", config, "--list", ""}, "spam\tDIR/spam.txt\nscam\tDIR/scam.txt\nother\tDIR/other.txt\n" + end},
		{[]string{"export", "-c", config, "--list", "s"}, "spam\tDIR/spam.txt\nscam\tDIR/scam.txt\n" + end},
		{[]string{"history", "-c", config, "--list", "o"}, "other\tDIR/other.txt\n" + end},
		{[]string{"replay", "-c", config, "--as", "sp"}, "spam\tDIR/spam.txt\n" + end},
		{[]string{"remove", "-c", config, "spam@"}, "spam@bulk.example\n" + end},
		{[]string{"remove", "-c", config, "scam.example", "s"}, "spam@bulk.example\n" + end},
		{[]string{"remove", "-c", filepath.Join(dir, "none.toml"), ""}, end},
	} {
		out.Reset()
		if code := run(append([]string{"__complete"}, tt.words...), nil, &out, &log); code != 0 {
			t.Errorf("%q ended with %d: %s", tt.words, code, &log)
		}
		testkit.Equal(t, fmt.Sprintf("%q offers", tt.words), string(bytes.ReplaceAll(out.Bytes(), []byte(dir), []byte("DIR"))), tt.want)
	}
	if _, err := os.Stat(filepath.Join(dir, "none.toml")); err == nil {
		t.Error("a configuration was made")
	}
}
