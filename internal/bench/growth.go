package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/index"
)

// growth is `bench growth`: how blockd takes more entries, more connections and another processor. Nobody stands
// beside it; what is asked is where a curve bends.
type growth struct {
	scale
	most int    // connections
	work string // folder for a few gigabytes at a hundred million entries
	servers
	progress
	program string
	tables  []*table // in the order of the document
	entries growthTables
	crowd   table // by connections
}

// growthTables are by entries.
type growthTables struct{ compile, lookups, daemon table }

// The columns. Those of two processors follow those of one.
const (
	growCompileSeconds = iota
	growCompileCPU
	growCompileMemory
	growCompileColumns
)

const (
	growDaemonStart = iota
	growDaemonOwn
	growDaemonClear
	growDaemonListed
	growDaemonCPU
	growDaemonColumns
)

const (
	growCrowdHTTP = iota
	growCrowdHTTPTail
	growCrowdMails
	growCrowdMailTail
	growCrowdMailCPU
	growCrowdOwn
	growCrowdColumns
	growCrowdSink = mostProcessors * growCrowdColumns // what the same client has without blockd, once
)

const (
	growRequests   = 20_000    // of a round, and at least two for each connection
	growMails      = 3000      // likewise
	growListed     = 1_000_000 // entries while connections grow
	leastGrowth    = 10_000
	growthSample   = 100_000 // keys that a look-up's round asks for
	mostProcessors = 2       // that are compared
)

func newGrowthCommand() *command {
	g := &growth{}
	c := newCommand("bench growth", &g.scale)
	c.flags.IntVar(&g.n, "n", 100_000_000, "most `entries`; it begins at 10,000 and takes ten times as many each time")
	c.flags.IntVar(&g.rounds, "rounds", 3, "`rounds` of each figure but those of compiling, and one that does not count")
	c.flags.IntVar(&g.most, "connections", 10_000, "most `connections`; it begins at one")
	c.flags.StringVar(&g.work, "work", "", "`folder` for temporary files, 110 bytes an entry")
	c.within = func() bool { return g.n >= leastGrowth && g.rounds >= 1 && g.most >= 1 }
	c.bounds = "-n of 10000 or more, -rounds and -connections of 1 or more"
	c.measure = func(ctx context.Context, stdout, stderr io.Writer) error { return g.measure(ctx, stdout, stderr) }
	return c
}

// steps are the powers of ten from first, and last itself.
func steps(first, last int) (all []int) {
	for n := first; n < last; n *= 10 {
		all = append(all, n)
	}
	return append(all, last)
}

// onEach repeats the columns for one processor and for two.
func onEach(columns ...column) (all []column) {
	for processors := 1; processors <= mostProcessors; processors++ {
		for _, c := range columns {
			c.head += fmt.Sprintf(", %d", processors)
			all = append(all, c)
		}
	}
	return all
}

// prepare makes the tables.
func (g *growth) prepare() {
	g.entries = growthTables{
		compile: table{title: "Compiling a list", note: "`blockd compile` on one and on two processors: seconds, processor time a million entries, peak memory.",
			columns: onEach(column{"s", printSeconds, neither}, column{"CPU s / M", significant, neither}, column{"MB", printWhole, neither})},
		lookups: table{title: "A look-up in this process", note: "ns an address, `index.Lookup`, of 100,000 at random; two threads share them.", columns: []column{
			{"clear, 1", significant, neither}, {"listed, 1", significant, neither}, {"clear, 2", significant, neither}, {"listed, 2", significant, neither}}},
		daemon: table{title: "A daemon with so many entries", note: "Its index is there. Until the first answer by HTTP, looked for every 20 ms; its own memory; checks a second by 16 connections; processor time of a check. The client is on the same machine.",
			columns: onEach(column{"start, ms", significant, neither}, column{"MB", significant, neither}, column{"clear/s", printWhole, neither}, column{"listed/s", printWhole, neither}, column{"µs of CPU", significant, neither})},
	}
	g.crowd = table{title: "A daemon with so many connections", note: grouped(min(g.n, growListed)) + " entries. All ask, each after the answer to its last: HTTP checks a second, p99 of one; mails of 1 KB a second on kept connections, p99 of a whole one, processor time; then the daemon's own memory. At last what the same client has with the sink alone, which is one process.",
		columns: append(onEach(column{"HTTP/s", printWhole, neither}, column{"p99, ms", significant, neither}, column{"mails/s", printWhole, neither}, column{"p99, ms", significant, neither}, column{"ms of CPU", significant, neither}, column{"MB", significant, neither}),
			column{"sink alone, mails/s", printWhole, neither})}
	g.tables = []*table{&g.entries.compile, &g.entries.lookups, &g.entries.daemon, &g.crowd}
}

