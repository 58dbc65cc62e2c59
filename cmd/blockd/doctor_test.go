package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/config"
)

func TestCertificatesAreJudgedByTheirTime(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name        string
		begins, end time.Duration // from now
		want        state
		says        string
	}{
		{"good for months", -24 * time.Hour, 90 * 24 * time.Hour, stateOK, "ends on 2027-01-30"},
		{"just more than two weeks", -time.Hour, certificateNotice + time.Minute, stateOK, "ends on"},
		{"two weeks", -time.Hour, certificateNotice - time.Minute, stateWarning, "ends on 2026-11-15"},
		{"ended", -48 * time.Hour, -time.Second, stateFault, "ended on 2026-11-01"},
		{"not yet", time.Hour, 90 * 24 * time.Hour, stateWarning, "does not hold before 2026-11-01 13:00:00"},
	} {
		r := report{check: "tls-smtp"}
		judgeCertificate(&r, "cert.pem", &x509.Certificate{NotBefore: now.Add(tt.begins), NotAfter: now.Add(tt.end)}, now)
		if len(r.found) != 1 || r.found[0].State != tt.want || !strings.Contains(r.found[0].Text, tt.says) || (r.found[0].Hint == "") != (tt.want == stateOK) {
			t.Errorf("%s: %+v, want one %s with %q", tt.name, r.found, tt.want, tt.says)
		}
	}
}

func TestFindingsAsTextAndJSON(t *testing.T) {
	found := []finding{
		{"config", stateOK, "config.toml: 1 list", ""},
		{"upstream-relay", stateFault, strings.Repeat("word ", 30) + "end", "do this"},
		{"dns", stateWarning, "odd \x1b[31m text", ""},
	}
	var text, lines bytes.Buffer
	if err := printFindings(&text, found); err != nil {
		t.Fatal(err)
	}
	want := `ok       config          config.toml: 1 list
fault    upstream-relay  word word word word word word word word word word word word word word word
                         word word word word word word word word word word word word word word word
                         end
                         -> do this
warning  dns             odd \x1b[31m text

1 ok, 1 warning, 1 fault
`
	if text.String() != want {
		t.Errorf("text:\n%s\nwant\n%s", &text, want)
	}
	if err := printFindingsJSON(&lines, found[:1]); err != nil {
		t.Fatal(err)
	}
	if want := `{"check":"config","state":"ok","text":"config.toml: 1 list","hint":""}` + "\n"; lines.String() != want {
		t.Errorf("JSON %s, want %s", &lines, want)
	}
	if got := worst(found); got != 2 {
		t.Errorf("worst = %d, want 2", got)
	}
	if got := worst(found[:1]); got != 0 {
		t.Errorf("worst of ok = %d", got)
	}
}

// A check that hangs is a fault in time, and the others are told of.
func TestHungCheckIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		begun := time.Now()
		found := new(doctor).runAll(t.Context(), []examination{
			{"a", func(_ *doctor, _ context.Context, r *report) { r.ok("fine") }},
			{"b", func(*doctor, context.Context, *report) { <-end }},
			{"c", func(_ *doctor, ctx context.Context, r *report) { <-ctx.Done(); r.fault("", "late") }},
			{"d", func(*doctor, context.Context, *report) { <-end }},
			{"e", func(_ *doctor, _ context.Context, r *report) { r.ok("fine") }},
		}, time.Second)
		var got []string
		for _, f := range found {
			got = append(got, f.Check+" "+f.State.String())
		}
		if want := "a ok, b fault, c fault, d fault, e ok"; strings.Join(got, ", ") != want {
			t.Errorf("found %q, want %s", got, want)
		}
		if took := time.Since(begun); took > time.Second+doctorGrace {
			t.Errorf("took %v", took)
		}
	})
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
	if code != 2 || states["daemon"] != "fault" || states["door-smtp"] != "warning" || states["files"] != "ok" || states["lists"] != "warning" || states["config"] != "ok" {
		t.Errorf("without a daemon: %d\n%s", code, text)
	}
	if code, _, text := doctorSays(t, writeFile(t, dir, "bad.toml", "[smtp]\nlisten = 5\nhostnam = \"a\"\n")); code != 2 || strings.Count(text, `"check":"config","state":"fault"`) != 2 {
		t.Errorf("a bad configuration: %d\n%s", code, text)
	}
	if code, _, text := doctorSays(t, filepath.Join(dir, "no.toml")); code != 2 || !strings.Contains(text, "no such file") {
		t.Errorf("no configuration: %d\n%s", code, text)
	}
	if code, _, stderr := blockd(t, "", "health", "-c", good); code != 1 || !strings.Contains(stderr, "no daemon answers") {
		t.Errorf("health without a daemon: %d, %q", code, stderr)
	}
	ahead := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a.txt"), ahead, ahead); err != nil {
		t.Fatal(err)
	}
	if _, states, text := doctorSays(t, good); states["clock"] != "warning" {
		t.Errorf("a file of tomorrow:\n%s", text)
	}
}

func TestRoomOnDisks(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		least, want int64
		state       state
	}{{0, 1 << 20, stateOK}, {0, 1 << 60, stateWarning}, {1 << 60, 1 << 61, stateFault}} {
		r := report{check: "disk"}
		new(doctor).checkRoom(&r, "index.path", dir+"/not/made/yet", tt.least, tt.want, "a rebuild")
		if len(r.found) != 1 || r.found[0].State != tt.state {
			t.Errorf("least %d, want %d: %+v, want %s", tt.least, tt.want, r.found, tt.state)
		}
	}
}

func TestFetchedListsAreFresh(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	week := config.Duration(7 * 24 * time.Hour)
	for _, tt := range []struct {
		name string
		list config.List
		age  time.Duration
		want int
	}{
		{"a file", config.List{Name: "a"}, 1000 * time.Hour, 0},
		{"fetched of late", config.List{Name: "a", URL: "https://lists.example/a"}, 23 * time.Hour, 0},
		{"not for days", config.List{Name: "a", URL: "https://lists.example/a"}, 25 * time.Hour, 1},
		{"not for weeks, as asked", config.List{Name: "a", URL: "https://lists.example/a", Every: &week}, 600 * time.Hour, 0},
	} {
		r, at := report{check: "lists"}, now.Add(-tt.age)
		(&doctor{now: now}).judgeAge(&r, tt.list, &at)
		if len(r.found) != tt.want {
			t.Errorf("%s: %+v, want %d", tt.name, r.found, tt.want)
		}
	}
}
