package reload

import (
	"context"
	"time"
)

// most bounds every wait to so many quiet times: a file that is written without
// a pause is still read, and so is one beside which something else is.
const most = 10

// pace decides when to look. It knows nothing of files.
type pace struct {
	quiet, poll time.Duration

	due   func() bool                    // at every poll: is there a reason to look?
	moved func() bool                    // has anything changed since due, moved or look were last called?
	look  func(forced bool) (again bool) // again: a file was being written
}

// run looks once when nothing has happened for the quiet time, counted from the
// last event, or from the poll that found a change; at once when asked; and not
// for ever while things go on. It returns when ctx ends.
func (p pace) run(ctx context.Context, events, asked <-chan struct{}) {
	// What changed before anybody watched is found by a first look.
	timer, armed, deadline := time.NewTimer(p.quiet), true, time.Now().Add(most*p.quiet)
	defer timer.Stop()
	poll := time.NewTicker(p.poll)
	defer poll.Stop()
	polled := true // no event has armed the timer, so events may not come at all
	retries := 0
	arm := func(wait time.Duration) {
		if !armed {
			armed, deadline = true, time.Now().Add(most*p.quiet)
		}
		timer.Reset(min(wait, time.Until(deadline)))
	}
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-events:
			polled = false
			arm(p.quiet)
			continue
		case <-poll.C:
			if !armed && p.due() {
				polled = true
				arm(p.quiet)
			}
			continue
		case <-timer.C:
			if polled && time.Now().Before(deadline) && p.moved() {
				arm(p.quiet) // still being written, somewhere that has no events
				continue
			}
		case <-asked:
			forced = true
			timer.Stop()
		}
		armed = false
		if !p.look(forced) {
			retries = 0
			continue
		}
		retries = min(retries+1, 4) // 1, 2, 4 and 8 quiet times, then the bound
		polled = true
		arm(p.quiet << (retries - 1))
	}
}
