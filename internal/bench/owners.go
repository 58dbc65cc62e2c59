package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// ownersRun measures entries of recipients: a list of many owners, what it costs to build, to serve and to change, and owners that change
// their own by HTTP (docs/recipients.md).
type ownersRun struct {
	scale
	temp string
	live int // owners that change their own

	dir, program, config, socket string
	client                       *http.Client
	pid                          int
	stop                         func()
	goals                        []goal
}

// The goals of docs/recipients.md.
const (
	ownedEach     = 20 // entries of an owner
	ownersClients = 64 // connections of panels at once
	ownersFiles   = 256
)

func newOwnersCommand() *command {
	o := &ownersRun{}
	c := newCommand("bench owners", &o.scale)
	c.flags.IntVar(&o.n, "n", 1_000_000, "`owners` with 20 entries each")
	c.flags.IntVar(&o.live, "live", 200_000, "`owners` that change their own by HTTP")
	c.flags.StringVar(&o.temp, "temp", "", "`folder` for temporary files, 3 KB an owner (default the system's)")
	c.within = func() bool { return o.n >= 1000 && o.live >= 100 }
	c.bounds = "-n of 1000 or more, -live of 100 or more"
	c.measure = o.measure
	return c
}

const blockdOwnersConfig = `
[index]
path = %q
[http]
listen = ""
socket = %q
max_rate = 0
[[list]]
name = "users"
path = %q
format = "csv:entry"
per_recipient = true
[smtp]
listen = %q
upstream = "maildir:%s"
[milter]
listen = ""
[postfix]
policy_listen = ""
`

func (o *ownersRun) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	p, on := newProgress(stderr), describeMachine()
	if o.dir, err = os.MkdirTemp(o.temp, "blockd-bench-owners-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	o.program, o.config, o.socket = filepath.Join(o.dir, "blockd"), filepath.Join(o.dir, "blockd.toml"), filepath.Join(o.dir, "http.sock")
	build := exec.CommandContext(ctx, "go", "build", "-o", o.program, "./cmd/blockd")
	build.Dir = o.root
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	door, err := freeAddress() // one must be open
	if err != nil {
		return err
	}
	config := fmt.Sprintf(blockdOwnersConfig, filepath.Join(o.dir, "lists.bdx"), o.socket, filepath.Join(o.dir, "users", "*.csv"), door, filepath.Join(o.dir, "mail"))
	if err := os.WriteFile(o.config, []byte(config), 0o644); err != nil {
		return err
	}
	o.stop = func() {}
	defer func() { o.stop() }()
	o.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ownersClients, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
	}}}
	defer o.client.CloseIdleConnections()
	p.say("list of " + grouped(o.n) + " owners")
	if err := o.write(); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"compile", o.compile}, {"serve and ask", o.serve}, {"change a row", o.changeRow}, {"change by HTTP", o.changeByHTTP}} {
		p.say(step.name)
		if err := step.do(ctx); err != nil {
			if o.pid != 0 {
				log, _ := os.ReadFile(o.config + ".log")
				err = fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2000):])
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s owners with %d entries each\n\n%s. Load average %s before and %s after.\n\n", grouped(o.n), ownedEach, on, on.load, loadAverage())
	b.WriteString("| what | goal | measured | |\n| --- | --- | --- | --- |\n")
	for _, g := range o.goals {
		word := "met"
		if !g.met {
			word = "not met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.what, g.want, g.measured, word)
	}
	return section{mark: fmt.Sprintf("bench owners -n %d", o.n), target: "bench-owners", text: b.String()}.publish(o.docs, stdout)
}

func (o *ownersRun) goal(what string, want float64, unit string, measured float64) {
	o.goals = append(o.goals, atMost(what, want, unit, measured, true))
}

func ownerName(i int) string { return fmt.Sprintf("user%d@here%d.example", i, i%1000) }

func ownedSender(owner, n int) string {
	return fmt.Sprintf("promo%d@bulk%d.example", n, (owner*31+n)%100_000)
}

func (o *ownersRun) file(i int) string {
	return filepath.Join(o.dir, "users", fmt.Sprintf("%03d.csv", i))
}

// write writes the list: some hundred files, each with the owners of a part.
func (o *ownersRun) write() error {
	if err := os.Mkdir(filepath.Join(o.dir, "users"), 0o755); err != nil {
		return err
	}
	each := (o.n + ownersFiles - 1) / ownersFiles
	for file := range ownersFiles {
		if err := o.writeFile(file, each, ""); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file of owners, and more at its end.
func (o *ownersRun) writeFile(file, each int, more string) error {
	f, err := os.Create(o.file(file) + ".new")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	w.WriteString("owner,entry,action,reason\n")
	for owner := file * each; owner < min((file+1)*each, o.n); owner++ {
		name := ownerName(owner)
		for n := range ownedEach {
			fmt.Fprintf(w, "%s,%s,block,\n", name, ownedSender(owner, n))
		}
	}
	w.WriteString(more)
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), o.file(file))
}

func (o *ownersRun) compile(ctx context.Context) error {
	took, err := program{args: []string{o.program, "compile", "-c", o.config}}.run(ctx)
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(o.dir, "lists.bdx"))
	if err != nil {
		return err
	}
	o.goal("compile, nothing cached", 12, "s", took.seconds)
	o.goal("index file", 2048, "MiB", float64(info.Size())/(1<<20))
	return nil
}

