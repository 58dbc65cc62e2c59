// Package daemon builds the parts of `blockd serve` from a configuration, and runs them.
package daemon

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/carried"
	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/httpapi"
	"blockd/doors/keptfilter"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/listener"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/ask"
	"blockd/policy/junk"
	"blockd/policy/rule"
	"blockd/records/audit"
	"blockd/records/bell"
	"blockd/records/correspondents"
	"blockd/records/firstseen"
	"blockd/records/history"
	"blockd/records/letter"
	"blockd/records/pause"
	"blockd/records/repeat"
	"blockd/records/rollup"
	"blockd/reload"
	"blockd/sources/mirror"
	"blockd/sources/remote"
	"blockd/sources/snapshot"
)

// daemon is what runs. Each part is given the parts that it uses.
type daemon struct {
	config   config.Config // of the start, for what is made once
	setup    setup
	builder  []string // see Run
	hostname string   // in greetings and Received fields
	log      *slog.Logger
	metrics  *carried.Registry

	recent     *reload.Recent
	pauses     *pause.Set
	kept       *kept.Store
	audit      *audit.Log // nil: no journal is kept
	entries    *live.Set  // nil: there are no live entries
	roster     reporting
	shared     *shared.Node        // nil: they are of this machine alone
	past       *history.Log        // nil: no history is kept
	domains    *firstseen.Set      // that have sent mail; nil: they are not remembered
	partners   *correspondents.Set // nil: they cannot be opened
	junk       *junk.Desk
	lists      *reload.Reloader
	filters    *keptfilter.Keeper
	fetcher    *remote.Fetcher
	sources    *mirror.Keeper
	aliases    *rule.Book
	aliasFault atomic.Pointer[string] // why they cannot be read; nil = they can
	node       *snapshot.Node         // nil: no snapshots are taken
	taken      chan struct{}          // holds one value while a snapshot waits to be brought into service
	asked      *ask.Sets
	events     *httpapi.Events
	charts     *rollup.Table
	checks     atomic.Pointer[httpapi.Server] // counts the questions over HTTP; nil: there is no such door
	repeats    *repeat.Table
	checker    *policy.Checker
	resolver   *msgauth.Resolver
	copies     *spool.Store // of messages that are to prove something
	bell       *bell.Bell   // nil: nobody is told

	diary      *letter.Diary   // of how lists are loaded
	courier    *letter.Courier // nil: nobody gets a letter
	postman    Postman
	gathering  chan struct{}  // has one while a letter is made
	own        ownConnections // by which letters go out
	publishing publishing

	upgrade upgrading

	sockets                                         sockets
	smtp, http, milter, postfix, dns, health, relay door
	resp                                            respDoor
	receipts                                        receipts
	strangers                                       []*listener.Strangers // of the doors that have allow_from
	aside                                           aside                 // what the SMTP filter has put into quarantine
	locks                                           []func()              // each returns if nothing holds the locks of a part for good
}

// Started is what a daemon has begun with.
type Started struct {
	SMTP, HTTP []net.Listener
	Lists      reload.Status
}

// Run runs the daemon until ctx ends, and calls started when its doors are open. Its log
// is written to w. c was read from the file at path, which SIGHUP and POST /v1/reload read again. builder has the
// arguments by which this program, started again, calls builder.Serve; without any, indexes are built in this process.
// program is what SIGUSR2 starts.
// If another process has taken over and no init system was told of it, Run waits for that one's end too.
func Run(ctx context.Context, path string, c config.Config, w io.Writer, builder []string, program Program, started func(Started)) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR2) // from here on they do not end the process
	defer signal.Stop(signals)
	stopped := stopped{}
	to, err := run(ctx, signals, stopped, path, c, w, builder, program, started)
	if err != nil || to == nil {
		return err
	}
	debug.FreeOSMemory() // nothing is needed any more
	return keep(ctx, signals, to, stopped)
}

