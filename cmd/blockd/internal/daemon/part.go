package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/forget"
	"blockd/index"
	"blockd/internal/certificate"
	"blockd/internal/listener"
	"blockd/records/bell"
)

// part is one thing that a daemon has: a store, what follows a source, a door. Its open makes it of the parts before
// it, and says what else there is to do with it. What is nil is not done.
type part struct {
	name string // of its problems, as package bell has it
	open func(ctx context.Context, d *daemon, p *part) error

	run   func(ctx context.Context) error // until ctx ends; its error ends the daemon
	ends  ending                          // when ctx ends
	alone upgrade.Stage                   // ends run when it is yielded, until it is taken back; 0: each process runs it

	// When another process begins, share leaves the building of lists to it and saves what it reads at its start. When
	// it is about to answer, yield gives up what one process alone may have, and resume takes that: there, or back if
	// it could not take over.
	share  func(ctx context.Context) error
	yield  func(to *upgrade.Successor) error
	resume func(ctx context.Context, back bool) error

	problems func() []bell.Problem // of /readyz, the bell and the letter; without a name they have the part's
	remarks  func() []string       // of /readyz alone
	served   func(*index.Index)    // is told of each generation that serves
	renew    func()                // looks now, since the configuration is read again
	lock     func()                // returns if nothing holds its locks for good
	forget   func(*forget.Places)  // says where it has something about people
	close    func()                // after the end of run, also where the daemon could not begin

	certificate *certificate.Pair // that a door shows; nil: no TLS
}

// ending is when a part ends.
type ending int

const (
	atLast   ending = iota // after all doors, which may need it
	atDoors                // with ctx, or when another process answers: takes no more clients then, and waits for them
	atOthers               // as atDoors, but lastQuestions later: clients that keep connections
	atSMTP                 // as atDoors, but when its sessions have ended, or the time of the drain is over
	atHTTP                 // after SMTP: somebody may be watching
	atStop                 // with ctx alone
	endings
)

// openParts opens all parts, in their order.
func (d *daemon) openParts(ctx context.Context) error {
	for _, p := range d.parts {
		if err := p.open(ctx, d, p); err != nil {
			return err
		}
	}
	return nil
}

// close closes all parts, also of a daemon that could not begin.
func (d *daemon) close() {
	d.sockets.close()
	for i := len(d.parts) - 1; i >= 0; i-- {
		if p := d.parts[i]; p.close != nil {
			p.close()
		}
	}
}

// passLocks returns if nothing holds a part's locks for good.
func (d *daemon) passLocks() {
	for _, p := range d.parts {
		if p.lock != nil {
			p.lock()
		}
	}
}

// begin begins the work of all parts.
func (d *daemon) begin(ctx context.Context, g *errgroup.Group, signals <-chan os.Signal) {
	// What the doors need lasts as long as any of them. How they end when a successor answers in their place, see
	// retire.
	var until [endings]context.Context
	var end [endings]context.CancelFunc
	for e := range endings {
		until[e], end[e] = context.WithCancel(ctx)
		if e == atLast || e == atHTTP {
			until[e], end[e] = context.WithCancel(context.WithoutCancel(ctx))
		}
	}
	last := until[atLast]
	d.upgrade.handedOver = func() {
		end[atDoors]()
		g.Go(func() error {
			d.retire(ctx, func() { end[atOthers](); end[atHTTP]() })
			end[atSMTP]()
			return nil
		})
		g.Go(func() error { return d.upgrade.outlive(last, ctx) })
	}
	systemd := supervisor{d.log}
	go systemd.watch(last, d.passLocks)
	systemd.ready()
	for _, what := range []upgrade.Stage{upgrade.Lists, upgrade.Writes} {
		var parts []func(context.Context) error
		for _, p := range d.parts {
			switch {
			case p.run == nil || p.alone != what:
			case p.ends == atStop:
				parts = append(parts, func(crew context.Context) error {
					crew, cancel := context.WithCancel(crew)
					defer cancel()
					defer context.AfterFunc(ctx, cancel)()
					return p.run(crew)
				})
			default:
				parts = append(parts, p.run)
			}
		}
		d.upgrade.crewOf(what).begin(last, g, parts)
	}
	var open sync.WaitGroup
	for _, p := range d.parts {
		if p.run == nil || p.alone != 0 {
			continue
		}
		if p.ends != atLast {
			open.Add(1)
		}
		g.Go(func() error {
			switch p.ends {
			case atLast:
				return p.run(last)
			case atSMTP:
				defer end[atHTTP]()
			}
			defer open.Done()
			if p.certificate != nil {
				go p.certificate.Watch(until[p.ends])
			}
			return p.run(until[p.ends])
		})
	}
	g.Go(func() error {
		open.Wait()
		end[atLast]()
		return nil
	})
	g.Go(func() error {
		for {
			select {
			case s := <-signals:
				d.signalled(ctx, s, systemd)
			case <-ctx.Done():
				d.log.Info("stopping")
				systemd.stopping()
				switch _, to := d.upgrade.hasYielded(); {
				case to == nil || supervised():
				case d.upgrade.predecessor == nil:
					d.upgrade.stopped.tell() // the one that we handed over to may have ended, and others not
				default:
					to.Signal(syscall.SIGTERM)
				}
				return nil
			case <-last.Done():
				return nil
			}
		}
	})
}

