package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// door is one of blockd's front doors, with the servers that it is measured beside.
type door interface {
	// lacks says why it cannot be measured on this machine.
	lacks() error
	// start starts every server, with files in dir; one that is not installed is
	// named as missing.
	start(ctx context.Context, dir string, l *addresses) error
	// stop ends them. It may be called before start, and behind one that failed.
	stop()
	// round measures everything once, one server after the other.
	round(ctx context.Context) error
	// finish measures what one time is enough for, behind the rounds.
	finish(ctx context.Context, p progress) error

	tables() []*table // in the order of the document
	goals() []goal
	plot() (title string, panels []panel) // no panels = no plot
}

// doorSettings are those of every door's command.
type doorSettings struct {
	scale
	cache string // folder of list, cdb and index, which serve several runs
	temp  string // folder for the servers' files; "" = the system's
	kind  string // of what is listed
}

// files begins the names of files in the cache.
func (s *doorSettings) files() string {
	if s.kind == kindNumbered {
		return kindNumbered
	}
	return s.listed()
}

// listed is what the lists have, as files and headings call it.
func (s *doorSettings) listed() string {
	if s.kind == kindDomain {
		return "domains"
	}
	return "addresses"
}

// doorEntries is what a door's command lists: as many as the goals are set for.
const doorEntries = 10_000_000

// newDoorCommand is `bench WORD`. Title is what the section's heading calls the door.
func newDoorCommand(word, title string, rounds int, s *doorSettings, d door) *command {
	c := newCommand("bench "+word, &s.scale)
	s.kind = cmp.Or(s.kind, kindAddress)
	c.flags.IntVar(&s.n, "n", doorEntries, "`"+s.listed()+"` to list")
	c.flags.IntVar(&s.rounds, "rounds", rounds, "`rounds`, after one that does not count")
	c.flags.StringVar(&s.cache, "cache", "", "`folder` for list, cdb and index, 170 bytes an address (default blockd-bench in the user's cache)")
	c.measure = func(ctx context.Context, stdout, stderr io.Writer) error {
		return s.measure(ctx, d, word, title, stdout, stderr)
	}
	return c
}

func (s *doorSettings) measure(ctx context.Context, d door, word, title string, stdout, stderr io.Writer) error {
	p := newProgress(stderr)
	if err := searchSbin(); err != nil {
		return err
	}
	if err := d.lacks(); err != nil {
		return err
	}
	if s.cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		s.cache = filepath.Join(folder, "blockd-bench")
	}
	// Not below the user's own temporary folder: servers have users of their own.
	dir, err := os.MkdirTemp(s.temp, "blockd-bench-"+word+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	on := describeMachine()
	p.say("list and index of " + grouped(s.n) + " " + s.listed())
	l, err := makeAddresses(ctx, s, dir)
	if err != nil {
		return err
	}
	p.say("starting servers")
	defer d.stop()
	if err := d.start(ctx, dir, l); err != nil {
		return err
	}
	for round := range s.rounds + 1 {
		p.say(fmt.Sprintf("round %d of %d", round, s.rounds))
		if err := d.round(ctx); err != nil {
			return err
		}
		if round == 0 { // it has warmed up
			for _, t := range d.tables() {
				t.forget()
			}
		}
	}
	if err := d.finish(ctx, p); err != nil {
		return err
	}
	if err := s.section(d, word, title, on, time.Since(p.begun)).publish(s.docs, stdout); err != nil {
		return err
	}
	p.say("done")
	return nil
}

// section is what the document gets of a door.
func (s *doorSettings) section(d door, word, title string, on machine, took time.Duration) section {
	out := section{mark: fmt.Sprintf("bench %s -n %d", word, s.n), target: "bench-" + word}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s listed %s, %s\n\n", grouped(s.n), s.listed(), title)
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. The run took %.0f s.\n\n", on, on.load, loadAverage(), took.Seconds())
	if title, panels := d.plot(); len(panels) > 0 {
		out.image = fmt.Sprintf("performance-%s-%d.svg", word, s.n)
		out.plot = drawing(title, on.String()+". Medians; × is how many times blockd is better; logarithmic axes.", panels)
		fmt.Fprintf(&b, "![Bars of the tables below](%s)\n\n", out.image)
	}
	b.WriteString(goalsMarkdown(d.goals()))
	for _, t := range d.tables() {
		b.WriteString("\n" + t.markdown())
	}
	out.text = b.String()
	return out
}

// lackOf says which of programs is missing.
func lackOf(programs ...string) error {
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: it comes with Debian's package postfix", program)
		}
	}
	return nil
}
