package main

import (
	"testing"
)

// Without a daemon a pause is kept for the next one, and check knows of it.
func TestPauseWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bulk.example\n!boss@bulk.example\n")
	writeFile(t, dir, "lists/b.txt", "friend.example\n")
	writeFile(t, dir, "lists/c.txt", "trial.example\n")
	file := writeFile(t, dir, "config.toml", anyPorts+`
[[list]]
name = "b"
path = "lists/b.txt"
format = "plain"
action = "allow"

[[list]]
name = "c"
path = "lists/c.txt"
format = "plain"
mode = "shadow"
`)
	runs(t, "compile", "-c", file)
	goes(t, file, []step{
		{"", "check x@bulk.example", 0, "x@bulk.example\tblocked\tbad:1\tbulk.example"},
		{"", "resume bad", exitFault, `list "bad" is not paused`},
		{"", "pause", exitUsage, "want one list"},
		{"", "pause bad b", exitUsage, "want one list"},
		{"", "pause bad --for soon", exitUsage, "--for: want how long"},
		{"", "pause bad --for 32d", exitFault, "31 days at most"},
		{"", "pause none", exitFault, `there is no list "none"`},
		{"", "pause b", exitFault, "lets senders in and refuses nobody"},
		{"", "pause c", exitFault, "is in shadow mode and refuses nobody"},
		{"", "pause bad --for 2h", 0, "paused: bad does not count until"},
		{"", "check x@bulk.example", 1, "x@bulk.example\tclear\tbad:1\tbulk.example\tpaused"},
		{"", "check boss@bulk.example", 1, "boss@bulk.example\tallowed\tbad:2"},
		{"", "check --explain x@bulk.example", 1, "(paused: does not count)"},
		{"", "pause live", 0, "paused: live does not count until"},
		{"", "resume bad", 0, "resumed: bad counts"},
		{"", "check x@bulk.example", 0, "x@bulk.example\tblocked"},
	})
}
