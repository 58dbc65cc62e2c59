package mirror

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// watched is a source each call of which ends: with its context, by an answer, after some time without a row, or by a
// panic, which becomes an error. A driver that goes on nevertheless is left alone, and not asked again before it
// has ended.
type watched struct {
	source Source
	busy   chan struct{} // closed when the last call has ended; nil = there was none
}

var (
	errSilent = errors.New("no answer")
	errStuck  = errors.New("the driver does not end an earlier read")
)

func (w *watched) Fingerprint(ctx context.Context) (string, error) {
	return call(ctx, w, greeting, func(ctx context.Context, _ *progress) (string, error) { return w.source.Fingerprint(ctx) })
}

func (w *watched) All(ctx context.Context, yield func(Row) error) (Mark, error) {
	return call(ctx, w, sorting, func(ctx context.Context, p *progress) (Mark, error) {
		return w.source.All(ctx, func(r Row) error { return p.pass(func() error { return yield(r) }) })
	})
}

func (w *watched) Changes(ctx context.Context, since Mark, yield func(Change) error) (Mark, error) {
	return call(ctx, w, silence, func(ctx context.Context, p *progress) (Mark, error) {
		return w.source.Changes(ctx, since, func(c Change) error { return p.pass(func() error { return yield(c) }) })
	})
}

func (w *watched) Wait(ctx context.Context) error {
	_, err := call(ctx, w, 0, func(ctx context.Context, _ *progress) (struct{}, error) { return struct{}{}, w.source.Wait(ctx) })
	return err
}

// close closes the source, in its own time.
func (w *watched) close() {
	go func() {
		defer func() { recover() }() // of a driver that has panicked before
		if w.busy != nil {
			<-w.busy
		}
		w.source.Close()
	}()
}

// progress counts the rows of a call, and ends their taking when the call was left alone.
type progress struct {
	mu   sync.Mutex
	rows int64
	over bool
}

func (p *progress) pass(take func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return context.Canceled
	}
	p.rows++
	return take()
}

func (p *progress) count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// call calls a driver. Without a row for so long it is ended; 0 = it may take as long as ctx.
func call[T any](ctx context.Context, w *watched, patience time.Duration, do func(context.Context, *progress) (T, error)) (T, error) {
	var none T
	if w.busy != nil {
		select {
		case <-w.busy:
		default:
			return none, &Error{ClassTimeout, errStuck}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &progress{}
	if patience > 0 {
		defer watch(p, patience, cancel)()
	}
	type answer struct {
		value T
		err   error
	}
	answered, busy := make(chan answer, 1), make(chan struct{})
	w.busy = busy
	go func() {
		a := answer{err: errors.New("the driver ended its goroutine")}
		defer func() {
			if r := recover(); r != nil {
				a.err = &Error{ClassQuery, fmt.Errorf("the driver has failed: %s", shown(r))}
			}
			close(busy) // first: who has the answer may call again
			answered <- a
		}()
		a.value, a.err = do(ctx, p)
	}()
	var a answer
	select {
	case a = <-answered:
		<-busy // which is closed by then, or in a moment
	case <-ctx.Done():
		select {
		case a = <-answered:
			<-busy
		case <-time.After(grace):
			p.end()
			a.err = ctx.Err()
		}
	}
	if a.err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return none, &Error{ClassTimeout, fmt.Errorf("%w for %s", errSilent, patience)}
	}
	return a.value, a.err
}

// watch cancels a call that makes no progress for some time. end ends the watch.
func watch(p *progress, patience time.Duration, cancel context.CancelCauseFunc) (end func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for last := int64(0); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := p.count()
			if now == last {
				cancel(errSilent)
				return
			}
			last = now
		}
	}()
	return func() { close(done) }
}

// shown is what may be said of a panic: a text of a driver could have a secret in it.
func shown(r any) string {
	if err, ok := r.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("it panicked with a %T", r)
}
