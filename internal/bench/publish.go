package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// publishRun measures a fleet's publisher and one of its nodes, as programs: a list that is published for the first time, then with one of a
// thousand entries changed (docs/fleet.md).
type publishRun struct {
	scale
	temp string

	dir, program, config string
	public               string       // key
	fetched              atomic.Int64 // octets that nodes have got of the store, without looks
	goals                []goal
}

// publishPart is how many entries there are for one that changes: half of them go, and others come.
const publishPart = 1000

func newPublishCommand() *command {
	r := &publishRun{}
	c := newCommand("bench publish", &r.scale)
	c.flags.IntVar(&r.n, "n", 10_000_000, "`entries` of the list")
	c.flags.IntVar(&r.rounds, "rounds", 3, "`changes`")
	c.flags.StringVar(&r.temp, "temp", "", "`folder` for temporary files, 400 octets an entry (default the system's)")
	c.within = func() bool { return r.n >= 10_000 && r.rounds >= 1 }
	c.bounds = "-n of 10,000 or more, -rounds of 1 or more"
	c.measure = r.measure
	return c
}

const publisherConfig = `
[index]
path = %q
[smtp]
listen = ""
[http]
listen = "127.0.0.1:0"
[publish]
to = %q
key_file = %q
[[list]]
name = "spam"
path = %q
format = "plain"
`

const nodeConfig = `
[index]
path = %q
[smtp]
listen = ""
[milter]
listen = ""
[postfix]
policy_listen = ""
[http]
listen = "127.0.0.1:0"
socket = %q
max_rate = 0
[fleet]
from = %q
keys = [%q]
every = %q
node = %q
`

func (r *publishRun) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	p, on := newProgress(stderr), describeMachine()
	defer func() { os.RemoveAll(r.dir) }()
	ctx, end := context.WithCancel(ctx) // of the nodes
	defer end()
	if err := r.prepare(ctx, p); err != nil {
		return err
	}
	p.say("publish")
	first, err := r.publish(ctx)
	if err != nil {
		return err
	}
	r.goals = append(r.goals, goal{what: "published for the first time, after the lists were compiled", measured: first.String()})
	p.say("a node begins")
	present, err := someLines(r.list(), r.n, 1)
	if err != nil {
		return err
	}
	begun := time.Now()
	node, err := r.node(ctx, "node", r.web(ctx), time.Second)
	if err != nil {
		return err
	}
	if err := acts(ctx, node, present[0]); err != nil {
		return err
	}
	r.goals = append(r.goals, goal{what: "a new node answers by it", measured: fmt.Sprintf("%s s, %s MB fetched", significant(time.Since(begun).Seconds()), significant(float64(r.fetched.Load())/1e6))})
	var took, processor, octets, acting series
	for round := range r.rounds {
		p.say(fmt.Sprintf("change %d", round+1))
		sender, err := r.change(round)
		if err != nil {
			return err
		}
		r.fetched.Store(0)
		said, err := r.publish(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := acts(ctx, node, sender); err != nil {
			return err
		}
		acting = append(acting, time.Since(began).Seconds())
		took, processor, octets = append(took, said.took), append(processor, said.processor), append(octets, float64(r.fetched.Load())/1000)
	}
	r.goals = append(r.goals,
		atMost(fmt.Sprintf("published with %s of them changed, after the lists were compiled", grouped(r.n/publishPart)), 5, "s", took.median(), true),
		goal{what: "processor time of `blockd publish`, with that of judging the lists", measured: significant(processor.median()) + " s"},
		atMost("what a node fetches of it", 200, "KB", octets.median(), true),
		atMost("a node acts after it, which looks each second", 9, "s", acting.median(), true))
	p.say("shared live entries")
	if err := r.shared(ctx); err != nil {
		return err
	}
	return r.tell(fmt.Sprintf("### A fleet's list of %s addresses", grouped(r.n)), fmt.Sprintf("bench publish -n %d", r.n), on, stdout)
}

// prepare builds the program, and makes a publisher and its list.
func (r *publishRun) prepare(ctx context.Context, p progress) (err error) {
	if r.dir, err = os.MkdirTemp(r.temp, "blockd-bench-publish-"); err != nil {
		return err
	}
	r.program, r.config = filepath.Join(r.dir, "blockd"), filepath.Join(r.dir, "publisher.toml")
	build := exec.CommandContext(ctx, "go", "build", "-o", r.program, "./cmd/blockd")
	build.Dir = r.root
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	p.say("list of " + grouped(r.n) + " addresses")
	_, write := generator(ctx, r.root, r.n, kindAddress)
	if err := writeFile(r.list(), func(f *os.File) error { return write(f, presentSeed) }); err != nil {
		return err
	}
	public, err := r.blockd(ctx, "publish", "keygen", filepath.Join(r.dir, "key"))
	if err != nil {
		return err
	}
	r.public = strings.TrimSpace(public.out)
	text := fmt.Sprintf(publisherConfig, filepath.Join(r.dir, "lists.bdx"), "file://"+filepath.Join(r.dir, "store"), filepath.Join(r.dir, "key"), r.list())
	return os.WriteFile(r.config, []byte(text), 0o644)
}

