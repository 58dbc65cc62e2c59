package builder

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"blockd/index"
)

// progressEvery is how often a child says how far it is.
const progressEvery = 500 * time.Millisecond

// Serve is the child's part: it builds what in asks for, answers to out, and returns. The
// process ends at once when in ends, for then its parent has died.
func Serve(in, out *os.File) error {
	if !fromParent(in) || !fromParent(out) {
		return errors.New("this is started by blockd serve, and by nobody else")
	}
	if err := send(out, answer{Version: version()}); err != nil {
		return err
	}
	var r request
	if err := receive(in, &r); err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	if r.Kept != nil {
		return serveKept(r, out)
	}
	made, err := serve(r, out)
	if err != nil {
		return send(out, answer{Fault: index.FaultOf(err)})
	}
	return send(out, answer{Made: made})
}

// serveKept does work on what is kept. It says that it lives, for it has no progress to tell.
func serveKept(r request, out io.Writer) error {
	if r.Version != version() {
		return send(out, answer{Fault: index.FaultOf(errOtherVersion)})
	}
	if !r.Urgent {
		gentle()
	}
	result, err := r.Kept.Do(context.Background())
	if err != nil {
		return send(out, answer{Fault: index.FaultOf(err)})
	}
	return send(out, answer{Kept: &result})
}

var errOtherVersion = errors.New("the program has another version than the one that it builds for")

func serve(r request, out io.Writer) (*index.Made, error) {
	if r.Version != version() {
		return nil, errOtherVersion
	}
	if !r.Urgent {
		gentle()
	}
	sources, err := r.sources()
	if err != nil {
		return nil, err
	}
	if r.Parse {
		for _, s := range sources {
			if err := index.ParseSegment(context.Background(), r.Options.Cache, s, 0); err != nil {
				return nil, err
			}
		}
		return &index.Made{}, nil
	}
	r.Options.Hold = map[int]error{}
	for row, why := range r.Hold {
		r.Options.Hold[row] = why.Err()
	}
	t := &teller{out: out}
	r.Options.Progress = t.note
	ctx, end := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() { t.run(ctx) })
	made, err := index.BuildAt(ctx, string(r.Path), string(r.Temp), sources, r.Options)
	end()
	telling.Wait()
	return made, err
}

// teller passes the latest progress on, now and then.
type teller struct {
	out io.Writer
	mu  sync.Mutex // guards now
	now index.Progress
}

func (t *teller) note(p index.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = p
}

func (t *teller) run(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		now := t.now
		t.mu.Unlock()
		if send(t.out, answer{Progress: &now}) != nil {
			return // the parent is gone, and this process soon
		}
	}
}
