package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// What is changed without a daemon is in the journal too, and it tells where somebody has altered it.
func TestAuditWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	run := func(code int, want, args string) string {
		t.Helper()
		words := strings.Fields(args)
		got, out, stderr := blockd(t, "", append([]string{words[0]}, append(words[1:], "-c", file)...)...)
		if got != code || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, %q; want %d, %q", args, got, out, stderr, code, want)
		}
		return out
	}
	run(exitFault, "nothing found", "audit")
	run(0, "whole: there is no line yet", "audit --verify")
	run(0, "", "add --why phishing b.example")
	run(0, "", "remove --why mistake b.example")
	run(0, "", "token new --name desk --write")
	run(0, "", "token revoke desk")
	run(0, "", "pause bad --why it.refuses.the.bank")
	run(0, "", "resume bad")
	run(0, "", "compile --accept")
	out := run(0, "list.resume", "audit")
	for i, want := range []string{"list.accept", "list.resume", "list.pause", "token.revoke", "token.add", "entry.remove", "entry.add"} {
		if lines := strings.Split(out, "\n"); len(lines) < 8 || !strings.Contains(lines[i+1], want) {
			t.Errorf("line %d of %q, want %s", i+1, out, want)
		}
	}
	run(0, "mistake", "audit --action entry.remove")
	run(0, "token.add", "audit --text DESK --since 1h --limit 5")
	run(exitFault, "nothing found", "audit --until 1h")
	run(exitUsage, "want 1 to 1000", "audit --limit 0")
	run(exitUsage, "--has is for --verify", "audit --has 0123")
	run(exitUsage, "want the 64 digits", "audit --verify --has 0123")
	var line struct{ Time, By, Action, Subject, Why, Hash, Previous string }
	first, _, _ := strings.Cut(run(0, "", "audit --json"), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Action != "list.accept" || len(line.Hash) != 64 || len(line.Previous) != 64 || line.By == "" || line.Time == "" {
		t.Errorf("%s: %v", first, err)
	}
	run(0, "whole: 7 lines from ", "audit --verify")
	run(0, line.Hash, "audit --verify --has "+line.Previous)
	run(exitFault, "an end was cut off", "audit --verify --has "+strings.Repeat("0", 64))

	files := testkit.Value(filepath.Glob(filepath.Join(dir, "var", "*.audit", "*.jsonl")))(t)
	testkit.MustEqual(t, "files", len(files), 1)
	text := testkit.Value(os.ReadFile(files[0]))(t)
	testkit.Must(t, os.WriteFile(files[0], []byte(strings.Replace(string(text), "phishing", "innocent", 1)), 0o600))
	run(exitFault, "00000001.jsonl:1: the chain is broken: its hash is not that of its text", "audit --verify")
	run(exitFault, `"whole":false`, "audit --verify --json")
	run(0, "left out 1 damaged line; --verify says where", "audit")
}
