package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

// Moved to Junk, the sender is blocked for this user alone; moved back, not any more. What the user has made himself stays.
func TestJunk(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "config.toml"), "[live]\nfolder = \"live\"\n")
	const mail = "Return-Path: <promo@bulk.example>\nFrom: My Bank <info@bank.example>\n\nhello\n"
	goes(t, path, []step{
		{mail, "junk --recipient Anna+shop@here.example", 0, "added: block promo@bulk.example for anna@here.example until "},
		{mail, "junk --recipient anna@here.example --undo", 0, "removed: block promo@bulk.example"},
		{mail, "junk --recipient anna@here.example --ham", 0, "promo@bulk.example was not blocked"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example", 3, "of your own domain; if that is meant, say --force"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example --force", 0, "added: block bob@here.example for anna@here.example"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example --undo", 0, "removed: block bob@here.example"},
		{"Return-Path: <someone@gmail.com>\n\n", "junk --recipient anna@here.example", 3, "at a protected domain"},
		{"Return-Path: <>\n\n", "junk --recipient anna@here.example --json", 1, `"result":"refused"`},
		{strings.ReplaceAll(mail, "hello", strings.Repeat("hello\n", 1<<18)), "junk --recipient anna@here.example --for 1h", 0, "added: block promo@bulk.example"},
		{mail, "junk --recipient anna@here.example --undo", 0, "removed: block"},
		{mail, "junk --recipient here.example", 2, "want --recipient"},
		{mail, "junk --recipient anna@here.example --for never", 2, "want how long"},
		{"", "add promo@bulk.example --owner anna@here.example --action allow", 0, "added: allow promo@bulk.example for anna@here.example"},
		{mail, "junk --recipient anna@here.example", 1, "the user has an entry of his own, allow"},
		{"", "list --owner anna@here.example", 0, "promo@bulk.example"},
		{"", "list", 0, "no live entries"},
		{"", "remove promo@bulk.example --owner anna@here.example", 0, "undo: blockd add"},
	})
}

// Three users who agree make a proposal, which the journal of one file and no daemon show alike; complaints count only if the history bears them out.
func TestProposalsOfFiles(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "config.toml"), "[http]\nlisten = \"\"\n[live]\nfolder = \"live\"\n[junk]\nagree = 3\n")
	log := testkit.Value(history.Open(history.Settings{Folder: filepath.Join(dir, "var/blockd.bdx.history"), Max: history.MinMax, Keep: time.Hour}))(t)
	log.Add(history.Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Client: netip.MustParseAddr("192.0.2.7"), Sender: "promo@bulk.example", Recipient: "Carl@here.example"})
	log.Close()
	complaint := testkit.Write(t, filepath.Join(dir, "complaints/new/1"), arf("abuse", "promo@bulk.example", "carl@here.example", "192.0.2.7"))
	forged := testkit.Write(t, filepath.Join(dir, "forged"), arf("abuse", "promo@bulk.example", "dora@here.example", "192.0.2.7"))
	const mail = "Return-Path: <promo@bulk.example>\n\nhello\n"
	goes(t, path, []step{
		{"", "proposals", 1, "nothing found"},
		{mail, "junk --recipient anna@here.example", 0, "added"},
		{mail, "junk --recipient anna+shop@here.example --for 2d", 0, "replaced"},
		{mail, "junk --recipient bob@here.example", 0, "added"},
		{"", "proposals", 1, "nothing found"},
		{"", "complaints " + forged, 1, "forged: nothing is counted: the history has no accepted message from promo@bulk.example by 192.0.2.7 to dora@here.example"},
		{"hello", "complaints", 1, "standard input: refused: nothing is blocked: this is no message"},
		{"", "proposals", 1, "nothing found"},
		{"", "complaints " + filepath.Dir(filepath.Dir(complaint)), 0, "taken: promo@bulk.example, by carl@here.example"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "taken: promo@bulk.example, by carl@here.example"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "forgedx: no such file or directory"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "1 of 2 complaints could not be handed in"},
		{"", "proposals", 0, "promo@bulk.example  open   3      1        1"},
		{"", "proposals adopt promo@bulk.example", 1, "it decides about proposals, so start it"},
		{mail, "junk --recipient bob@here.example --undo", 0, "removed"},
		{"", "proposals", 1, "nothing found"},
		{"", "audit --action complaint.take", 0, "promo@bulk.example"},
		{"", "proposals --state odd", 2, "want open, adopted or declined"},
	})
}

// arf is a complaint in the Abuse Reporting Format.
func arf(kind, sender, user, client string) string {
	return strings.ReplaceAll(fmt.Sprintf(`From: <fbl@reports.example>
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: text/plain

This is a complaint.

--b
Content-Type: message/feedback-report

Feedback-Type: %s
User-Agent: Test/1
Version: 1
Original-Mail-From: <%s>
Original-Rcpt-To: <%s>
Source-IP: %s

--b
Content-Type: message/rfc822

From: My Bank <info@bank.example>

hello
--b--
`, kind, sender, user, client), "\n", "\r\n")
}
