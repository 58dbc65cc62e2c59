package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/reload"
)

// regulars has the daemon in dir know so many domains that wrote lately, each of a client
// network of its own.
func regulars(t *testing.T, dir string, n int) {
	t.Helper()
	recent := reload.NewRecent(10_000)
	for i := range n {
		sender := testkit.Value(addr.Parse(fmt.Sprintf("anna@regular%d.example", i)))(t)
		recent.Add(sender, netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 9}))
	}
	writeFile(t, dir, "var/.keep", "")
	testkit.Must(t, recent.Save(filepath.Join(dir, "var", "a.bdx"+reload.RecentSuffix)))
}

// TestPoisonedEntriesAreHeldBack: entries that would refuse those who write do not act,
// the rest of the list does, through restarts, until a person accepts them.
func TestPoisonedEntriesAreHeldBack(t *testing.T) {
	dir := t.TempDir()
	regulars(t, dir, 200)
	writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[index]\n", "[index]\npoll = \"1s\"\n", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	writeFile(t, dir, "lists/a.txt", "bulk.example\nregular0.example\nregular1.example\nregular2.example\nnew.example\n")
	d.waitBlocked(t, "x@new.example", true)
	remark := "list bad: 3 held back: they would refuse senders who wrote lately; see blockd lint --held bad"
	check := func(when string) {
		t.Helper()
		if status, body := d.get(t, "/readyz"); status != 200 || body != "ok\n"+remark+"\n" {
			t.Errorf("%s: /readyz = %d %s", when, status, body)
		}
		for i := range 3 {
			if d.blocks(t, fmt.Sprintf("anna@regular%d.example", i)) {
				t.Errorf("%s: regular%d.example is refused", when, i)
			}
		}
		if _, body := d.get(t, "/v1/lists"); !strings.Contains(body, `"held":3`) || !strings.Contains(body, `"state":"held"`) {
			t.Errorf("%s: /v1/lists: %s", when, body)
		}
		if _, body := d.get(t, "/metrics"); !strings.Contains(body, "blockd_list_held_entries{list=\"bad\"} 3\n") {
			t.Errorf("%s: the metric is missing", when)
		}
		prints(t, 1, "clear", "check", "-c", filepath.Join(dir, "config.toml"), "anna@regular0.example")
		prints(t, 0, "3 held back", "lists", "-i", filepath.Join(dir, "var/a.bdx"))
		code, out, errs := blockd(t, "", "lint", "--held", "-c", filepath.Join(dir, "config.toml"), "bad")
		for i, want := range []string{"regular0.example", "regular1.example", "regular2.example"} {
			if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "lists/a.txt") || !strings.Contains(out, fmt.Sprintf("anna@regular%d.example", i)) {
				t.Errorf("%s: lint --held ends with %d: %s%s", when, code, out, errs)
			}
		}
	}
	check("after the load")
	if d.log.find("entries held back") == nil {
		t.Errorf("nothing in the log:\n%s", d.log)
	}
	testkit.MustEqual(t, "exit", d.end(t), 0)
	d = serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	check("after a restart")

	says(t, 2, `no list "bed", did you mean bad?`, "compile", "-c", filepath.Join(dir, "config.toml"), "--accept", "bed")
	runs(t, "compile", "-c", filepath.Join(dir, "config.toml"), "--accept", "bad")
	for i := range 3 {
		d.waitBlocked(t, fmt.Sprintf("anna@regular%d.example", i), true)
	}
	testkit.Eventually(t, "the remark to go", func() bool { _, body := d.get(t, "/readyz"); return body == "ok\n" })
	if code, out, _ := blockd(t, "", "lint", "--held", "-c", filepath.Join(dir, "config.toml")); code != 0 || out != "nothing is held back\n" {
		t.Errorf("lint --held ends with %d: %s", code, out)
	}
}