// asked is what is read of an answer.
type asked struct {
	Verdict string `json:"verdict"`
	Matches []struct {
		Owner string `json:"owner"`
	} `json:"matches"`
}

func (o *ownersRun) ask(ctx context.Context, sender, recipient string) (a asked, err error) {
	text, err := request(ctx, o.client, http.MethodGet, "/v1/check?sender="+url.PathEscape(sender)+"&recipient="+url.PathEscape(recipient), nil)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// serve starts the daemon, asks for random pairs of senders and recipients, and looks at its memory.
func (o *ownersRun) serve(ctx context.Context) error {
	log, err := os.Create(o.config + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, o.program, "serve", "-c", o.config)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}
	o.pid = cmd.Process.Pid
	go cmd.Wait()
	o.stop = func() { cmd.Process.Signal(os.Interrupt) }
	if err := until(ctx, 2*time.Minute, "the daemon", func() (bool, error) {
		_, err := request(ctx, o.client, http.MethodGet, "/readyz", nil)
		return err == nil, nil
	}); err != nil {
		return err
	}
	rng, wrong := rand.New(rand.NewPCG(1, 2)), 0
	const questions = 50_000
	for range questions {
		owner, other := rng.IntN(o.n), rng.IntN(o.n)
		if rng.IntN(2) == 0 {
			other = owner
		}
		a, err := o.ask(ctx, ownedSender(owner, rng.IntN(ownedEach)), ownerName(other))
		if err != nil {
			return err
		}
		if (a.Verdict == "blocked") != (owner == other) || len(a.Matches) > 0 && a.Matches[0].Owner != ownerName(other) {
			wrong++
		}
	}
	o.goal(fmt.Sprintf("wrong answers of %s for random recipients", grouped(questions)), 0, "", float64(wrong))
	kib, err := anonymous(o.pid)
	if err != nil {
		return err
	}
	o.goal("memory of the daemon, without pages of files", 60, "MB", kib*1024/1e6)
	return nil
}

// changeRow adds a row to one of the files, and waits until it acts.
func (o *ownersRun) changeRow(ctx context.Context) error {
	var times series
	for n := range 5 {
		sender := fmt.Sprintf("new%d@fresh.example", n)
		if err := o.writeFile(n, (o.n+ownersFiles-1)/ownersFiles, fmt.Sprintf("%s,%s,block,\n", ownerName(0), sender)); err != nil {
			return err
		}
		began := time.Now()
		if err := until(ctx, 2*time.Minute, "a changed row", func() (bool, error) {
			a, err := o.ask(ctx, sender, ownerName(0))
			return a.Verdict == "blocked", err
		}); err != nil {
			return err
		}
		times = append(times, time.Since(began).Seconds())
	}
	o.goal(fmt.Sprintf("a changed row of %s acts after", grouped(o.n*ownedEach)), 1, "s", times.median())
	return nil
}

// changeByHTTP lets owners add an entry each, and asks for some of them at once.
func (o *ownersRun) changeByHTTP(ctx context.Context) error {
	all, running := errgroup.WithContext(ctx)
	next := make(chan int, ownersClients)
	all.Go(func() error {
		defer close(next)
		for i := range o.live {
			select {
			case next <- i:
			case <-running.Done():
				return running.Err()
			}
		}
		return nil
	})
	began := time.Now()
	for range ownersClients {
		all.Go(func() error {
			for i := range next {
				owner := ownerName(i)
				body := fmt.Appendf(nil, `{"entry":"live%d@fresh.example","why":"enough"}`, i)
				if text, err := request(running, o.client, http.MethodPost, "/v1/owners/"+owner+"/entries", body); err != nil || !bytes.Contains(text, []byte(`"added"`)) {
					return fmt.Errorf("%w: %s", err, text)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	g := atLeast(fmt.Sprintf("changes of %s owners by HTTP, %d connections", grouped(o.live), ownersClients), 2000, "a second", series{float64(o.live) / took})
	o.goals = append(o.goals, g)
	var times series
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		i, sender := rng.IntN(o.live), fmt.Sprintf("now%d@fresh.example", rng.Uint64())
		began := time.Now()
		if text, err := request(ctx, o.client, http.MethodPost, "/v1/owners/"+ownerName(i)+"/entries", fmt.Appendf(nil, `{"entry":%q}`, sender)); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		a, err := o.ask(ctx, sender, ownerName(i))
		if err != nil || a.Verdict != "blocked" {
			return fmt.Errorf("a live entry of %s does not act: %q, %w", ownerName(i), a.Verdict, err)
		}
		times = append(times, time.Since(began).Seconds())
		if a, err = o.ask(ctx, sender, ownerName((i+1)%o.live)); err != nil || a.Verdict != "clear" {
			return fmt.Errorf("a live entry of %s acts for another: %q, %w", ownerName(i), a.Verdict, err)
		}
	}
	o.goal("a live entry acts after, with the request that makes it and the one that asks", 1, "s", math.Ceil(times.median()*1e4)/1e4)
	return nil
}
