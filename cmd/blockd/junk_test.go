package main

import (
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// Moved to Junk, the sender is blocked for this user alone; moved back, not any more. What the user has made himself stays.
func TestJunk(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "config.toml"), "[live]\nfolder = \"live\"\n")
	run := func(mail string, args ...string) (int, string) {
		code, out, errs := blockd(t, mail, append(args, "-c", path)...)
		return code, out + errs
	}
	const mail = "Return-Path: <promo@bulk.example>\nFrom: My Bank <info@bank.example>\n\nhello\n"
	for _, step := range []struct {
		mail string
		args string
		code int
		says string
	}{
		{mail, "junk --recipient Anna+shop@here.example", 0, "added: block promo@bulk.example for anna@here.example until "},
		{mail, "junk --recipient anna@here.example --undo", 0, "removed: block promo@bulk.example"},
		{mail, "junk --recipient anna@here.example --ham", 0, "promo@bulk.example was not blocked"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example", 1, "of your own domain"},
		{mail, "junk --recipient here.example", 2, "want --recipient"},
		{mail, "junk --recipient anna@here.example --for never", 2, "want how long"},
		{"", "add promo@bulk.example --owner anna@here.example --action allow", 0, "added: allow promo@bulk.example for anna@here.example"},
		{mail, "junk --recipient anna@here.example", 1, "the user has an entry of his own, allow"},
		{"", "list --owner anna@here.example", 0, "promo@bulk.example"},
		{"", "list", 0, "no live entries"},
		{"", "remove promo@bulk.example --owner anna@here.example", 0, "undo: blockd add"},
	} {
		if code, text := run(step.mail, strings.Fields(step.args)...); code != step.code || !strings.Contains(text, step.says) {
			t.Errorf("%s: %d, want %d with %q:\n%s", step.args, code, step.code, step.says, text)
		}
	}
}
