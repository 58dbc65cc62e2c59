package program

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestReloadUnderLoad serves a million real names and swaps the generation ten
// times, a hundred with -soak, while twenty sessions of smtp-source send mail. A list change is never
// felt: no session may fail, no listed sender may pass, no other be refused.
func TestReloadUnderLoad(t *testing.T) {
	union := testkit.Shared(t, "lists/union-domains.txt.gz")
	source := testkit.Peer(t, "smtp-source")
	first, last := ends(t, union)

	d := e2e.Serve(t, e2e.Setup{
		Raced:    true,
		Upstream: "smtp://" + e2e.Sink(t),
		SMTP:     "client_info = \"none\"\nallow_open_upstream = true\nmax_connections_per_ip = 200\n",
		Lists: fmt.Sprintf("[[list]]\nname = \"union\"\npath = %q\nformat = \"plain\"\n\n[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nmax_freed = 1.0\n",
			union),
		Files: map[string]string{"own.txt": "always@toggle.example\n"},
	})

	ctx, cancel := context.WithCancel(t.Context())
	type load struct {
		runs, mails int
		err         error
	}
	loaded := make(chan load)
	var running atomic.Bool
	go func() { // twenty sessions at a time, a new connection for every mail
		var l load
		for l.err == nil && ctx.Err() == nil {
			running.Store(true)
			out, err := exec.Command(source, "-s", "20", "-m", "400", "-l", "2048",
				"-f", "clear@sender.example", "-t", "user@here.example", d.SMTP).CombinedOutput()
			if err != nil {
				l.err = fmt.Errorf("smtp-source: %w\n%s", err, out)
			}
			l.runs, l.mails = l.runs+1, l.mails+400
		}
		loaded <- l
	}()
	testkit.Eventually(t, "the load to begin", running.Load)

	var verdicts int
	check := func(sender, want string) {
		t.Helper()
		verdicts++
		testkit.Begins(t, fmt.Sprintf("RCPT after MAIL FROM:<%s>", sender), e2e.Ask(t, d.SMTP, sender), want)
	}
	var slowest time.Duration
	reloads := 10
	if *e2e.Soak {
		reloads = 100
	}
	for i := range reloads {
		begun := time.Now()
		text, want := "always@toggle.example\nnow@toggle.example\n", "550 "
		if i%2 == 1 { // every other reload takes the line away again
			text, want = "always@toggle.example\n", "250 "
		}
		e2e.Replace(t, filepath.Join(d.Dir, "own.txt"), text)
		testkit.Eventually(t, fmt.Sprintf("reload %d to act", i+1), func() bool {
			// What no reload may change, asked all the while it is built and swapped.
			check("x@"+first, "550 ")
			check("x@sub."+last, "550 ")
			check("always@toggle.example", "550 ")
			check("clear@sender.example", "250 ")
			return strings.HasPrefix(e2e.Ask(t, d.SMTP, "now@toggle.example"), want) || t.Failed()
		})
		slowest = max(slowest, time.Since(begun))
	}
	cancel()
	l := <-loaded
	if l.err != nil {
		t.Error(l.err)
	}
	t.Logf("%d reloads of 1,006,827 entries, the slowest acting after %v; meanwhile %d mails in %d runs of smtp-source, none lost, and %d verdicts, none wrong",
		reloads, slowest.Round(time.Millisecond), l.mails, l.runs, verdicts)
}

// ends returns the first and the last name of a gzipped list.
func ends(t *testing.T, path string) (first, last string) {
	t.Helper()
	f := testkit.Value(os.Open(path))(t)
	defer f.Close()
	text := testkit.Value(gzip.NewReader(f))(t)
	scanner := bufio.NewScanner(text)
	for scanner.Scan() {
		last = scanner.Text()
		if first == "" {
			first = last
		}
	}
	testkit.Must(t, scanner.Err())
	return first, last
}

