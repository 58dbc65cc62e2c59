package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/testkit"
)

// The command that undoes a removal is one, for entries that look like options too.
func TestUndoIsACommand(t *testing.T) {
	for _, tt := range []struct {
		entry  httpapi.LiveEntry
		config string
		want   string
	}{
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block", Author: "ann"}, "", "blockd add x@y.example --author ann"},
		{httpapi.LiveEntry{Entry: "-x@y.example", Action: "allow", Author: "ann"}, "", "blockd add --action allow --author ann -- -x@y.example"},
		{httpapi.LiveEntry{Entry: "--force@y.example", Action: "block"}, "", "blockd add -- --force@y.example"},
		{httpapi.LiveEntry{Entry: "it's@y.example", Action: "block"}, "", `blockd add 'it'\''s@y.example'`},
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block"}, "/etc/blockd/mx 2.toml", `blockd add -c '/etc/blockd/mx 2.toml' x@y.example`},
	} {
		testkit.Equal(t, fmt.Sprintf("undo(%s)", tt.entry.Entry), undo(&tt.entry, tt.config), tt.want)
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
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	for _, tt := range []struct {
		args []string
		told bool
	}{
		{[]string{"--action", "allow", "friend@x.example"}, true},
		{[]string{"--action", "allow", "192.0.2.1"}, false},
		{[]string{"foe@x.example"}, false},
	} {
		code, _, stderr := blockd(t, "", append([]string{"add", "-c", config}, tt.args...)...)
		if told := strings.Contains(stderr, `unverified_allow is "ignore"`); told != tt.told || code != 0 {
			t.Errorf("%q = %d: told %t, want %t: %s", tt.args, code, told, tt.told, stderr)
		}
	}
}

// Entries that block or free more than their author can have meant need --force.
func TestAddRefusesWhatNobodyMeans(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "l.txt", "x.example\n")
	config := writeFile(t, dir, "config.toml", "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n"+
		"trusted = [\"10.1.0.0/16\", \"fd00::/8\"]\n[auth]\nclients = [\"192.168.7.0/24\"]\n[milter]\nallow_from = [\"172.16.3.4\"]\n")
	for _, tt := range []struct{ entry, action, says string }{
		{"127.0.0.1", "block", "covers 127.0.0.0/8, this machine itself"},
		{"::1", "block", "covers ::1/128, this machine itself"},
		{"10.0.0.0/8", "block", "covers 10.1.0.0/16, which is in smtp.trusted"},
		{"fd00::1", "block", "covers fd00::/8, which is in smtp.trusted"},
		{"192.168.7.9", "block", "covers 192.168.7.0/24, which is in auth.clients"},
		{"172.16.0.0/12", "block", "covers 172.16.3.4/32, which is in milter.allow_from"},
		{"10.2.0.0/16", "block", ""},
		{"10.1.2.3", "allow", ""},
		{"postmaster@", "block", "everybody's postmaster@"},
		{"ABUSE@", "block", "everybody's abuse@"},
		{"postmaster@bulk.example", "block", ""},
		{"abuse@", "allow", ""},
		{"com", "allow", "a single label: everybody's names are below it"},
		{"co.uk", "allow", "a public suffix"},
		{"gmail.com", "allow", "covers the protected domain gmail.com as a whole"},
		{"anna@gmail.com", "allow", ""},
		{"2001::/18", "allow", "a network wider than IPv4 /8 or IPv6 /19"},
	} {
		t.Run(tt.action+" "+tt.entry, func(t *testing.T) {
			code, _, errs := blockd(t, "", "add", "-c", config, "--action", tt.action, tt.entry)
			if tt.says == "" {
				testkit.MustEqual(t, errs, code, 0)
				return
			}
			testkit.Got(code, errs, strings.Count(errs, "\n"))(t, "exit", 1, "…"+tt.says+"…--force…", 1)
			runs(t, "add", "-c", config, "--force", "--action", tt.action, tt.entry)
		})
	}
	// What no entry may be, --force does not help: nothing says so.
	if code, _, errs := blockd(t, "", "add", "-c", config, "--action", "allow", "0.0.0.0/1"); code != 1 || strings.Contains(errs, "--force") {
		t.Errorf("half of all: %d, %s", code, errs)
	}
}

// Who adds thousands of entries where no daemon runs leaves a snapshot, so that the next start reads no change.
func TestEntriesAddedWithoutADaemonAreTidied(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	testkit.Write(t, filepath.Join(dir, "l.txt"), "x.example\n")
	testkit.Write(t, config, "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n")
	args := []string{"add", "-c", config}
	for i := range 1001 {
		args = append(args, fmt.Sprintf("spam%d@bulk.example", i))
	}
	runs(t, args...)
	if journal := testkit.Read(t, filepath.Join(dir, "x.bdx.live/journal")); strings.Count(string(journal), "\n") > 10 {
		t.Errorf("the journal has %d lines", strings.Count(string(journal), "\n"))
	}
	set := testkit.Value(live.Read(filepath.Join(dir, "x.bdx.live")))(t)
	testkit.Equal(t, "entries", set.Len(), 1001)
}