// crew are parts that end together and may begin again.
type crew struct {
	begun func()
	end   context.CancelFunc
	parts sync.WaitGroup
}

// begin begins parts, which end with ctx or stop. Their errors are g's.
func (c *crew) begin(ctx context.Context, g *errgroup.Group, parts []func(context.Context) error) {
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

// yield gives up what one process alone can have. Mail and questions are answered on, by what the other process makes
// of the lists and the live entries. What was opened last is given up first.
func (d *daemon) yield(ctx context.Context, what upgrade.Stage, to *upgrade.Successor) error {
	u := &d.upgrade
	u.mu.Lock()
	if u.following = true; what == upgrade.Writes {
		u.yielded = make(chan struct{})
	}
	u.mu.Unlock()
	u.crewOf(what).stop()
	return d.giveUp(ctx, what, to)
}

// giveUp is yield of what is no work.
func (d *daemon) giveUp(ctx context.Context, what upgrade.Stage, to *upgrade.Successor) (err error) {
	for i := len(d.parts) - 1; i >= 0; i-- {
		switch p := d.parts[i]; {
		case what == upgrade.Lists && p.share != nil:
			err = errors.Join(err, p.share(ctx))
		case what == upgrade.Writes && p.yield != nil:
			err = errors.Join(err, p.yield(to))
		}
	}
	return err
}

// resume takes what the predecessor has yielded, or takes back what this process has, as far as it can be had.
func (d *daemon) resume(ctx context.Context, back bool) (err error) {
	for _, p := range d.parts {
		if p.resume == nil {
			continue
		}
		if err = errors.Join(err, p.resume(ctx, back)); err != nil && !back {
			return err
		}
	}
	return err
}

// takeBack undoes yield, whatever there is to undo. What cannot be had back is an error; mail is filtered in any case.
func (d *daemon) takeBack() (err error) {
	u := &d.upgrade
	if yielded, _ := u.hasYielded(); yielded != nil {
		err = d.resume(context.Background(), true) // the daemon's end is not waited for
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

// How long another process may hold what is opened, and how often it is tried.
const (
	lockedFor  = 10 * time.Second
	retryEvery = 50 * time.Millisecond
)

// unlocked tries open for as long as another process may hold what it opens for a moment, as who adds an entry does.
func unlocked(ctx context.Context, locked error, open func() error) error {
	deadline := time.Now().Add(lockedFor)
	for {
		err := open()
		if !errors.Is(err, locked) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// lines makes problems of the part's name, a line each.
func lines(texts func() []string) func() []bell.Problem {
	return func() (all []bell.Problem) {
		for _, text := range texts() {
			all = append(all, bell.Problem{Text: text})
		}
		return all
	}
}

// turnAway makes the memory of the clients that a door turns away, whose table in the configuration is named so.
func (p *part) turnAway(table string, log *slog.Logger) *listener.Strangers {
	s := listener.NewStrangers(table, table+".allow_from", log)
	p.remarks = s.Remarks
	return s
}

// secure reads the pair that clients of a door are shown, which is key and the one after it in the
// configuration; nil without one. until and current are its metrics.
func (p *part) secure(key, certFile, keyFile string, until, current prometheus.GaugeOpts, reg prometheus.Registerer, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	pair, err := certificate.Open(certFile, keyFile, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	p.certificate, p.renew = pair, pair.Now
	reg.MustRegister(
		prometheus.NewGaugeFunc(until, func() float64 { return float64(pair.NotAfter().Unix()) }),
		prometheus.NewGaugeFunc(current, func() float64 {
			if pair.Failing() {
				return 0
			}
			return 1
		}))
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get}, nil
}
