package main

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// Without a daemon the key beside the index says for which senders a list counts.
func TestPercentWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bad.example\n")
	writeFile(t, dir, "trial/a.txt", "bulk.example\n")
	writeFile(t, dir, "trial/b.txt", "bulk.example\n!boss@bulk.example\n")
	tables := func(more string) string {
		return anyPorts + `
[[list]]
name = "tenth"
path = "trial/a.txt"
format = "plain"
percent = 10

[[list]]
name = "out"
path = "trial/b.txt"
format = "plain"
` + more
	}
	file := writeFile(t, dir, "config.toml", tables("percent = 10"))
	runs(t, "compile", "-c", file)
	testkit.Got(blockd(t, "", "check", "-c", file, "a@bulk.example"))(t, "without the key", "…", "…", "…for which senders a list with percent counts is not known: open …")
	writeFile(t, dir, "var/a.bdx.percent.key", "000102030405060708090a0b0c0d0e0f\n")
	_, out, _ := blockd(t, "", "check", "--explain", "-c", file, "a@bulk.example")
	for _, want := range []string{"list tenth: block bulk.example and all below it (this list counts for 10 % of senders; and for this one)",
		"list out: block bulk.example and all below it (this list counts for 10 % of senders; not for this one)"} {
		testkit.Has(t, out, want)
	}
	if _, out, _ := blockd(t, "", "lists", "-c", file); strings.Count(out, "block 10%") != 2 {
		t.Errorf("lists: %s", out)
	}
	for text, want := range map[string]string{
		"percent = 0":                      "list.percent: want 0.01 to 100, have 0",
		"percent = 101":                    "list.percent: want 0.01 to 100, have 101",
		"percent = nan":                    "list.percent: want 0.01 to 100, have NaN",
		"percent = 10\naction = \"allow\"": "has no effect with action = \"allow\"",
	} {
		file := writeFile(t, dir, "config.toml", tables(text))
		if code, out, stderr := blockd(t, "", "config", "--check", "-c", file); code == 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, want %q", text, code, out+stderr, want)
		}
	}
}
