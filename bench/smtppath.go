package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// path is a way from the client to the sink, or to a refusal.
type path struct {
	name    string
	address string
	pid     int  // of its first process; the CPU is that of all below it too
	filters bool // false: the sink itself
}

// paths are the ways that are measured. blockd's is the first everywhere.
type paths struct {
	accepting, refusing, timed []path
	ends                       []func() // of the servers
	sink                       string   // address
}

// stop ends the servers, the last first. It may be called with none.
func (p *paths) stop() {
	if p == nil {
		return
	}
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// The names of the paths.
const (
	nameBlockd   = "**blockd**"
	nameHAProxy  = "HAProxy, TCP mode"
	namePipe     = "bare TCP pipe (Go)"
	namePostfix  = "Postfix, `smtpd_proxy_filter`"
	nameDirect   = "none: straight to the sink"
	nameRefusing = "bare refusing sink (Go)"
)

// startPaths starts every server; those that are not installed are named as missing.
func startPaths(ctx context.Context, dir string, l *smtpLists, r *smtpReport) (*paths, error) {
	p := &paths{}
	sink, err := p.startSink(ctx)
	if err != nil {
		return p, err
	}
	p.sink = sink.address
	own, err := p.startBlockd(ctx, dir, l)
	if err != nil {
		return p, err
	}
	bare, err := p.startOwn(ctx, namePipe, "smtp-pipe", p.sink)
	if err != nil {
		return p, err
	}
	refusing, err := p.startOwn(ctx, nameRefusing, "smtp-refuse")
	if err != nil {
		return p, err
	}
	p.accepting = []path{own}
	p.refusing = []path{own, refusing}
	p.timed = []path{own}
	if why := lookPath("haproxy"); why != "" {
		r.accepted.missing(nameHAProxy, why)
	} else {
		h, err := p.startHAProxy(ctx, dir)
		if err != nil {
			return p, err
		}
		p.accepting, p.timed = append(p.accepting, h), append(p.timed, h)
	}
	p.accepting, p.timed = append(p.accepting, bare), append(p.timed, bare)
	if why := l.lacksPostfix(); why != "" {
		r.accepted.missing(namePostfix, why)
		r.refused.missing(namePostfix, why)
	} else {
		f, err := p.startPostfix(ctx, dir, l)
		if err != nil {
			return p, fmt.Errorf("Postfix: %w", err)
		}
		p.accepting, p.refusing, p.timed = append(p.accepting, f), append(p.refusing, f), append(p.timed, f)
	}
	p.accepting, p.timed = append(p.accepting, sink), append(p.timed, sink)
	return p, nil
}

// start runs a server until stop, and waits until it listens.
func (p *paths) start(ctx context.Context, address, log string, args ...string) (pid int, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	if log != "" {
		f, err := os.Create(log)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		cmd.Stderr = f
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is of no interest when it was to end, and else it stops answering
		close(ended)
	}()
	p.ends = append(p.ends, func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	if err := listens(ctx, address, ended); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return cmd.Process.Pid, nil
}

// startSink starts smtp-sink, which all paths but that of refusals end in.
func (p *paths) startSink(ctx context.Context) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	args := []string{"smtp-sink", "-m", "12000"}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "nobody")
	}
	pid, err := p.start(ctx, address, "", append(args, address, "2000")...)
	return path{name: nameDirect, address: address, pid: pid}, err
}

// startOwn starts a server of this program.
func (p *paths) startOwn(ctx context.Context, name, word string, more ...string) (path, error) {
	self, err := os.Executable()
	if err != nil {
		return path{}, err
	}
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	pid, err := p.start(ctx, address, "", append([]string{self, word, address}, more...)...)
	return path{name: name, address: address, pid: pid, filters: true}, err
}

const haproxyConfig = `
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen smtp
  bind %s
  maxconn 5000
  server sink %s
`

func (p *paths) startHAProxy(ctx context.Context, dir string) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, fmt.Appendf(nil, haproxyConfig, address, p.sink), 0o644); err != nil {
		return path{}, err
	}
	pid, err := p.start(ctx, address, filepath.Join(dir, "haproxy.log"), "haproxy", "-db", "-f", config)
	return path{name: nameHAProxy, address: address, pid: pid, filters: true}, err
}

const blockdConfig = `
[index]
path = %q
[smtp]
listen = %q
hostname = "filter.bench.test"
upstream = "smtp://%s"
client_info = "none" # smtp-sink announces XCLIENT and does not do it
allow_open_upstream = true # a sink takes everything
max_connections = 20000
max_connections_per_ip = 20000
[[list]]
name = "bench"
path = %q
format = "plain"
`

// startBlockd starts blockd with its default settings, but for the limit of
// connections from one address and the doors that are not asked for.
func (p *paths) startBlockd(ctx context.Context, dir string, l *smtpLists) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	config := filepath.Join(dir, "blockd.toml")
	text := fmt.Appendf(nil, blockdConfig, l.index, address, p.sink, l.text)
	shut, err := otherDoors(ctx, l.program, "[smtp]")
	if err != nil {
		return path{}, err
	}
	if err := os.WriteFile(config, append(text, shut...), 0o644); err != nil {
		return path{}, err
	}
	pid, err := p.start(ctx, address, config+".log", l.program, "serve", "-c", config)
	if err == nil {
		err = waitFor(ctx, address)
	}
	return path{name: nameBlockd, address: address, pid: pid, filters: true}, err
}

// waitFor waits until mail passes: blockd listens before it has seen upstream, and
// serves when its index has been built.
func waitFor(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := dialTalk(ctx, address)
		if err == nil {
			err = t.mail(map[string]series{})
			t.close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

var listenKey = regexp.MustCompile(`^(\w*listen) *=`)

// otherDoors is configuration that shuts all of blockd's doors but those of a section,
// which of them there may be.
func otherDoors(ctx context.Context, blockd, but string) ([]byte, error) {
	defaults, err := exec.CommandContext(ctx, blockd, "config", "--defaults").Output()
	if err != nil {
		return nil, fmt.Errorf("blockd config --defaults: %w", err)
	}
	var shut []byte
	section, said := "", ""
	for line := range strings.Lines(string(defaults)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key := listenKey.FindStringSubmatch(line)
		if key == nil || section == but || strings.HasPrefix(section, "[[") {
			continue
		}
		if section != said {
			shut = append(shut, section+"\n"...)
			said = section
		}
		shut = append(shut, key[1]+" = \"\"\n"...)
	}
	return shut, nil
}
