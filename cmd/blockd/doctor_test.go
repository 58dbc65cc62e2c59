package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/internal/doctor"
	"blockd/internal/term"
	"blockd/internal/testkit"
)

func TestFindingsAsTextAndJSON(t *testing.T) {
	found := []doctor.Finding{
		{Check: "config", State: doctor.OK, Text: "config.toml: 1 list", Hint: ""},
		{Check: "upstream-relay", State: doctor.Fault, Text: strings.Repeat("word ", 30) + "end", Hint: "do this"},
		{Check: "dns", State: doctor.Warning, Text: "odd \x1b[31m text", Hint: ""},
	}
	var text, lines bytes.Buffer
	testkit.Must(t, printFindings(&text, found))
	want := `ok       config          config.toml: 1 list
fault    upstream-relay  word word word word word word word word word word word word word word word
                         word word word word word word word word word word word word word word word
                         end
                         -> do this
warning  dns             odd \x1b[31m text

1 ok, 1 warning, 1 fault
`
	testkit.Equal(t, fmt.Sprintf("text:\n%s", &text), text.String(), want)
	testkit.Must(t, term.JSONLines(&lines, found[:1]))
	testkit.Equal(t, "JSON", lines.String(), `{"check":"config","state":"ok","text":"config.toml: 1 list","hint":""}`+"\n")
	testkit.Equal(t, "worst", worst(found), 2)
	testkit.Equal(t, "worst of ok", worst(found[:1]), 0)
}

// doctorSays runs the command and returns the worst state of each check.
func doctorSays(t *testing.T, config string) (code int, states map[string]string, text string) {
	t.Helper()
	code, stdout, stderr := blockd(t, "", "doctor", "--json", "-c", config)
	states = map[string]string{}
	rank := map[string]int{"ok": 0, "warning": 1, "fault": 2}
	for line := range strings.Lines(stdout) {
		var f struct{ Check, State, Text, Hint string }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if (f.State != "ok") && f.Hint == "" && f.Text == "" {
			t.Errorf("nothing said: %s", line)
		}
		if have, ok := states[f.Check]; !ok || rank[f.State] > rank[have] {
			states[f.Check] = f.State
		}
	}
	return code, states, stdout + stderr
}

func TestDoctorWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.txt", "bulk.example\n")
	good := writeFile(t, dir, "config.toml", "[index]\npath = \"x.bdx\"\n[smtp]\nlisten = \"127.0.0.1:1\"\n[postfix]\npolicy_listen = \"\"\n[milter]\nlisten = \"\"\n[http]\nlisten = \"\"\n[[list]]\nname = \"a\"\npath = \"a.txt\"\n")
	code, states, text := doctorSays(t, good)
	testkit.Got(code, states["daemon"], states["door-smtp"], states["files"], states["lists"], states["config"], text)(t, "without a daemon", 2, "fault", "", "ok", "", "ok", "…")
	if code, _, text := doctorSays(t, writeFile(t, dir, "bad.toml", "[smtp]\nlisten = 5\nhostnam = \"a\"\n")); code != 2 || strings.Count(text, `"check":"config","state":"fault"`) != 2 {
		t.Errorf("a bad configuration: %d\n%s", code, text)
	}
	testkit.Got(doctorSays(t, filepath.Join(dir, "no.toml")))(t, "no configuration", 2, "…", "…no such file…")
	says(t, 1, "no daemon answers", "health", "-c", good)
	ahead := time.Now().Add(time.Hour)
	testkit.Must(t, os.Chtimes(filepath.Join(dir, "a.txt"), ahead, ahead))
	if _, states, text := doctorSays(t, good); states["clock"] != "warning" {
		t.Errorf("a file of tomorrow:\n%s", text)
	}
}