func (g *growth) measure(ctx context.Context, stdout, stderr io.Writer) error {
	g.progress = newProgress(stderr)
	if err := errorOf(searchSbin(), lackOf("smtp-sink")); err != nil {
		return err
	}
	if n := runtime.NumCPU(); n < mostProcessors {
		return fmt.Errorf("the machine has %d processor, want %d", n, mostProcessors)
	}
	g.prepare()
	dir, err := os.MkdirTemp(g.work, "blockd-bench-growth-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // smtp-sink has a user of its own
		return err
	}
	defer g.stop()
	on := describeMachine()
	g.program = filepath.Join(dir, "blockd")
	build := exec.CommandContext(ctx, "go", "build", "-o", g.program, "./cmd/blockd")
	build.Dir = g.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	for _, n := range steps(leastGrowth, g.n) {
		if err := g.withEntries(ctx, dir, n); err != nil {
			return fmt.Errorf("%s entries: %w", grouped(n), err)
		}
	}
	return g.section(on).publish(g.docs, stdout)
}

// withEntries measures everything that depends on the number of entries, and connections where it is theirs.
func (g *growth) withEntries(ctx context.Context, parent string, n int) error {
	name, dir := grouped(n), filepath.Join(parent, fmt.Sprint(n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g.say(name + " entries")
	text, path := filepath.Join(dir, "list.txt"), filepath.Join(dir, "list.bdx")
	_, write := generator(ctx, g.root, n, kindAddress)
	if err := writeFile(text, func(f *os.File) error { return write(f, presentSeed) }); err != nil {
		return err
	}
	for processors := 1; processors <= mostProcessors; processors++ {
		if err := g.compile(ctx, n, processors, text, path); err != nil {
			return err
		}
	}
	sample, err := someLines(text, n, min(n, growthSample))
	if err != nil {
		return err
	}
	k := &keys{n: n, listed: sample, clear: clearSenders(sample)}
	rng := rand.New(rand.NewPCG(3, 0))
	for _, all := range [][]string{k.listed, k.clear} {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	g.say(name + " entries: look-ups")
	if err := g.lookups(ctx, path, name, k); err != nil {
		return err
	}
	g.say(name + " entries: a daemon")
	// The first one builds an index that has its live entries too.
	first, err := g.daemon(ctx, dir, mostProcessors, "127.0.0.1:9", k.listed[0])
	if err != nil {
		return err
	}
	first.stop()
	for processors := 1; processors <= mostProcessors; processors++ {
		if err := g.serve(ctx, dir, n, processors, k); err != nil {
			return err
		}
	}
	if n != min(g.n, growListed) {
		return nil
	}
	for _, connections := range steps(1, g.most) {
		g.say("connections: " + grouped(connections))
		for processors := 1; processors <= mostProcessors; processors++ {
			if err := g.crowded(ctx, dir, connections, processors, k); err != nil {
				return fmt.Errorf("%s connections: %w", grouped(connections), err)
			}
		}
	}
	return nil
}

// pinned runs start on so many processors: the processes that it starts keep them.
func pinned(processors int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, few unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; few.Count() < min(processors, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			few.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &few); err != nil {
		return err
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &all))
}

func (g *growth) compile(ctx context.Context, n, processors int, text, index string) error {
	if err := os.Remove(index); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.CommandContext(ctx, g.program, "compile", "-o", index, "--format", "plain", text)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begun := time.Now()
	if err := pinned(processors, cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	took, state := time.Since(begun), cmd.ProcessState
	t, from := &g.entries.compile, (processors-1)*growCompileColumns
	t.add(grouped(n), from+growCompileSeconds, took.Seconds())
	t.add(grouped(n), from+growCompileCPU, 1e6*(state.UserTime()+state.SystemTime()).Seconds()/float64(n))
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		t.add(grouped(n), from+growCompileMemory, float64(usage.Maxrss)/1e3)
	}
	return nil
}

func (g *growth) lookups(ctx context.Context, path, name string, k *keys) error {
	ix, err := index.Open(path)
	if err == nil {
		err = ix.Promote(ctx)
	}
	if err != nil {
		return err
	}
	columns := map[question]int{absent: 0, listed: 1, absentTwo: 2, listedTwo: 3}
	return contest([]contestant{local(name, k, lookups(ix))}, g.rounds, k, &g.entries.lookups, columns, nanoseconds, exactly(k, &report{}))
}

// lastLines is the end of a log.
func lastLines(path string) string {
	text := contents(path)
	return text[max(0, len(text)-2000):]
}

func (g *growth) section(on machine) section {
	out := section{mark: "bench growth", target: "bench-growth", image: "performance-growth.svg"}
	var b strings.Builder
	fmt.Fprintf(&b, "### Growth, to %s entries and %s connections\n\n", grouped(g.n), grouped(g.most))
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. The run took %.0f s.\n\n", on, on.load, loadAverage(), time.Since(g.begun).Seconds())
	fmt.Fprintf(&b, "![Curves of the tables below](%s)\n", out.image)
	for _, t := range g.tables {
		b.WriteString("\n" + t.markdown())
	}
	out.text, out.plot = b.String(), g.plot(on)
	return out
}