// run is Run until the last session has ended. It returns the process that is to be kept, if any.
func run(ctx context.Context, signals <-chan os.Signal, stopped stopped, path string, c config.Config, w io.Writer, builder []string, program Program,
	started func(Started)) (keeps *upgrade.Successor, err error) {
	defer runtime.KeepAlive(ballast())
	d := &daemon{config: c, builder: builder, metrics: carried.NewRegistry()}
	d.setup.path = path
	d.setup.run(c)
	d.log = newLog(w, c.Log, &d.setup.level)
	if names := config.Variables(); len(names) > 0 {
		d.log.Info("set by the environment", slog.Any("variables", names))
	}
	for _, text := range c.Warnings() {
		d.log.Warn("configuration", slog.String("warning", text))
	}
	signal.Ignore(syscall.SIGPIPE) // a log reader that dies must not take the daemon along
	d.hostname = wireName(cmp.Or(c.SMTP.Hostname, config.MachineName()), d.log)
	d.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	d.audit = c.Journal()
	d.upgrade.program, d.upgrade.stopped, d.upgrade.orphaned = program, stopped, make(chan struct{})
	d.upgrade.began, _ = os.Stat(program.Path) // if that fails, SIGUSR2 says why
	defer d.close()
	if err := d.inheritSockets(); err != nil {
		return nil, err
	}
	if p := d.upgrade.predecessor; p != nil {
		defer func() {
			if err != nil {
				p.Fail(err) // if it is still to be told
			}
		}()
		if err := p.Want(upgrade.Lists); err != nil {
			return nil, err
		}
	}
	if err := d.openSnapshots(ctx); err != nil {
		return nil, err
	}
	if err := d.openReceiptKey(); err != nil {
		return nil, err
	}
	if err := d.openLists(ctx); err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	d.openReport()
	d.openRoster()
	if err := d.openDoors(ctx); err != nil {
		return nil, err
	}
	if err := d.openBell(); err != nil {
		return nil, err
	}
	if err := d.upgrade.ready(ctx, d); err != nil { // if it is ready, clients wait in the sockets until begin
		return nil, err
	}
	started(Started{d.smtp.listeners, d.http.listeners, d.lists.Status()})
	d.begin(ctx, g, signals)
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err = <-ended:
	case <-d.upgrade.orphaned:
		err = errOrphaned
	}
	d.repeats.Flush(d.log, d.past.Add) // written by past.Close
	d.upgrade.farewell(d)
	if err != nil {
		return nil, err
	}
	d.log.Info("stopped")
	if _, to := d.upgrade.hasYielded(); to != nil && d.upgrade.predecessor == nil && !supervised() {
		return to, nil
	}
	return nil, nil
}

