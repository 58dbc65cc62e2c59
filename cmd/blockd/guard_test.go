package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
	"blockd/lists"
)

// What protects without being said is printed, and what is printed still loads.
func TestConfigPrintsWhatIsProtected(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", "[smtp]\nhostname = \"mx.here.example\"\n[index]\nprotected = [\"there.example\"]\nmax_grow = 3\n")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--defaults"}, []string{"protected = []\nmax_protected = 5\nmax_bad_ratio = 0.25\nmax_shrink = 0.5\nmax_grow = 10.0\nallow_public_suffix = false\n", "index.protected:\n# gmail.com "}},
		{[]string{"--effective", "-c", file}, []string{"protected = ['there.example']\n", "max_grow = 3.0\n", "# here.example and mx.here.example:\n# gmail.com "}},
	} {
		code, stdout, stderr := blockd(t, "", append([]string{"config"}, tt.args...)...)
		if code != 0 {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("config %q lacks %q:\n%s", tt.args, want, stdout)
			}
		}
		for _, name := range lists.ShippedProtected() {
			if !strings.Contains(stdout, " "+name) {
				t.Errorf("config %q does not print %s", tt.args, name)
			}
		}
		for line := range strings.Lines(stdout) {
			if len(line) > 80 && line[0] == '#' {
				t.Errorf("a line of %d octets: %s", len(line), line)
			}
		}
		var tree map[string]any
		if err := toml.Unmarshal([]byte(stdout), &tree); err != nil {
			t.Errorf("config %q: %v", tt.args, err)
		}
	}
}

// An index that was made under other words about protected domains is not what
// the configuration asks for, and `check` says so.
func TestCheckNoticesAnotherGuard(t *testing.T) {
	config, dir := compiled(t)
	_, _, stderr := blockd(t, "", "check", "--file", "-c", config, "x@bulk.example")
	if stderr != "" {
		t.Errorf("note of a fresh index: %s", stderr)
	}
	text := testkit.Read(t, config)
	writeFile(t, dir, "config.toml", strings.Replace(string(text), "[index]", "[index]\nprotected = [\"new.example\"]", 1))
	if _, _, stderr := blockd(t, "", "check", "--file", "-c", config, "x@bulk.example"); !strings.Contains(stderr, "note: what no entry may cover is configured otherwise by now") {
		t.Errorf("stderr %q", stderr)
	}
	writeFile(t, dir, "config.toml", strings.Replace(string(text), "[index]", "[index]\nmax_bad_ratio = 0.5", 1))
	if _, _, stderr := blockd(t, "", "check", "--file", "-c", config, "x@bulk.example"); stderr != "" {
		t.Errorf("a bound changes no entry: %s", stderr)
	}
}

// A list that shrank too much waits for a person, whose word a running daemon
// takes from `blockd compile --accept`.
func TestServeWaitsForAccept(t *testing.T) {
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "n%d.example\n", i)
		}
		return b.String()
	}
	dir := t.TempDir()
	config := writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "quiet", "poll = \"1s\"\nquiet", 1))
	writeFile(t, dir, "lists/l.txt", numbered(200))
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "lists swapped in")
	writeFile(t, dir, "lists/l.txt", numbered(50))
	refused := d.wait(t, "lists refused")
	for field, want := range map[string]string{"class": "shrunk", "error": "50 entries are left of 200, less than max_shrink = 0.5", "hint": "compile --accept"} {
		if got, _ := refused[field].(string); !strings.Contains(got, want) {
			t.Errorf("%s of the log is %q, want %q", field, got, want)
		}
	}
	if _, body := d.get(t, "/v1/check?sender=x@n199.example"); !strings.Contains(body, `"blocked"`) {
		t.Errorf("the old generation does not serve: %s", body)
	}
	if code, _, stderr := blockd(t, "", "compile", "-c", config); code != 1 || !strings.Contains(stderr, "--accept takes it this once") {
		t.Errorf("compile: exit %d, %s", code, stderr)
	}
	if code, _, stderr := blockd(t, "", "compile", "-c", config, "--accept"); code != 0 || !strings.HasPrefix(stderr, "accepted: list ") {
		t.Errorf("compile --accept: exit %d, %s", code, stderr)
	}
	testkit.Eventually(t, "the accepted list to serve", func() bool {
		_, body := d.get(t, "/v1/check?sender=x@n199.example")
		return strings.Contains(body, `"clear"`)
	})
	// It serves a moment before the log says so.
	testkit.Eventually(t, "the log to tell what was accepted", func() bool {
		log := d.log.String()
		return strings.Contains(log, "compiled by another process") && strings.Contains(log, `"old":200,"new":50`)
	})
}
