package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/internal/durable"
	"blockd/internal/term"
	"blockd/records/bell"
	"blockd/reload"
	"blockd/smtpfilter/upstream"
)

// state is how everything is, and what is wrong: /readyz and the bell know it from here alone.
func (d *daemon) state() (s reload.Status, all []bell.Problem) {
	s = d.lists.Status()
	for _, text := range s.Problems {
		p := bell.Problem{Name: bell.Lists, Text: text}
		if i := slices.IndexFunc(s.Refusals, func(r reload.Refusal) bool { return r.Text == text }); i >= 0 {
			p.Name, p.List = bell.ListRefused, s.Refusals[i].List
		}
		all = append(all, p)
	}
	for _, p := range d.parts {
		if p.problems == nil {
			continue
		}
		for _, problem := range p.problems() {
			problem.Name = cmp.Or(problem.Name, p.name)
			all = append(all, problem)
		}
	}
	if d.smtp.upstream == nil {
		return s, all
	}
	if err := d.smtp.upstream(); err != nil {
		all = append(all, bell.Problem{Name: bell.NextServer, Text: "smtp.upstream: " + err.Error()})
		if errors.Is(err, upstream.ErrOpenRelay) || errors.Is(err, upstream.ErrOwnListener) || errors.Is(err, upstream.ErrUntested) {
			s.Ready = false
		}
	}
	return s, all
}

// openDisk looks for disks on which no change can be written.
func openDisk(_ context.Context, d *daemon, p *part) error {
	p.problems = lines(func() []string { return roomProblems(d.config) })
	return nil
}

func roomProblems(c config.Config) (all []string) {
	told := map[string]bool{}
	for _, of := range []struct{ key, folder string }{
		{"index.path", filepath.Dir(c.Index.Path)},
		{"live.folder", c.LiveFolder()},
	} {
		free, full, err := durable.Room(of.folder)
		if err != nil || !full && free >= durable.LeastRoom || told[of.folder] {
			continue // a folder that is not there is its own problem
		}
		told[of.folder] = true
		all = append(all, fmt.Sprintf("%s: the disk of %s is full (%s free), and changes cannot be written: make room, or move it to a larger disk", of.key, of.folder, term.Octets(free)))
	}
	return all
}

// NewTarget is where notify.url leads.
func NewTarget(c config.Config) (*bell.Target, error) {
	s, err := c.Notify.Settings()
	if err != nil {
		return nil, err
	}
	s.Version = version.String()
	t, err := bell.NewTarget(s)
	if err != nil {
		return nil, fmt.Errorf("notify.url: %w", err)
	}
	return t, nil
}

// openBell makes what [notify] asks for. That the daemon stops is nothing to be woken for.
func openBell(_ context.Context, d *daemon, p *part) error {
	if d.config.Notify.URL == "" {
		return nil
	}
	target, err := NewTarget(d.config)
	if err != nil {
		return err
	}
	b := bell.New(target, d.config.NotifyPath(), d.hostname, version.String(), d.log, d.metrics)
	p.ends, p.alone = atStop, upgrade.Writes
	p.run = func(ctx context.Context) error {
		return b.Run(ctx, func() bell.State {
			status, problems := d.state()
			if !status.Ready && len(problems) == 0 {
				problems = append(problems, bell.Problem{Name: bell.NotReady, Text: status.Lacks()})
			}
			return bell.State{Ready: status.Ready, Problems: problems}
		})
	}
	return nil
}
