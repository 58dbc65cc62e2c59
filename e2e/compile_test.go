package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCompileUnion compiles a million real names, and asks the file about every
// one of them: each must be blocked, by its own line.
func TestCompileUnion(t *testing.T) {
	union := shared(t, "lists/union-domains.txt.gz")
	file := filepath.Join(t.TempDir(), "union.bdx")

	begun := time.Now()
	compile := exec.Command(program, "compile", "-o", file, "--format", "plain", "--json", union)
	out, err := compile.Output()
	if err != nil {
		t.Fatalf("blockd compile: %v\n%s", err, out)
	}
	elapsed := time.Since(begun)
	var report struct{ Keys, Entries int }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("blockd compile --json printed %q: %v", out, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	usage := compile.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("compile: %d entries, %d keys in %v, file %.1f MB, peak memory %.0f MB",
		report.Entries, report.Keys, elapsed.Round(time.Millisecond), float64(info.Size())/1e6, float64(usage.Maxrss)/1e3)

	names, err := exec.Command("gzip", "-dc", union).Output()
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command(program, "check", "-i", file, "-")
	var senders strings.Builder
	for name := range strings.Lines(string(names)) {
		senders.WriteString("x@" + name)
	}
	check.Stdin = strings.NewReader(senders.String())
	begun = time.Now()
	out, err = check.Output()
	if err != nil {
		t.Fatalf("blockd check: %v", err)
	}
	elapsed = time.Since(begun)
	var blocked, other int
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "\tblocked\t") {
			blocked++
		} else if other++; other < 10 {
			t.Errorf("a listed name is not blocked: %q", line)
		}
	}
	t.Logf("check: %d of %d listed names blocked, %d not, in %v", blocked, blocked+other, other, elapsed.Round(time.Millisecond))
	if want := strings.Count(string(names), "\n"); blocked != want {
		t.Errorf("%d names blocked, want all %d", blocked, want)
	}
}
