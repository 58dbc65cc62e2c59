package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The names of the paths.
const (
	nameBlockd   = "**blockd**"
	nameHAProxy  = "HAProxy, TCP mode"
	namePipe     = "bare TCP pipe (Go)"
	namePostfix  = "Postfix, `smtpd_proxy_filter`"
	nameDirect   = "none: straight to the sink"
	nameRefusing = "bare refusing sink (Go)"
)

func (p *smtpDoor) start(ctx context.Context, dir string, l *addresses) error {
	if err := l.withCDB(ctx); err != nil {
		return err
	}
	p.addresses = l
	sink, err := startSink(ctx, &p.servers)
	if err != nil {
		return err
	}
	p.sink = sink.address
	own, err := p.startBlockd(ctx, dir, l)
	if err != nil {
		return err
	}
	bare, err := p.startOwn(ctx, namePipe, "smtp-pipe", p.sink)
	if err != nil {
		return err
	}
	refusing, err := p.startOwn(ctx, nameRefusing, "smtp-refuse")
	if err != nil {
		return err
	}
	p.accepting = []path{own}
	p.refusing = []path{own, refusing}
	p.timed = []path{own}
	if why := lookPath("haproxy"); why != "" {
		p.accepted.missing(nameHAProxy, why)
	} else {
		h, err := p.startHAProxy(ctx, dir)
		if err != nil {
			return err
		}
		p.accepting, p.timed = append(p.accepting, h), append(p.timed, h)
	}
	p.accepting, p.timed = append(p.accepting, bare), append(p.timed, bare)
	if why := l.lacksPostfix(); why != "" {
		p.accepted.missing(namePostfix, why)
		p.refused.missing(namePostfix, why)
	} else {
		f, err := p.startPostfix(ctx, dir, l)
		if err != nil {
			return fmt.Errorf("starting Postfix: %w", err)
		}
		p.accepting, p.refusing, p.timed = append(p.accepting, f), append(p.refusing, f), append(p.timed, f)
	}
	p.accepting, p.timed = append(p.accepting, sink), append(p.timed, sink)
	return nil
}

// startSink starts smtp-sink, which all paths but that of refusals end in.
func startSink(ctx context.Context, s *servers) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	args := []string{"smtp-sink", "-m", "12000"}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "nobody")
	}
	pid, err := s.launch(ctx, address, "", append(args, address, "2000")...)
	return path{name: nameDirect, address: address, pid: pid}, err
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

func (p *smtpDoor) startHAProxy(ctx context.Context, dir string) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, fmt.Appendf(nil, haproxyConfig, address, p.sink), 0o644); err != nil {
		return path{}, err
	}
	pid, err := p.launch(ctx, address, filepath.Join(dir, "haproxy.log"), "haproxy", "-db", "-f", config)
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
hard_errors = 200000 # Postfix has the same: refusals are counted, and a client collects many
[[list]]
name = "bench"
path = %q
format = "plain"
`

// startBlockd starts blockd with its default settings, but for the limits of
// connections from one address and of errors, and the doors that are not asked for.
func (p *smtpDoor) startBlockd(ctx context.Context, dir string, l *addresses) (path, error) {
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
	pid, err := p.launch(ctx, address, config+".log", l.program, "serve", "-c", config)
	if err == nil {
		err = waitFor(ctx, address)
	}
	return path{name: nameBlockd, address: address, pid: pid, filters: true}, err
}

// waitFor waits until mail passes: blockd listens before it has seen upstream, and
// serves when its index has been built.
func waitFor(ctx context.Context, address string) error {
	return until(ctx, time.Minute, "mail to pass", func() (bool, error) {
		t, err := dialTalk(ctx, address)
		if err != nil {
			return false, nil
		}
		defer t.close()
		return t.mail(map[string]series{}) == nil, nil
	})
}