// TestBrokenListKeepsServing breaks a list in the ways that happen, under a
// running daemon: what served serves on, and the log, the metric and /readyz say
// so until it is cured.
func TestBrokenListKeepsServing(t *testing.T) {
	// One of fewer than 100 entries may be emptied by its owner.
	good := "spammer@bulk.example\njunk.example\n"
	for i := range 100 {
		good += fmt.Sprintf("junk%d.example\n", i)
	}
	d := e2e.Serve(t, e2e.Setup{
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n",
		Files: map[string]string{"own.txt": good},
	})
	own := d.Path("own.txt")
	const series = "blockd_reload_last_attempt_success"
	tests := []struct {
		name, class string
		damage      func(t *testing.T)
	}{
		{"removed", "missing", func(t *testing.T) {
			testkit.Must(t, os.Remove(own))
		}},
		{"emptied", "empty", func(t *testing.T) { e2e.Replace(t, own, "") }},
		{"a torn gzip file", "truncated", func(t *testing.T) { e2e.Replace(t, own, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b") }},
		{"an error page", "html", func(t *testing.T) { e2e.Replace(t, own, "<!DOCTYPE html>\n<html>502 Bad Gateway</html>\n") }},
		{"mailbox providers among its entries", "protected", func(t *testing.T) {
			e2e.Replace(t, own, good+"there.example\ngmail.com\noutlook.com\nyahoo.com\nqq.com\nweb.de\nfree.fr\n")
		}},
		{"against its own test", "self-test", func(t *testing.T) { e2e.Replace(t, own, good+"there.example\n#? pass friend@there.example\n") }},
		{"full of bad lines", "bad-ratio", func(t *testing.T) { e2e.Replace(t, own, good+strings.Repeat("no entry at all\n", 200)) }},
		{"a folder in its place", "directory", func(t *testing.T) {
			testkit.Must(t, os.Remove(own))
			testkit.Must(t, os.Mkdir(own, 0o755))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.damage(t)
			testkit.Eventually(t, "/readyz to say "+tt.class, func() bool {
				status, body := d.Get("/readyz")
				return status == http.StatusOK && strings.HasPrefix(body, "degraded\n") && strings.Contains(body, tt.class)
			})
			// It is counted a moment after it shows.
			d.Counted(t, series, "0")
			d.Logged(t, 1, "lists refused", "class="+tt.class)
			testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "spammer@bulk.example"), "550 ")
			testkit.Begins(t, "a clear sender", e2e.Ask(t, d.SMTP, "friend@there.example"), "250")

			testkit.Must(t, os.RemoveAll(own))
			e2e.Replace(t, own, good)
			testkit.Eventually(t, "/readyz to be well again", func() bool {
				_, body := d.Get("/readyz")
				return body == "ok\n"
			})
			d.Counted(t, series, "1")
		})
	}

	t.Run("SIGHUP reads the lists at once", func(t *testing.T) {
		before := d.Metric(`blockd_reloads_total{result="unchanged"}`)
		testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGHUP))
		testkit.Eventually(t, "the reload to be counted", func() bool {
			return d.Metric(`blockd_reloads_total{result="unchanged"}`) != before
		})
	})
}

// TestLoadsThatFree poisons lists with lines that let everybody pass, in the formats that
// have such lines, while another list blocks: nobody whom that list refuses gets through.
func TestLoadsThatFree(t *testing.T) {
	guests := []struct{ name, format, before, after string }{
		{"plain", "plain", "guest.example\n", "!com\n!mass.example\n!127.0.0.0/9\nplain.marker.example\n"},
		{"adblock", "adblock", "||guest.example^\n", "@@||com^\n@@||mass.example^\n||adblock.marker.example^\n"},
		{"postfix", "postfix", "guest.example REJECT\n", "com OK\nmass.example OK\n127.0.0 OK\npostfix.marker.example REJECT\n"},
		{"rpz", "rpz", "guest.example CNAME .\n", "*.com CNAME rpz-passthru.\n*.mass.example CNAME rpz-passthru.\nrpz.marker.example CNAME .\n"},
	}
	bad := "bad.com\n"
	for i := range 30 {
		bad += fmt.Sprintf("d%d.mass.example\n", i)
	}
	s := e2e.Setup{Files: map[string]string{"bad.txt": bad, "own.txt": "own.example\n"}}
	for _, g := range guests {
		s.Lists += fmt.Sprintf("[[list]]\nname = %q\npath = \"%s.txt\"\nformat = %q\n", g.name, g.name, g.format)
		s.Files[g.name+".txt"] = g.before
	}
	s.Lists += "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nexceptions = \"all\"\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\nformat = \"plain\"\n"
	d := e2e.Serve(t, s)
	refused := func(when, sender, list string) {
		t.Helper()
		if got := e2e.Ask(t, d.SMTP, sender); !strings.HasPrefix(got, "550 5.7.1 ") || !strings.Contains(got, "listed in "+list) {
			t.Errorf("%s: %s is answered %q, want a refusal by %s", when, sender, got, list)
		}
	}
	acts := func(sender string) {
		t.Helper()
		d.Says(t, "/v1/check?sender="+sender, `"verdict":"blocked"`)
	}

	// Lists from elsewhere: what stays home frees nobody.
	for _, g := range guests {
		e2e.Replace(t, d.Path(g.name+".txt"), g.after)
		acts("x@" + g.name + ".marker.example")
		refused(g.name, "x@bad.com", "bad")
		refused(g.name, "x@d0.mass.example", "bad")
	}
	testkit.Has(t, d.Ends(t, 0, "check", "--explain", "x@bad.com"), `exceptions = "own": it lifts what list plain blocks, and nothing else`)

	// One's own list: what would free a whole top-level domain is refused by line, and the
	// rest acts.
	e2e.Replace(t, d.Path("own.txt"), "!com\n!0.0.0.0/1\n!partner.example\nown.marker.example\n")
	acts("x@own.marker.example")
	refused("own", "x@bad.com", "bad")

	// What would lift much of what was refused is refused whole, also where the file
	// changes while the daemon stands still.
	for i := range 30 {
		refused("a wave", fmt.Sprintf("x@d%d.mass.example", i), "bad")
	}
	for _, poison := range []string{"!mass.example\n", "!127.0.0.0/9\n"} {
		e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n"+poison+"new.marker.example\n")
		testkit.Eventually(t, "the load to be refused", func() bool { return strings.Contains(e2e.Readyz(d), "frees: would lift ") })
		status, body := d.Get("/readyz")
		if status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "list own: ") {
			t.Errorf("/readyz: %d %q", status, body)
		}
		refused("a freeing load", "x@d7.mass.example", "bad")
		testkit.Begins(t, "a line of the refused load", e2e.Ask(t, d.SMTP, "x@new.marker.example"), "250 ")
		e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n")
		testkit.Eventually(t, "the list to be in order", func() bool { return !strings.Contains(e2e.Readyz(d), "frees") })
	}
	d.Stop(t)
	e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n!mass.example\n")
	d.Start(t)
	testkit.Eventually(t, "the load to be refused at the start", func() bool { return strings.Contains(e2e.Readyz(d), "frees: would lift ") })
	refused("after a restart", "x@d7.mass.example", "bad")

	// A person who means it says so.
	if code, out, errs := d.Command(t, "compile", "--accept"); code != 0 {
		t.Fatalf("compile --accept: %d\n%s%s", code, out, errs)
	}
	d.Reload(t)
	testkit.Eventually(t, "the accepted load to act", func() bool { return strings.HasPrefix(e2e.Ask(t, d.SMTP, "x@d7.mass.example"), "250 ") })
}

