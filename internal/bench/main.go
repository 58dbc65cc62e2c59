// Bench measures blockd beside its peers, on the same keys and in one run, and
// writes tables into docs/performance.md and a plot beside it. `bench smtp`, `bench milter`,
// `bench http`, `bench dns`, `bench resp`, `bench reload` and `bench start` do that for one of its doors (door.go). `bench sizes` draws
// how large filters are, `bench growth` how blockd takes more entries, connections and processors, `bench owners` what entries of recipients cost,
// `bench publish` and `bench nodes` how long a fleet waits for a change of a list.
//
// What is compared takes turns, round for round, so that a load that comes and
// goes on the machine meets everybody. A peer that is not installed is named as
// missing; nothing here is a test of how fast anything is.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// defaultKeys is what `make bench` measures in two to three minutes.
const defaultKeys = 1_000_000

func main() {
	args := os.Args[1:]
	if code, ok := runServer(args, os.Stdin, os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	doors := map[string]func() *command{"smtp": newSMTPCommand, "milter": newMilterCommand, "http": newHTTPCommand, "dns": newDNSCommand, "resp": newRESPCommand, "reload": newReloadCommand, "upgrade": newUpgradeCommand, "start": newStartCommand, "sizes": newSizesCommand, "fleet": newFleetCommand, "growth": newGrowthCommand, "owners": newOwnersCommand, "publish": newPublishCommand, "nodes": newNodesCommand}
	c := newBenchCommand()
	if len(args) > 0 && doors[args[0]] != nil {
		c, args = doors[args[0]](), args[1:]
	}
	os.Exit(c.run(args, os.Stdout, os.Stderr))
}

// settings of a run of `bench`.
type settings struct {
	scale        // rounds are of look-ups; builds and programs have half as many
	work  string // folder for a few gigabytes at ten million keys; "" = the system's
}

// buildRounds are fewer: of what takes seconds, not tenths of them.
func (s settings) buildRounds() int { return (s.rounds + 1) / 2 }

// slow reports whether builders that take a minute at ten million keys get one
// round only.
func (s settings) slow() bool { return s.n > defaultKeys }

func newBenchCommand() *command {
	s := &settings{}
	c := newCommand("bench", &s.scale)
	c.flags.IntVar(&s.n, "n", defaultKeys, "`keys` to list, and as many that are not listed")
	c.flags.IntVar(&s.rounds, "rounds", 5, "`rounds` of every look-up")
	c.flags.StringVar(&s.work, "work", "", "`folder` for temporary files, 500 bytes a key")
	c.within = func() bool { return s.n >= 100 && s.rounds >= 1 }
	c.bounds = "-n of 100 or more, -rounds of 1 or more"
	c.measure = func(ctx context.Context, stdout, stderr io.Writer) error { return s.measure(ctx, stdout, stderr) }
	return c
}

func (s settings) measure(ctx context.Context, stdout, stderr io.Writer) error {
	p := newProgress(stderr)
	dir, err := os.MkdirTemp(s.work, "blockd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := searchSbin(); err != nil {
		return err
	}
	r := newReport(s, describeMachine())

	p.say(fmt.Sprintf("making 2 x %s keys", grouped(s.n)))
	k, err := makeKeys(ctx, s, dir)
	if err != nil {
		return err
	}
	r.keys = k

	// Programs that compile come first, while this process is small: Linux
	// counts the memory of a parent as a peak of the child it starts.
	p.say("compiling")
	b, err := compileAll(ctx, s, dir, k, r)
	if err != nil {
		return err
	}
	if err := k.sample(dir); err != nil {
		return err
	}
	p.say("changing a line")
	if err := changeALine(ctx, s, dir, k, r); err != nil {
		return err
	}
	p.say("asking programs")
	if err := askPrograms(ctx, s, b, k, r); err != nil {
		return err
	}
	p.say("asking exact stores")
	if err := askStores(ctx, s, b, k, r); err != nil {
		return err
	}
	p.say("asking whole senders")
	if err := askSenders(ctx, s, dir, k, r); err != nil {
		return err
	}
	p.say("building and asking filters")
	if err := askFilters(ctx, s, k, r); err != nil {
		return err
	}
	r.elapsed = time.Since(p.begun)
	if err := r.section().publish(s.docs, stdout); err != nil {
		return err
	}
	p.say("done")
	return nil
}
