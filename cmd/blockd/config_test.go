package main

import (
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

// What is shipped runs without a word of warning, and its lists are clean.
func TestReferenceConfigurationIsGood(t *testing.T) {
	reference := filepath.Join(testkit.Root(t), "config.toml")
	testkit.Got(blockd(t, "", "config", "--check", "-c", reference))(t, "config --check", 0, "…no warnings…", "…")
	c := testkit.Value(config.Load(reference))(t)
	for _, l := range c.Lists {
		runs(t, "lint", "--format", l.Format, l.Path)
	}
}

// The command says what package config finds, and sums it up.
func TestConfigCheck(t *testing.T) {
	good := testkit.File(t, "config.toml", "[smtp]\nupstream = \"maildir:mail\"\n[http]\nlisten = \"\"\n")
	bad := testkit.File(t, "config.toml", "[smtp]\nlisten = 25\nreject_at = \"rctp\"\n")
	for _, tt := range []struct {
		file           string
		code           int
		stdout, stderr string
	}{
		{good, 0, good + ": warning: no [[list]] blocks: nothing will be refused\n" + good + ": good, no lists, 1 warning\n", ""},
		{bad, 1, "", bad + ":2: smtp.listen: want a text in quotes, have 25\n" + bad + `:3: smtp.reject_at: want "rcpt" or "mail", have "rctp"` +
			"\nblockd config: " + bad + ": 2 faults\n"},
	} {
		code, stdout, stderr := blockd(t, "", "config", "--check", "-c", tt.file)
		testkit.Got(code, stdout, stderr)(t, "config --check", tt.code, tt.stdout, tt.stderr)
	}
}
