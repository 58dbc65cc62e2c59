package program

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestCompileUnion compiles a million real names, and asks the file about every
// one of them. A name is blocked, or its own line was refused by the gate's
// defaults, a public suffix or a large mailbox provider, and then nobody is
// blocked for it: lint names these lines.
func TestCompileUnion(t *testing.T) {
	union := testkit.Shared(t, "lists/union-domains.txt.gz")
	file := filepath.Join(t.TempDir(), "union.bdx")

	begun := time.Now()
	compile := exec.Command(e2e.Program, "compile", "-o", file, "--format", "plain", "--json", union)
	out, err := compile.Output()
	if err != nil {
		t.Fatalf("blockd compile: %v\n%s", err, out)
	}
	elapsed := time.Since(begun)
	var report struct {
		Keys, Entries int
		Lists         []struct{ Entries, Errors int }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("blockd compile --json printed %q: %v", out, err)
	}
	info := testkit.Value(os.Stat(file))(t)
	usage := compile.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("compile: %d entries, %d keys in %v, file %.1f MB, peak memory %.0f MB",
		report.Entries, report.Keys, elapsed.Round(time.Millisecond), float64(info.Size())/1e6, float64(usage.Maxrss)/1e3)

	names, err := exec.Command("gzip", "-dc", union).Output()
	testkit.Must(t, err)
	refused, private := lintUnion(t, union)
	listed := strings.Count(string(names), "\n")
	if len(report.Lists) != 1 || report.Lists[0].Errors != len(refused) || report.Lists[0].Entries != listed-len(refused) {
		t.Errorf("report %+v, want %d names without the %d that lint refuses", report, listed, len(refused))
	}
	t.Logf("gate: %d lines refused: %v; %d suffixes of the private section loaded with a warning", len(refused), refused, private)
	check := exec.Command(e2e.Program, "check", "-i", file, "-")
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
		sender, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		_, isRefused := refused[strings.TrimPrefix(sender, "x@")]
		if isBlocked := strings.Contains(line, "\tblocked\t"); isBlocked {
			blocked++
			if isRefused {
				t.Errorf("blocked for a refused line: %q", line)
			}
		} else if other++; !isRefused {
			t.Errorf("a listed name is not blocked: %q", line)
		}
	}
	t.Logf("check: %d of %d listed names blocked, %d not, in %v", blocked, blocked+other, other, elapsed.Round(time.Millisecond))
	if blocked != listed-len(refused) {
		t.Errorf("%d names blocked, want %d without %d", blocked, listed, len(refused))
	}
}

// lintUnion returns the names whose lines the gate refuses, each with the class,
// and the number of suffixes that it takes with a warning.
func lintUnion(t *testing.T, union string) (refused map[string]string, private int) {
	t.Helper()
	names := testkit.Value(exec.Command("gzip", "-dc", union).Output())(t)
	lines := strings.Split(string(names), "\n")
	out, err := exec.Command(e2e.Program, "lint", "--format", "plain", "--json", union).Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("blockd lint: %v, want exit 1 for the refused lines", err)
	}
	refused = map[string]string{}
	for text := range strings.Lines(string(out)) {
		if !strings.Contains(text, `"class":"p`) { // public-suffix, protected
			continue
		}
		var item struct {
			Line        int
			Kind, Class string
		}
		testkit.Must(t, json.Unmarshal([]byte(text), &item))
		if item.Kind == "err" {
			refused[lines[item.Line-1]] = item.Class
		} else {
			private++
		}
	}
	// Six public suffixes and five providers by the tables of this version, and
	// never many more: the list is one of senders.
	if len(refused) < 2 || len(refused) > 50 || private < 400 {
		t.Errorf("%d lines refused, %d suffixes loaded", len(refused), private)
	}
	return refused, private
}
