package program

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// Changes by commands, by HTTP and by another configuration are one chain, which a kill and a restart do not break, and which a shell
// without blockd can check.
func TestAudit(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bank.example\n"}})
	d.Must(t, "add", "--why", "ticket 4711", "x@bulk.example")
	d.Must(t, "pause", "bad", "--for", "2h", "--why", "refuses our bank")
	d.Kill(t)
	d.Start(t)
	d.Must(t, "remove", "--why", "it was another", "x@bulk.example")
	d.Must(t, "resume", "bad")
	out := d.Must(t, "audit", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"list.resume", "entry.remove", "start", "list.pause", "entry.add", "start"}
	if len(lines) != len(want) {
		t.Fatalf("%s", out)
	}
	for i, action := range want {
		if !strings.Contains(lines[i], `"action":"`+action+`"`) {
			t.Errorf("line %d: %s, want %s", i, lines[i], action)
		}
	}
	if !strings.Contains(lines[1], `"why":"it was another"`) || !strings.Contains(lines[1], "ticket 4711") {
		t.Errorf("what was removed: %s", lines[1])
	}
	testkit.Begins(t, "audit --verify", d.Must(t, "audit", "--verify"), "whole: 6 lines from ")
	_, sum, _ := strings.Cut(lines[len(lines)-1], `"hash":"`)
	files, err := filepath.Glob(d.Path("*.audit/00000001.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := exec.Command("sh", "-c", `head -n1 "$0" | sed 's/,"hash":"[0-9a-f]*"}$//' | tr -d '\n' | sha256sum`, files[0]).Output()
	if err != nil || len(sum) < 64 || !strings.HasPrefix(string(text), sum[:64]) {
		t.Errorf("by sha256sum: %s, %v, want %s", text, err, sum)
	}
}
