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
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/carried"
	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/httpapi"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/ask"
	"blockd/records/audit"
	"blockd/records/bell"
	"blockd/records/correspondents"
	"blockd/records/history"
	"blockd/records/repeat"
	"blockd/records/rollup"
	"blockd/reload"
	"blockd/sources/mirror"
	"blockd/sources/snapshot"
)

// daemon is what runs: its parts, and what several of them use. What is behind a pointer is nil until its part has
// opened it, and for good where the configuration asks for none.
type daemon struct {
	config   config.Config // of the start, for what is made once
	setup    setup
	builder  []string // see Run
	hostname string   // in greetings and Received fields
	log      *slog.Logger
	metrics  *carried.Registry
	parts    []*part

	// What parts have to say to three of them, each before it is opened: the lists, the HTTP door, and the checker,
	// whose rules are in setup.
	toLists reload.Settings
	toHTTP  httpapi.Settings

	audit    *audit.Log
	entries  *live.Set
	shared   *shared.Node
	past     *history.Log
	partners *correspondents.Set
	lists    *reload.Reloader
	sources  *mirror.Keeper
	asked    *ask.Sets
	node     *snapshot.Node
	charts   *rollup.Table
	repeats  *repeat.Table
	checker  *policy.Checker
	resolver *msgauth.Resolver
	copies   *spool.Store                   // of messages that are to prove something
	checks   atomic.Pointer[httpapi.Server] // counts the questions over HTTP; nil: there is no such door
	fleet    *reporting
	taken    chan struct{}  // see openSnapshots
	key      *receipt.Key   // of references; nil: they are those of package reply
	own      ownConnections // by which letters go out

	upgrade upgrading
	sockets sockets
	smtp    smtpDoor
	aside   *aside // what the SMTP filter has put into quarantine
	http    []net.Listener
}

// order is what a daemon has. Each part is opened after those that it uses, and closed before them. A new one is a row
// here, and a file.
func order() []*part {
	return []*part{
		{name: bell.Fleet, open: openSnapshots},
		{name: bell.Configuration, open: openRules},
		{name: "receipts", open: openReceiptKey},
		{name: bell.Disk, open: openDisk},
		{name: "recent senders", open: openRecent},
		{name: "correspondents", open: openCorrespondents},
		{name: bell.Audit, open: openAudit},
		{name: bell.Pauses, open: openPauses},
		{name: bell.LiveEntries, open: openLive},
		{name: bell.LiveEntries, open: openShared},
		{name: "junk", open: openJunk},
		{name: bell.Filter, open: openFilters},
		{name: bell.Publish, open: openPublishing},
		{name: bell.Source, open: openSources},
		{name: "asked lists", open: openAsked},
		{name: bell.Aliases, open: openAliases},
		{name: "repeats", open: openRepeats},
		{name: bell.History, open: openHistory},
		{name: "past mail", open: openPastMail},
		{name: "fleet's lists", open: openFleetLists},
		{name: "letters", open: openReport},
		{name: bell.Lists, open: openReloader},
		{name: bell.Source, open: openFetcher},
		{name: "charts", open: openCharts},
		{name: "resolver", open: openResolver},
		{name: "first seen", open: openFirstSeen},
		{name: "checker", open: openChecker},
		{name: bell.Publish, open: openRoster},
		{name: "brake", open: openBrake},
		{name: "smtp", open: openSMTP},
		{name: bell.Quarantine, open: openQuarantine},
		{name: "http", open: openHTTP},
		{name: "milter", open: openMilter},
		{name: "postfix", open: openPostfix},
		{name: "resp", open: openRESP},
		{name: "dns", open: openDNS},
		{name: "receipts", open: openReceipts},
		{name: "relay", open: openRelay},
		{name: "health", open: openHealth},
		{name: "bell", open: openBell},
		{name: bell.Upgrade, open: openUpgrade},
		{name: "predecessor", open: openPredecessor},
	}
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
	d.setup.now.Store(&c)
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
	g, ctx := errgroup.WithContext(ctx)
	d.parts = order()
	if err := d.openParts(ctx); err != nil {
		return nil, err
	}
	if d.toHTTP.Person != nil {
		for _, p := range d.parts {
			if p.forget != nil {
				p.forget(d.toHTTP.Person)
			}
		}
	}
	if err := d.sockets.inherited.unused(); err != nil {
		return nil, err
	}
	if err := d.upgrade.ready(ctx, d); err != nil { // if it is ready, clients wait in the sockets until begin
		return nil, err
	}
	started(Started{d.smtp.listeners, d.http, d.lists.Status()})
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
