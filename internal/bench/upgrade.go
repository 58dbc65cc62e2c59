package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// upgradeDoor measures what clients feel while a new process takes over, for an upgrade and for a
// configuration that the process which runs cannot follow.
type upgradeDoor struct {
	reloadDoor
	felt   table
	config string
	limit  int // of connections, which changes each time
}

// The rows, and how often each is measured in a round.
const (
	upgradeSignal = "a new program (SIGUSR2)"
	upgradeConfig = "another configuration (blockd reload)"

	upgradesPerRound = 5
)

// afterUpgrade is how long probes go on behind the take-over: the old process still ends its sessions.
const afterUpgrade = time.Second

func newUpgradeCommand() *command {
	d := &upgradeDoor{limit: 1000}
	d.kind = kindNumbered
	c := newDoorCommand("upgrade", "a process that takes over", 4, &d.doorSettings, d)
	c.within = func() bool { return d.n >= 1000 && d.rounds >= 1 }
	c.bounds = "-n of 1000 or more, -rounds of 1 or more"
	return c
}

func (d *upgradeDoor) start(ctx context.Context, dir string, l *addresses) error {
	columns := []column{{"answers after, ms", significant, neither}}
	for _, door := range probedDoors {
		columns = append(columns, column{door + " p99, ms", significant, neither}, column{"max", significant, neither})
	}
	d.felt = table{title: "While another process takes over", note: "Probes each millisecond, by a new connection each time: a listed sender's session up to the refusal, `GET /v1/check`, the milter's negotiation and MAIL event. From the signal or the command until a second after the new process answers; \"before\": the same daemon in the seconds before. No probe may fail.", columns: columns}
	d.program, d.dir = l.program, dir
	folder := filepath.Join(dir, "one")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	d.one.files = []string{l.text}
	if err := d.serve(ctx, &d.one, folder); err != nil {
		return err
	}
	d.config = filepath.Join(folder, "blockd.toml")
	return nil
}

func (d *upgradeDoor) round(ctx context.Context) error {
	for range upgradesPerRound {
		for _, c := range []struct {
			name   string
			change func() error
		}{
			{upgradeSignal, func() error { return syscall.Kill(d.one.pid, syscall.SIGUSR2) }}, // its keeper hands it on
			{upgradeConfig, func() error {
				text, err := os.ReadFile(d.config)
				if err != nil {
					return err
				}
				_, rest, _ := bytes.Cut(text, []byte("[smtp]\n"))
				if bytes.HasPrefix(rest, []byte("max_connections")) {
					_, rest, _ = bytes.Cut(rest, []byte("\n"))
				}
				before, _, _ := bytes.Cut(text, []byte("[smtp]\n"))
				d.limit++
				if err := os.WriteFile(d.config, fmt.Appendf(nil, "%s[smtp]\nmax_connections = %d\n%s", before, d.limit, rest), 0o644); err != nil {
					return err
				}
				if out, err := exec.CommandContext(ctx, d.program, "reload", "-c", d.config).CombinedOutput(); err != nil {
					return fmt.Errorf("blockd reload: %w: %s", err, out)
				}
				return nil
			}},
		} {
			if err := d.feelUpgrade(ctx, c.name, c.change); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// feelUpgrade measures one.
func (d *upgradeDoor) feelUpgrade(ctx context.Context, name string, change func() error) error {
	p := &probes{w: &d.one, fresh: true, http: asker{address: d.one.http}, get: get(d.one.http, "/v1/check", probesListed, verdictOf(listedKind))}
	before, err := p.during(ctx, func(ctx context.Context) error { return pause(ctx, quietFor/5) })
	if err != nil {
		return err
	}
	done := d.one.takeovers()
	var answers time.Duration
	after, err := p.during(ctx, func(ctx context.Context) error {
		began := time.Now()
		if err := change(); err != nil {
			return err
		}
		if err := until(ctx, time.Minute, "another process to answer", func() (bool, error) { return d.one.takeovers() > done, nil }); err != nil {
			return err
		}
		answers = time.Since(began)
		return pause(ctx, afterUpgrade)
	})
	if err != nil {
		return err
	}
	d.felt.add(name, 0, float64(answers.Milliseconds()))
	for i := range probedDoors {
		d.felt.add(name, feltColumn(i, feltTail), after[i].quantile(0.99))
		d.felt.add(name, feltColumn(i, feltMax), after[i].quantile(1))
		d.felt.add(name+quietRow, feltColumn(i, feltTail), before[i].quantile(0.99))
		d.felt.add(name+quietRow, feltColumn(i, feltMax), before[i].quantile(1))
	}
	return nil
}

// takeovers is how many processes have taken over, as the log says.
func (w *watched) takeovers() int {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte(`msg="another process answers`))
}

// mostPause is the goal: the longest answer, in ms.
const mostPause = 200

func (d *upgradeDoor) goals() (goals []goal) {
	for _, name := range []string{upgradeSignal, upgradeConfig} {
		for i, door := range probedDoors {
			cells := d.felt.cells(name, feltColumn(i, feltMax))
			goals = append(goals, atMost(name+": "+door+", the longest of all", mostPause, "ms", cells.quantile(1), len(cells) > 0))
		}
		cells := d.felt.cells(name, 0)
		goals = append(goals, goal{what: name + ": take-overs without a failed probe", want: strconv.Itoa(d.rounds * upgradesPerRound), measured: strconv.Itoa(len(cells)), met: len(cells) == d.rounds*upgradesPerRound})
	}
	return goals
}

func (d *upgradeDoor) tables() []*table { return []*table{&d.felt} }

// freshMilter is the milter's answer to a new connection.
func (p *probes) freshMilter() (time.Duration, error) {
	began := time.Now()
	t, err := dialMilter(net.Dialer{}, p.w.milter)
	if err != nil {
		return 0, err
	}
	defer t.conn.Close()
	if _, _, err := t.mail(probesListed, milterContinue); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}