// begin begins the work of all parts.
func (d *daemon) begin(ctx context.Context, g *errgroup.Group, signals <-chan os.Signal) {
	// The doors end with ctx. HTTP stays until SMTP has drained: somebody may be watching. What the doors need lasts as long
	// as any of them. How they end when a successor answers in their place, see retire.
	doors, endDoors := context.WithCancel(ctx)
	smtp, endSMTP := context.WithCancel(ctx)
	others, endOthers := context.WithCancel(ctx)
	http, endHTTP := context.WithCancel(context.WithoutCancel(ctx))
	last, endLast := context.WithCancel(context.WithoutCancel(ctx))
	d.upgrade.handedOver = func() {
		endDoors()
		g.Go(func() error {
			d.retire(ctx, func() { endOthers(); endHTTP() })
			endSMTP()
			return nil
		})
		g.Go(func() error { return d.upgrade.outlive(last, ctx) })
	}
	systemd := supervisor{d.log}
	go systemd.watch(last, func() {
		for _, pass := range d.locks {
			pass()
		}
	})
	systemd.ready()
	run := func(ctx context.Context, parts ...func(context.Context) error) {
		for _, part := range parts {
			g.Go(func() error { return part(ctx) })
		}
	}
	d.upgrade.readers.begin(last, g, d.filters.Run, d.fetcher.Run, d.sources.Run, d.node.Run, d.publish)
	d.upgrade.writers.begin(last, g,
		func(ctx context.Context) error {
			if d.entries == nil {
				return nil
			}
			return d.entries.Run(ctx, d.log)
		},
		d.shared.Run,
		d.runReports,
		d.runBrake,
		func(ctx context.Context) error { return d.domains.Run(ctx, d.log) },
		func(ctx context.Context) error { return d.partners.Run(ctx, d.log) },
		func(ctx context.Context) error { return d.recent.Keep(ctx, d.config.RecentPath(), d.log) },
		func(ctx context.Context) error { return d.checker.Hits().Keep(ctx, d.config.HitsPath(), d.log) },
		d.runCharts,
		func(last context.Context) error { return d.runBell(last, ctx) },
		func(last context.Context) error { return d.runReport(last, ctx) })
	var open sync.WaitGroup
	for _, door := range []func(context.Context) error{d.milter.run, d.dns.run, d.postfix.run,
		func(context.Context) error { return d.resp.run(others) },
		func(context.Context) error {
			defer endHTTP()
			return d.smtp.run(smtp)
		},
		func(context.Context) error { return d.http.run(http) },
		func(context.Context) error { return d.receipts.run(others) },
		func(context.Context) error { return d.relay.run(others) },
		func(context.Context) error { return d.health.run(http) }, // says until the last that nothing new is wanted
		func(context.Context) error { return d.upgrade.followPredecessor(ctx, d) },
	} {
		open.Add(1)
		g.Go(func() error {
			defer open.Done()
			return door(doors)
		})
	}
	g.Go(func() error {
		open.Wait()
		endLast()
		return nil
	})
	run(last, d.lists.Run, d.keepAsked, d.followSnapshots,
		func(ctx context.Context) error { return d.aside.watch(ctx, d.log) },
		func(ctx context.Context) error { return d.past.Run(ctx, d.log) },
		func(ctx context.Context) error { return d.pauses.Run(ctx, d.log) },
		func(ctx context.Context) error { return d.repeats.Run(ctx, d.log, d.past.Add) },
		func(ctx context.Context) error {
			d.refusals(ctx) // so that no reload waits for the first look; what goes wrong, that one says
			return nil
		},
		d.upgrade.keepUp(d))
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

// close closes what is open, also of a daemon that could not begin.
func (d *daemon) close() {
	d.sockets.close()
	for _, door := range []*door{&d.health, &d.relay, &d.receipts.door, &d.resp.door, &d.dns, &d.postfix, &d.milter, &d.http, &d.smtp} {
		door.close()
	}
	d.past.Close()
	// The milter and the policy service may have ended after the SMTP filter, and so after d.domains.Run.
	if err := d.domains.Save(); err != nil {
		d.log.Error("the domains seen first are not kept for the next start", slog.Any("error", err))
	}
	d.domains.Close()
	if err := d.partners.Save(); err != nil {
		d.log.Error("correspondents are not kept for the next start", slog.Any("error", err))
	}
	d.partners.Close()
	d.shared.Close()
	if d.entries != nil {
		d.entries.Close()
	}
	CloseAsked(d.asked)
}

// level is the least that is logged.
func level(c config.Log) (l slog.Level) {
	if err := l.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo // Validate knows the words
	}
	return l
}

// newLog returns the log of [log], whose level is least's.
func newLog(w io.Writer, c config.Log, least *slog.LevelVar) *slog.Logger {
	least.Set(level(c))
	if o := (&slog.HandlerOptions{Level: least}); c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	} else {
		return slog.New(slog.NewTextHandler(w, o))
	}
}

// wireName is a host's name as greetings and Received fields may hold it: lower
// case, in A-form. What the system calls itself need not be a domain name.
func wireName(name string, log *slog.Logger) string {
	key, err := addr.DomainKey(name)
	if err != nil {
		log.Warn("the machine's name is no domain name; set smtp.hostname", slog.Any("error", err), slog.String("instead", "localhost"))
		return "localhost"
	}
	return key.Text
}

// ballastOctets is how much is allocated and never touched, so that it takes no memory.
// The collector starts when the heap has doubled, but not below 4 MB, of which a daemon
// with a small heap has filled 3 with every 150 messages; its cycles were some 8 % of a
// mail's CPU. With this there are 9 MB between two of them, which is 6 MB more of memory
// (docs/decisions/0021-ballast.md).
const ballastOctets = 8 << 20

// ballast returns what must be kept alive for as long as the collector is to wait.
func ballast() []byte { return make([]byte, ballastOctets) }
