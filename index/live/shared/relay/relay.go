// Package relay lets a node learn of changes of shared live entries from other nodes, the relays, so that a database need not have a connection that
// listens for each node of a large fleet. Changes are made in the database itself, and everything is asked of it that no relay can say.
package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
)

// Poll is how often a node asks by itself, beside the questions that wait.
const Poll = 30 * time.Second

const (
	askLimit  = 10 * time.Second // of a question that does not wait
	waitFor   = 30 * time.Second // that a relay holds a question
	maxAnswer = 32 << 20
	freshFor  = time.Second // an answer to a question that waited, while it is handed on
)

// Engine asks relays, and its store for the rest. The methods of shared.Engine are as that says.
type Engine struct {
	shared.Engine
	relays []string
	token  func() (string, error)
	idle   func() // closes the connection to the store until it is needed again
	client http.Client
	ctx    context.Context // of questions that wait; Close ends it
	close  context.CancelFunc

	at    int           // the relay that answered last
	epoch string        // of what it says
	wrote uint64        // the highest revision of a change of this node
	up    bool          // the last question to a relay was answered
	last  atomic.Uint64 // the highest revision that was read

	mu      sync.Mutex
	got     *answer // of a question that waited
	pending chan error
}

type answer struct {
	shared.Changes
	since uint64
	came  time.Time
}

// New wraps the engine of a store. Relays are addresses of HTTP doors, which are asked in turn. idle may be nil.
func New(store shared.Engine, relays []string, token func() (string, error), idle func()) *Engine {
	if idle == nil {
		idle = func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{Engine: store, relays: relays, token: token, idle: idle, ctx: ctx, close: cancel, client: http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: askLimit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // the token goes to a relay alone
}

// ask asks one relay, which may hold the question for so long.
func (e *Engine) ask(ctx context.Context, relay string, since uint64, wait time.Duration) (a answer, err error) {
	token, err := e.token()
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit+wait)
	defer cancel()
	q := url.Values{"since": {strconv.FormatUint(since, 10)}, "wait": {strconv.Itoa(int(wait.Seconds()))}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(relay, "/")+"/v1/live/changes?"+q.Encode(), nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := e.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return a, fmt.Errorf("%s says %s: %.300q", relay, resp.Status, said)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&a.Changes)
	if err == nil {
		err = sound(&a.Changes, since)
	}
	a.since, a.came = since, time.Now()
	return a, err
}

// sound judges what a relay says: it may be of any version.
func sound(c *shared.Changes, since uint64) error {
	last := since
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Rev <= last || r.Rev > c.Rev {
			return errors.New("a relay gives revisions out of order")
		}
		last = r.Rev
	}
	if c.Epoch == "" || c.Now.IsZero() || c.More && len(c.Rows) == 0 {
		return errors.New("a relay does not say what was asked for")
	}
	return nil
}

// any asks the relays in turn, from the one that answered last.
func (e *Engine) any(ctx context.Context, since uint64) (a answer, err error) {
	for i := range e.relays {
		at := (e.at + i) % len(e.relays)
		var failed error
		if a, failed = e.ask(ctx, e.relays[at], since, 0); failed == nil {
			e.mu.Lock()
			e.at = at
			e.mu.Unlock()
			e.up = true
			return a, nil
		}
		err = errors.Join(err, failed)
	}
	e.up = false
	return a, err
}

// Changes asks a relay, and the store if that does not know: it is away, it is behind this node, or does not have old changes any more.
func (e *Engine) Changes(ctx context.Context, since uint64, most int) (p shared.Page, err error) {
	e.mu.Lock()
	a := e.got
	e.got = nil
	e.mu.Unlock()
	if a == nil || a.since != since || time.Since(a.came) > freshFor {
		asked, err := e.any(ctx, since)
		if a = &asked; err != nil {
			a = nil
		}
	}
	// Of another store than before the store itself tells: a relay may be of another fleet.
	if a == nil || a.TooOld || a.Rev < max(since, e.wrote) || e.epoch != "" && a.Epoch != e.epoch {
		if p, err = e.Engine.Changes(ctx, since, most); err == nil {
			e.epoch = p.Epoch
			e.last.Store(max(since, p.To))
			e.wrote = 0
		}
		if a != nil { // the store is not needed all the time
			e.idle()
		}
		return p, err
	}
	if e.epoch == "" {
		if s, err := e.Engine.State(ctx); err != nil {
			return p, err
		} else if e.epoch = s.Epoch; s.Epoch != a.Epoch {
			return e.Engine.Changes(ctx, since, most)
		}
		e.idle()
	}
	p = shared.Page{Epoch: a.Epoch, Rev: a.Rev, Now: a.Now.Add(time.Since(a.came)), Rows: a.Rows, More: a.More}
	if p.To = a.Rev; p.More {
		p.To = p.Rows[len(p.Rows)-1].Rev
	}
	e.last.Store(p.To)
	return p, nil
}

// State asks a relay what all come to.
func (e *Engine) State(ctx context.Context) (shared.State, error) {
	if a, err := e.any(ctx, 1<<63); err == nil && a.Epoch == e.epoch && a.Count >= 0 && a.Rev >= e.wrote {
		return shared.State{Epoch: a.Epoch, Rev: a.Rev, Now: a.Now, Count: a.Count, XOR: &a.XOR}, nil
	}
	defer e.idle()
	return e.Engine.State(ctx)
}

// Sweep is done by relays.
func (e *Engine) Sweep(ctx context.Context) error {
	if e.up {
		return nil
	}
	return e.Engine.Sweep(ctx)
}

// Write makes changes in the store.
func (e *Engine) Write(ctx context.Context, wants []live.Want, terms live.Terms) (shared.Written, error) {
	defer e.idle()
	w, err := e.Engine.Write(ctx, wants, terms)
	for _, g := range w.Given {
		if err == nil {
			e.wrote = max(e.wrote, g.Rev)
		}
	}
	return w, err
}

// All reads the store.
func (e *Engine) All(ctx context.Context, each func([]live.Row, []string) error) error {
	defer e.idle()
	return e.Engine.All(ctx, each)
}

// Report writes to the store.
func (e *Engine) Report(ctx context.Context, node string, report []byte, life time.Duration) error {
	defer e.idle()
	return e.Engine.Report(ctx, node, report, life)
}

// Reports reads the store.
func (e *Engine) Reports(ctx context.Context) (map[string][]byte, error) {
	defer e.idle()
	return e.Engine.Reports(ctx)
}

// Wait asks a relay to answer when there is more. The question goes on after ctx has ended.
func (e *Engine) Wait(ctx context.Context) error {
	e.mu.Lock()
	if e.pending == nil {
		pending, since, relay := make(chan error, 1), e.last.Load(), e.relays[e.at%len(e.relays)]
		e.pending = pending
		go func() {
			a, err := e.ask(e.ctx, relay, since, waitFor)
			if err == nil && a.Rev > since {
				e.mu.Lock()
				e.got = &a
				e.mu.Unlock()
			}
			pending <- err
		}()
	}
	pending := e.pending
	e.mu.Unlock()
	select {
	case err := <-pending:
		e.mu.Lock()
		e.pending = nil
		e.mu.Unlock()
		if err == nil {
			return nil
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// String names the store and the relays.
func (e *Engine) String() string {
	return e.Engine.String() + ", by " + strings.Join(e.relays, " ")
}

// Close ends the connections.
func (e *Engine) Close() {
	e.close()
	e.Engine.Close()
	e.client.CloseIdleConnections()
}

var _ shared.Engine = (*Engine)(nil)
