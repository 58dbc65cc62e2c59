package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"blockd/cmd/blockd/internal/config"
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
	var aliases []string
	if fault := d.aliasFault.Load(); fault != nil {
		aliases = append(aliases, *fault)
	}
	for _, from := range []struct {
		name  string
		lines []string
	}{
		{bell.LiveEntries, append(d.entries.Problems(), d.shared.Problems()...)},
		{bell.Pauses, d.pauses.Problems()},
		{bell.Aliases, aliases},
		{bell.Filter, d.filters.Problems()},
		{bell.Disk, roomProblems(d.config)},
		{bell.History, d.past.Problems()},
	} {
		all = append(all, problemsOf(from.name, from.lines)...)
	}
	all = append(all, d.sourceProblems()...)
	for _, from := range []struct {
		name  string
		lines []string
	}{
		{bell.Configuration, d.configurationProblems()},
		{bell.Audit, d.auditProblems()},
		{bell.Fleet, d.node.Problems()},
		{bell.Publish, append(d.publishProblems(), d.rosterProblems()...)},
		{bell.Upgrade, d.upgrade.problems()},
		{bell.Quarantine, d.aside.problems()},
	} {
		all = append(all, problemsOf(from.name, from.lines)...)
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

// roomProblems are disks on which no change can be written.
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

func problemsOf(name string, lines []string) (all []bell.Problem) {
	for _, line := range lines {
		all = append(all, bell.Problem{Name: name, Text: line})
	}
	return all
}

// openBell makes what [notify] asks for.
func (d *daemon) openBell() error {
	if d.config.Notify.URL == "" {
		return nil
	}
	target, err := NewTarget(d.config)
	if err != nil {
		return err
	}
	d.bell = bell.New(target, d.config.NotifyPath(), d.hostname, version.String(), d.log, d.metrics)
	return nil
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

// runBell rings until ctx, or the daemon's, ends: that it stops is nothing to be woken for.
func (d *daemon) runBell(ctx, daemon context.Context) error {
	if d.bell == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(daemon, cancel)()
	return d.bell.Run(ctx, func() bell.State {
		status, problems := d.state()
		if !status.Ready && len(problems) == 0 {
			problems = append(problems, bell.Problem{Name: bell.NotReady, Text: status.Lacks()})
		}
		return bell.State{Ready: status.Ready, Problems: problems}
	})
}
