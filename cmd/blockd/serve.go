package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"blockd/addr"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/reload"
	"blockd/repeat"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve [-c config.toml]",
		Short: "filter mail by the lists",
		Long: `Filter mail: refuse listed senders, pass everything else on to the next server.
A list file that changes is taken up by itself, without a session noticing.

SIGTERM or SIGINT ends it: transactions under way may finish; a second signal ends
it at once. SIGHUP reads all lists now, and asks the
servers of remote ones. The log goes to standard error.`,
		Example: `  blockd serve
  blockd serve -c /etc/blockd/config.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadToServe(path)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, func() { time.AfterFunc(signalPair, stop) })
			return serve(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// signalPair is how long further signals count as the first: timeout(1), make
// and others signal a process and then its group. Later ones find their default,
// which ends the process at once.
const signalPair = 500 * time.Millisecond

// serve runs the daemon until ctx ends. What it needs is made in the order of
// these lines, and each part is given what it uses.
func serve(ctx context.Context, c config.Config, stdout, stderr io.Writer) error {
	defer runtime.KeepAlive(ballast())
	log := newLog(stderr, c.Log)
	for _, text := range c.Warnings() {
		log.Warn("configuration", slog.String("warning", text))
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // from here on it does not end the process
	defer signal.Stop(hup)
	signal.Ignore(syscall.SIGPIPE) // a log reader that dies must not take the daemon along
	hostname := wireName(cmp.Or(c.SMTP.Hostname, config.MachineName()), log)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	if err := makeIndexFolder(c); err != nil {
		return err
	}
	recent := reload.OpenRecent(c.RecentPath(), c.Index.Recent, log)
	listSettings := c.Reload()
	verdicts := c.Policy()
	listSettings.Recent, listSettings.Blocks = recent, verdicts.Blocks
	entries, err := openLive(ctx, c, reg, log)
	if err != nil {
		return fmt.Errorf("live entries: %w", err)
	}
	if entries != nil {
		defer entries.Close()
		verdicts.Live, listSettings.Renew, listSettings.Served = entries, renew(entries, log), entries.Served
	}
	past, err := openHistory(c, reg, log)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	defer past.Close()
	if past != nil {
		listSettings.Judge, listSettings.Refusals = verdicts.Judge(), refusals(c, past)
	}
	lists, err := reload.Open(ctx, listSettings, log, reg)
	if err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	copies, err := newFetcher(c, log, reg)
	if err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	events := httpapi.NewEvents()
	verdicts.Completed, verdicts.Wants, verdicts.History, verdicts.Decided = recent.Add, recent.Wants, past, events.Add
	if verdicts.Auth.Resolver, err = observedResolver(c.Auth, reg); err != nil {
		return err
	}
	repeats := repeat.NewTable()
	if err := repeats.Register(reg); err != nil {
		return err
	}
	verdicts.Repeats = repeats
	checker := policy.New(lists.Live, verdicts, log, reg)

	inherited, err := inherit()
	if err != nil {
		return err
	}
	defer inherited.close()
	g, ctx := errgroup.WithContext(ctx)
	messages := messageCopies(c)
	smtp, err := openSMTP(ctx, c, hostname, inherited, checker.At("smtp"), messages, reg, log)
	if err != nil {
		return err
	}
	defer smtp.close()
	http, err := openHTTP(ctx, c, inherited, checker, entries, past, events, readiness(ctx, lists, smtp, entries, past), reg, log)
	if err != nil {
		return err
	}
	defer http.close()
	milter, err := openMilter(ctx, c, inherited, checker.At("milter"), messages, reg, log)
	if err != nil {
		return err
	}
	defer milter.close()
	postfix, err := openPostfix(ctx, c, inherited, checker, reg, log)
	if err != nil {
		return err
	}
	defer postfix.close()
	if err := inherited.unused(); err != nil {
		return err
	}

	if term.IsTerminal(stdout) {
		greet(stdout, c, smtp, http, lists.Status())
	}
	late, endLate := context.WithCancel(context.WithoutCancel(ctx))
	defer endLate()
	systemd := supervisor{log}
	go systemd.watch(late, func() { lists.Status(); smtp.alive(); milter.alive() })
	systemd.ready()
	g.Go(func() error { return past.Run(late, log) })
	g.Go(func() error {
		refusals(c, past)(ctx) // so that no reload waits for the first look; what goes wrong, that one says
		return nil
	})
	g.Go(func() error { return repeats.Run(late, log, past.Add) })
	g.Go(func() error { return recent.Keep(late, c.RecentPath(), log) })
	g.Go(func() error { return lists.Run(ctx) })
	g.Go(func() error { return copies.Run(ctx) })
	if entries != nil {
		g.Go(func() error { return entries.Run(ctx, log) })
	}
	g.Go(func() error {
		defer endLate() // HTTP stays until SMTP has drained: somebody may be watching
		return smtp.serve(ctx)
	})
	g.Go(func() error { return milter.serve(ctx) })
	g.Go(func() error { return postfix.serve(ctx) })
	g.Go(func() error { return http.serve(late) })
	g.Go(func() error {
		for {
			select {
			case <-hup:
				copies.Now()
				smtp.reload()
				http.reload()
				asked := time.Now()
				lists.Now()
				go systemd.reloading(ctx, func() bool { return lists.Status().LastAttempt.After(asked) })
			case <-ctx.Done():
				log.Info("stopping")
				systemd.stopping()
				return nil
			}
		}
	})
	err = g.Wait()
	repeats.Flush(log, past.Add) // written by past.Close
	if err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// newLog returns the log of [log].
func newLog(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // Validate knows the words
	}
	if o := (&slog.HandlerOptions{Level: level}); c.Format == "json" {
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
