package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/upgrade"
	"blockd/index"
	"blockd/index/live"
	"blockd/records/firstseen"
	"blockd/records/history"
)

// crew are parts that end together and may begin again.
type crew struct {
	begun func()
	end   context.CancelFunc
	parts sync.WaitGroup
}

// begin begins parts, which end with ctx or stop. Their errors are g's.
func (c *crew) begin(ctx context.Context, g *errgroup.Group, parts ...func(context.Context) error) {
	c.begun = func() {
		ctx, cancel := context.WithCancel(ctx)
		c.end = cancel
		for _, part := range parts {
			c.parts.Add(1)
			g.Go(func() error {
				defer c.parts.Done()
				return part(ctx)
			})
		}
	}
	c.begun()
}

// stop ends the parts, and waits for that.
func (c *crew) stop() {
	c.end()
	c.parts.Wait()
}

// yield gives up what one process alone can have. Mail and questions are answered on, by what the other process makes of
// the lists and the live entries.
func (d *daemon) yield(ctx context.Context, what upgrade.Stage, to *upgrade.Successor) error {
	u := &d.upgrade
	if what == upgrade.Lists {
		u.mu.Lock()
		u.following = true
		u.mu.Unlock()
		u.readers.stop()
		d.lists.Follow(true)
		if err := index.WaitBuilt(ctx, d.config.Index.Path); err != nil { // what this process has begun to build
			return err
		}
		if err := d.recent.Save(d.config.RecentPath()); err != nil {
			d.log.Error("who wrote lately is not kept for the next process", slog.Any("error", err))
		}
		if err := d.partners.Save(); err != nil {
			d.log.Error("correspondents are not kept for the next process", slog.Any("error", err))
		}
		return nil
	}
	u.mu.Lock()
	u.yielded = make(chan struct{})
	u.mu.Unlock()
	u.writers.stop()
	var err error
	if d.entries != nil {
		err = d.entries.Yield()
	}
	err = errors.Join(err, d.past.Yield(to.Lines))
	if failed := d.partners.Yield(); failed != nil {
		d.log.Error("correspondents are not kept for the next process", slog.Any("error", failed))
	}
	if failed := d.domains.Yield(); failed != nil {
		d.log.Error("the domains seen first are not kept for the next process", slog.Any("error", failed))
	}
	return err
}

// takeWrites takes what the predecessor has yielded last.
func (d *daemon) takeWrites(ctx context.Context) (err error) {
	if err := d.upgrade.predecessor.Want(upgrade.Writes); err != nil {
		return err
	}
	if d.entries != nil { // somebody may hold them for a moment who adds one
		if err := unlocked(ctx, live.ErrLocked, d.entries.Resume); err != nil {
			return fmt.Errorf("live entries: %w", err)
		}
	}
	if err := unlocked(ctx, history.ErrLocked, d.past.Resume); err != nil {
		d.log.Error("no history is kept", slog.Any("error", err))
	}
	d.resumeCorrespondents(ctx)
	if d.domains, err = d.openFirstSeen(ctx); err != nil {
		return err
	}
	rules := *d.setup.rules.Load()
	rules.FirstSeen.Domains = d.domains
	d.setup.rules.Store(&rules)
	d.checker.Renew(rules)
	return nil
}

// takeBack undoes yield, whatever there is to undo. What cannot be had back is an error; mail is filtered in any case.
func (d *daemon) takeBack() (err error) {
	u := &d.upgrade
	if yielded, _ := u.hasYielded(); yielded != nil {
		// Somebody may hold a folder for a moment, as who adds an entry while nobody has them. The daemon's end is not waited for.
		if d.entries != nil {
			err = unlocked(context.Background(), live.ErrLocked, d.entries.Resume)
		}
		err = errors.Join(err, unlocked(context.Background(), history.ErrLocked, d.past.Resume), unlocked(context.Background(), firstseen.ErrLocked, d.domains.Resume))
		d.resumeCorrespondents(context.Background())
		u.writers.begun()
		u.decide(nil)
	}
	u.mu.Lock()
	following := u.following
	u.following = false
	u.mu.Unlock()
	if following {
		d.lists.Follow(false)
		u.readers.begun()
	}
	return err
}