// tell writes the table of goals.
func (r *publishRun) tell(title, mark string, on machine, stdout io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s. Load average %s before and %s after.\n\n", title, on, on.load, loadAverage())
	b.WriteString("| what | goal | measured | |\n| --- | --- | --- | --- |\n")
	for _, g := range r.goals {
		word := "met"
		switch {
		case g.want == "":
			word = ""
		case g.measured == "":
			word = "not installed"
		case !g.met:
			word = "not met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.what, g.want, g.measured, word)
	}
	return section{mark: mark, target: "bench-fleet", text: b.String()}.publish(r.docs, stdout)
}

func (r *publishRun) list() string { return filepath.Join(r.dir, "spam.txt") }

// said is what a command has printed, and what it took.
type said struct {
	out       string
	took      float64 // seconds, of a publication, as it says itself
	processor float64 // seconds, of the whole command
}

func (s said) String() string {
	return fmt.Sprintf("%s s, %s s of processor time with judging", significant(s.took), significant(s.processor))
}

func (r *publishRun) blockd(ctx context.Context, args ...string) (s said, err error) {
	var out strings.Builder
	c, err := program{args: append([]string{r.program}, args...)}.write(ctx, &out)
	return said{out: out.String(), processor: c.cpu}, err
}

func (r *publishRun) publish(ctx context.Context) (s said, err error) {
	if _, err := r.blockd(ctx, "compile", "-c", r.config); err != nil {
		return s, err
	}
	if s, err = r.blockd(ctx, "publish", "-c", r.config); err != nil {
		return s, err
	}
	for line := range strings.Lines(s.out) {
		if text, ok := strings.CutPrefix(line, "time "); ok {
			_, err = fmt.Sscan(text, &s.took)
		}
	}
	if s.took == 0 {
		err = errors.Join(err, fmt.Errorf("it says of no time:\n%s", s.out))
	}
	return s, err
}

// web serves the store, and counts what is fetched of it.
func (r *publishRun) web(ctx context.Context) string {
	store := http.FileServer(http.Dir(filepath.Join(r.dir, "store")))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasPrefix(q.URL.Path, "/prod/") { // a look, of which there is one each second here
			w = &counting{w, &r.fetched}
		}
		store.ServeHTTP(w, q)
	}))
	context.AfterFunc(ctx, web.Close)
	return web.URL
}

// node starts a mail server's blockd. What it returns asks it.
func (r *publishRun) node(ctx context.Context, name, web string, every time.Duration) (*http.Client, error) {
	socket, config := filepath.Join(r.dir, name+".sock"), filepath.Join(r.dir, name+".toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, nodeConfig, filepath.Join(r.dir, name+".bdx"), socket, web, r.public, every.String(), name), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(config + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, r.program, "serve", "-c", config)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go cmd.Wait()
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}, nil
}

// acts waits until a node refuses a sender. It asks seldom, so that twenty nodes that wait take no processor.
func acts(ctx context.Context, node *http.Client, sender string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("a node does not act after ten minutes"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := request(ctx, node, http.MethodGet, "/v1/check?sender="+url.QueryEscape(sender), nil)
		if err == nil && strings.Contains(string(text), `"verdict":"blocked"`) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// counting counts what is sent.
type counting struct {
	http.ResponseWriter
	octets *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.octets.Add(int64(n))
	return n, err
}

// change replaces some lines of the list by others, and returns one of these.
func (r *publishRun) change(round int) (sender string, err error) {
	half := r.n / publishPart / 2
	err = writeFile(r.list()+".new", func(f *os.File) error {
		w, n := bufio.NewWriterSize(f, 1<<20), 0
		err := eachLine(r.list(), func(line string) {
			if n++; n%(r.n/half) != round {
				w.WriteString(line + "\n")
			}
		})
		for i := range half {
			sender = fmt.Sprintf("fresh%d@change%d-%d.example", i, round, i%97)
			w.WriteString(sender + "\n")
		}
		return errors.Join(err, w.Flush())
	})
	if err != nil {
		return "", err
	}
	return sender, os.Rename(r.list()+".new", r.list())
}

// shared lets the benchmark of package index/live/shared add entries on one machine, and look for them on another.
func (r *publishRun) shared(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "./live/shared", "-run=^$", "-bench=ActsElsewhere", "-benchtime=500x")
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, engine := range []struct{ name, title string }{{"postgres", "PostgreSQL"}, {"redis", "Redis"}} {
		p99 := 0.0
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			if at := slices.Index(fields, "acts-p99-ms"); at > 0 && strings.Contains(line, "/"+engine.name) {
				if _, err := fmt.Sscan(fields[at-1], &p99); err != nil {
					return fmt.Errorf("%w: %s", err, line)
				}
			}
		}
		r.goals = append(r.goals, atMost("a live entry added on one node acts on another, by "+engine.title+", p99", 1, "s", p99/1000, p99 > 0))
	}
	return nil
}
