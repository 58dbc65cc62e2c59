package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// What cannot be done changes nothing, and says why in a line.
func TestSubscribeFaults(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	file := writeFile(t, dir, "config.toml", anyPorts)
	run := func(args ...string) (int, string) {
		t.Helper()
		code, _, stderr := blockd(t, "", append([]string{"subscribe", "-c", file}, args...)...)
		return code, stderr
	}
	for _, tt := range []struct {
		text string
		args []string
		code int
		want string
	}{
		{anyPorts, []string{"no-such-list"}, exitFault, "no such list in the catalogue"},
		{anyPorts, []string{"--enforce", "disposable-domains"}, exitFault, "disposable-domains is not subscribed to"},
		{anyPorts, []string{"--remove", "disposable-domains"}, exitFault, "disposable-domains is not subscribed to"},
		{anyPorts, []string{"--remove", "--enforce", "disposable-domains"}, exitUsage, "not both"},
		{anyPorts, nil, exitUsage, "want one name"},
		{anyPorts + "[[list]]\nname = \"disposable-domains\"\npath = \"lists/a.txt\"\n", []string{"disposable-domains"}, exitFault, `has this list already, as "disposable-domains"`},
		{"[smtp\n", []string{"disposable-domains"}, exitFault, "config.toml:1"},
		{anyPorts + "# subscribed: disposable-domains, 2026-11-23. x\n[[list]]\nname = \"x\"\npath = \"lists/a.txt\"\n", []string{"--remove", "disposable-domains"}, exitFault, "was changed by hand"},
	} {
		testkit.Write(t, file, tt.text)
		if code, stderr := run(tt.args...); code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: %d, %q, want %q", tt.args, code, stderr, tt.want)
		}
		testkit.Equal(t, fmt.Sprintf("%v: the file is now", tt.args), string(testkit.Read(t, file)), tt.text)
	}
	testkit.Write(t, file, anyPorts)
	link := filepath.Join(dir, "link.toml")
	testkit.Must(t, os.Symlink("config.toml", link))
	says(t, exitFault, "is a link to config.toml", "subscribe", "-c", link, "disposable-domains")
	says(t, 0, "no daemon runs; it takes this up when it starts", "subscribe", "-c", file, "ipsum-4")
	text := string(testkit.Read(t, file))
	testkit.Write(t, file, strings.Replace(text, time.Now().UTC().Format(time.DateOnly), "2020-01-31", 1))
	testkit.Got(blockd(t, "", "subscribe", "-c", file, "ipsum-4"))(t, "after a week", 0, "…It would have refused nobody.…To let it count: blockd subscribe --enforce ipsum-4…", "…")
}
