package main

import (
	"encoding/json"
	"strings"
	"testing"

	"blockd/doors/export"
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
)

// Where a list comes from is said by its file, and sooner by the configuration; a build from the cache keeps it. An entry of
// several lists shows all of them. An export says which lists may not be passed on, and writes them all the same.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	const head = "# Title: Scams\x1b[2J\u202e\n# Homepage: https://list.example/\n# License: CC BY-NC-SA 4.0\n# Expires: 2 days\n"
	writeFile(t, dir, "lists/a.txt", "bad.example\n")
	writeFile(t, dir, "more/a.txt", head+"bulk.example\n")
	writeFile(t, dir, "more/b.txt", "# License: MIT\n# Complaints: mailto:help@b.example\nbulk.example\n")
	tables := func(more string) string {
		return anyPorts + "\n[[list]]\nname = \"scams\"\npath = \"more/a.txt\"\nformat = \"plain\"\n" + more +
			"\n[[list]]\nname = \"second\"\npath = \"more/b.txt\"\nformat = \"plain\"\n"
	}
	file := writeFile(t, dir, "config.toml", tables(""))
	compile := func() {
		t.Helper()
		runs(t, "compile", "-c", file)
	}
	worth := func(name string) (w httpapi.ListWorth) {
		t.Helper()
		_, out, _ := blockd(t, "", "lists", "--json", "-c", file)
		var table httpapi.ListTable
		testkit.Must(t, json.Unmarshal([]byte(out), &table))
		for _, w := range table.Worth {
			if w.List == name {
				return w
			}
		}
		t.Fatalf("no list %s", name)
		return w
	}
	compile()
	for _, when := range []string{"read", "from the cache"} {
		w := worth("scams")
		testkit.Got(w.Title, w.Homepage, w.Licence, w.Restricted, w.ExpiresSeconds, w.Complaints)(t, when, "Scams [2J", "https://list.example/", "CC BY-NC-SA 4.0", true, 2*86400, "")
		writeFile(t, dir, "lists/a.txt", "bad.example\nanother.example\n")
		compile()
	}
	testkit.Got(blockd(t, "", "lists", "-c", file))(t, "lists", "…", "…scams…CC BY-NC-SA 4.0  https://list.example/  -…", "…")
	_, out, _ := blockd(t, "", "check", "--explain", "-c", file, "x@bulk.example")
	for _, want := range []string{"more/a.txt:5, list scams: block bulk.example", "more/b.txt:3, list second: block bulk.example",
		"scams: Scams [2J, https://list.example/, licence CC BY-NC-SA 4.0\n", "second: licence MIT, complaints to mailto:help@b.example\n"} {
		testkit.Has(t, out, want)
	}
	testkit.Got(blockd(t, "", "check", "--explain", "--json", "-c", file, "x@bulk.example"))(t, "explain in JSON", "…", `…"homepage":"https://list.example/"…`, "…")

	code, list, notes := blockd(t, "", "export", "--format", "plain", "-c", file)
	if !strings.Contains(list, "bulk.example") || !strings.Contains(notes, "the licence of scams may not let you pass it on: CC BY-NC-SA 4.0\n") || strings.Contains(notes, "second") {
		t.Errorf("export: %d, %q, %q", code, list, notes)
	}
	_, _, notes = blockd(t, "", "export", "--format", "plain", "--json", "-c", file)
	var told export.Told
	if err := json.Unmarshal([]byte(notes), &told); err != nil || len(told.Restricted) != 1 || told.Restricted[0] != (export.Restricted{List: "scams", Licence: "CC BY-NC-SA 4.0"}) {
		t.Errorf("export --json: %q, %v", notes, err)
	}

	writeFile(t, dir, "config.toml", tables("homepage = \"https://ours.example/\"\ncomplaints = \"mailto:us@ours.example\"\nlicence = \"by agreement\"\n"))
	if w := worth("scams"); w.Homepage != "https://ours.example/" || w.Complaints != "mailto:us@ours.example" || w.Licence != "by agreement" || w.Restricted || w.Title != "Scams [2J" {
		t.Errorf("by the configuration: %+v", w)
	}
	writeFile(t, dir, "config.toml", tables("url = \"https://raw.githubusercontent.com/stamparm/ipsum/master/levels/4.txt\"\n"))
	if w := worth("scams"); w.Complaints != "https://github.com/stamparm/ipsum/issues" || w.Licence != "CC BY-NC-SA 4.0" {
		t.Errorf("by the catalogue: %+v", w)
	}
	for text, want := range map[string]string{
		`homepage = "javascript:alert(1)"`:             "list.homepage: want an address that begins with https://, http:// or mailto:",
		`homepage = "https://a b"`:                     "list.homepage: want",
		`complaints = "https://user:secret@a.example"`: "list.complaints: want",
		`complaints = "help@a.example"`:                "list.complaints: want",
		`licence = "two\nlines"`:                       "list.licence: want one line",
		`licence = "turned \u202e around"`:             "list.licence: want one line",
	} {
		writeFile(t, dir, "config.toml", tables(text+"\n"))
		if code, out, stderr := blockd(t, "", "config", "--check", "-c", file); code == 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, want %q", text, code, out+stderr, want)
		}
	}
}
