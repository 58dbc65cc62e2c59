package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/upgrade"
)

// followPredecessor takes over what the predecessor still decides, until the predecessor has ended: so each process
// ends after those before it. An init system tells this process alone to stop, and kills all others when it has ended.
// So this process tells its predecessor to stop, and waits for it. Where a keeper is the main process, the keeper
// tells all of them.
func (u *upgrading) followPredecessor(ctx context.Context, d *daemon) error {
	if u.predecessor == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		if !supervised() {
			u.predecessor.Close()
		} else if os.Getppid() == u.parent { // it is there
			syscall.Kill(u.parent, syscall.SIGTERM)
		}
	})
	defer stop()
	err := u.predecessor.Follow(upgrade.Follower{Lines: d.past.AddLines, Counters: d.addCounters, Conn: u.arrive})
	u.formerAre(0, d) // it ends after those before it
	switch {
	case err != nil:
		d.log.Error("what the process before decides is not known any more", slog.Any("error", err))
	case ctx.Err() == nil:
		d.log.Info("the process before has ended")
	}
	return nil
}

// firstLook is how long a new process waits for the next server before it takes over: without a look at it no mail
// passes. One that is away is as away for the old process.
const firstLook = 10 * time.Second

// ready tells the predecessor, if there is one, that this process answers from now on, and goes on from its counters.
func (u *upgrading) ready(ctx context.Context, d *daemon) error {
	if u.predecessor == nil {
		return nil
	}
	if d.smtp.look != nil {
		ctx, cancel := context.WithTimeout(ctx, firstLook)
		d.smtp.look(ctx)
		cancel()
	}
	if err := d.takeWrites(ctx); err != nil {
		return err
	}
	status := d.lists.Status()
	counters, err := u.predecessor.Ready(strings.Join(append([]string{status.Generation}, status.Told()...), "\n"))
	if err != nil {
		d.log.Error("the process before does not answer: its counters are not known", slog.Any("error", err))
	} else {
		d.addCounters(counters)
	}
	d.sockets.settle()
	return nil
}

// formerAre notes how many processes still end their sessions before this one, and tells its own successor at once:
// each process adds one to what the one before it has told, so that after quick changes a count which waits for
// tellEvery at each of them refuses the next change while two or three are left.
func (u *upgrading) formerAre(n int32, d *daemon) {
	if u.former.Swap(n) != n {
		u.tellCounters(d)
	}
}

func (d *daemon) addCounters(text []byte) {
	if len(text) == 0 { // the process before has ended
		return
	}
	var c counted
	err := json.Unmarshal(text, &c)
	if err == nil {
		err = errors.Join(d.metrics.Add([]byte(c.Metrics)), d.checker.Hits().Restore(c.Hits), d.charts.Join(c.Charts))
	}
	d.upgrade.formerAre(c.Former, d)
	if err != nil {
		d.log.Error("counters not taken over", slog.Any("error", err))
	}
}