// TestServesWithinAControlGroup starts a daemon with many entries in a control group
// that has little memory, has it build them once more while it serves, and asks it. Who
// takes what the machine has instead is killed by the kernel. With -soak it is ten
// million entries in 384 MiB.
func TestServesWithinAControlGroup(t *testing.T) {
	entries, limit, share := 1_000_000, 96<<20, "24.0 MiB"
	if *e2e.Soak {
		entries, limit, share = 10_000_000, 384<<20, "96.0 MiB"
	}
	group := controlGroup(t, limit)
	plain := filepath.Join(t.TempDir(), "blockd")
	build := exec.Command("go", "build", "-o", plain, "./cmd/blockd")
	build.Dir = e2e.Root
	e2e.Ran(t, build)

	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"many\"\npath = \"many.txt\"\nformat = \"plain\"\n"})
	var list strings.Builder
	for i := range entries {
		fmt.Fprintf(&list, "sender.number.%09d@host%d.example\n", i, i%1000)
	}
	testkit.Write(t, d.Path("many.txt"), list.String())
	d.Run(t, exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$1" serve -c "$2"`, group, plain, d.Path("config.toml")))

	// Renamed with its first line gone, so that the whole list is read and built again.
	e2e.Replace(t, d.Path("many.txt"), strings.SplitN(list.String(), "\n", 2)[1])
	d.Reload(t)
	gone, kept := "sender.number.000000000@host0.example", fmt.Sprintf("sender.number.%09d@host%d.example", entries-1, (entries-1)%1000)
	d.Says(t, "/v1/check?sender="+gone, `"verdict":"clear"`)
	d.Logged(t, 2, "how=built") // the build after it
	if _, body := d.Get("/v1/check?sender=" + kept); !strings.Contains(body, `"verdict":"blocked"`) {
		t.Errorf("%s: %s", kept, body)
	}
	t.Logf("%d entries within %d MiB: records in %s; most in use %s", entries, limit>>20, share, used(group))
}

// controlGroup makes a control group of so much memory, gone when the test ends.
func controlGroup(t *testing.T, limit int) string {
	t.Helper()
	name := fmt.Sprintf("blockd-test-%d", rand.Uint32())
	for _, v := range []struct{ folder, file string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		group := filepath.Join(v.folder, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(group) })
		// Where no memory controller is there is no such file, and none is made.
		if bound, err := os.OpenFile(filepath.Join(group, v.file), os.O_WRONLY, 0); err == nil {
			_, err = fmt.Fprint(bound, limit)
			if bound.Close(); err == nil {
				return group
			}
		}
		os.Remove(group)
	}
	t.Skip("no control group with a bound on memory can be made here: that needs root and the memory controller")
	return ""
}

// used is the most memory that the group has had, what the system caches included.
func used(group string) string {
	for _, name := range []string{"memory.peak", "memory.max_usage_in_bytes"} {
		if text, err := os.ReadFile(filepath.Join(group, name)); err == nil {
			return strings.TrimSpace(string(text)) + " octets"
		}
	}
	return "not told"
}

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
