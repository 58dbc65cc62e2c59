package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// way is one smtpd of the Postfix, and whom it asks.
type way struct {
	name    string
	address string // of the smtpd
	filter  path   // who is asked: its processes' CPU counts
	refuse  func(ctx context.Context, address string, total int, senders []string) (seconds float64, err error)
}

// The names of the ways, beside nameBlockd, which is the milter.
const (
	namePolicy     = "blockd, policy service"
	nameSocketmap  = "blockd, socketmap"
	nameNoMilter   = "Postfix alone"
	nameTable      = "Postfix, `cdb:` table"
	nameRspamd     = "rspamd, Debian's defaults"
	nameRspamdBare = "rspamd, the list alone"
	namePython     = "python3-milter, does nothing"
	nameBareMilter = "bare milter (Go), passes all"
	nameBarePolicy = "bare policy service (Go)"
)

func (m *milterDoor) start(ctx context.Context, dir string, l *addresses) error {
	if err := l.withCDB(ctx); err != nil {
		return err
	}
	m.addresses = l
	early := func(ctx context.Context, address string, total int, senders []string) (float64, error) {
		return refusals(ctx, address, total, refusalsASession, senders)
	}
	blockd, socketmap, policy, err := m.startBlockd(ctx, dir, l)
	if err != nil {
		return fmt.Errorf("blockd: %w", err)
	}
	m.milter = blockd
	m.ways = []way{
		{name: nameBlockd, filter: blockd, refuse: early},
		{name: namePolicy, filter: blockd, refuse: early},
		{name: nameSocketmap, filter: blockd, refuse: early},
		{name: nameNoMilter},
	}
	options := []string{
		"smtpd_milters=inet:" + blockd.address,
		"{ smtpd_sender_restrictions = check_policy_service { inet:" + policy + ", default_action=DUNNO } }",
		"smtpd_sender_restrictions=check_sender_access,socketmap:inet:" + socketmap + ":senders",
		"smtpd_milters=",
	}
	if why := l.lacksPostfix(); why != "" {
		m.refused.missing(nameTable, why)
	} else {
		m.ways = append(m.ways, way{name: nameTable, refuse: early})
		options = append(options, "smtpd_sender_restrictions=check_sender_access,cdb:"+strings.TrimSuffix(l.cdb, ".cdb"))
	}
	if why := lookPath("rspamd"); why != "" {
		m.accepted.missing(nameRspamd, why)
		m.accepted.missing(nameRspamdBare, why)
	} else {
		nobody, err := m.startOwn(ctx, "", "dns-nobody")
		if err != nil {
			return err
		}
		list := filepath.Join(dir, "list.txt") // the cache may be closed to rspamd's user
		if err := copyFile(l.text, list); err != nil {
			return err
		}
		for _, c := range rspamds {
			p, err := m.startRspamd(ctx, dir, c, nobody.address, list)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			m.ways = append(m.ways, way{name: c.name, filter: p, refuse: refusedAtEnd})
			options = append(options, "smtpd_milters=inet:"+p.address)
		}
	}
	if why := lacksPython(); why != "" {
		m.accepted.missing(namePython, why)
	} else {
		p, err := m.startPython(ctx, dir)
		if err != nil {
			return fmt.Errorf("python3: %w", err)
		}
		m.ways = append(m.ways, way{name: namePython, filter: p})
		options = append(options, "smtpd_milters=inet:"+p.address)
	}
	pass, err := m.startOwn(ctx, nameBareMilter, "milter-pass")
	if err != nil {
		return err
	}
	m.ways = append(m.ways, way{name: pass.name, filter: pass})
	options = append(options, "smtpd_milters=inet:"+pass.address)
	for i := range m.ways {
		if m.ways[i].address, err = freeAddress(); err != nil {
			return err
		}
	}
	if err := m.startPostfix(ctx, dir, options); err != nil {
		return fmt.Errorf("starting Postfix: %w", err)
	}
	bare, err := m.startOwn(ctx, nameBarePolicy, "policy-dunno")
	if err != nil {
		return err
	}
	m.policies = []path{{name: nameBlockd, address: policy}, bare}
	return m.prove(ctx, l)
}

// prove looks that each way takes mail of a clear sender and, where it should, none
// of a listed one.
func (m *milterDoor) prove(ctx context.Context, l *addresses) error {
	for _, w := range m.ways {
		if _, err := source(ctx, w.address, 1, 2, smallMessage); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if w.refuse == nil {
			continue
		}
		var fault error
		err := until(ctx, time.Minute, "it to refuse", func() (bool, error) { // rspamd listens before it has read its map
			_, fault = w.refuse(ctx, w.address, 4, l.sample)
			return fault == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w: %w", w.name, err, fault)
		}
	}
	return m.postfix.settle(ctx)
}

const milterBlockdConfig = `
[index]
path = %q
[smtp]
listen = ""
[milter]
listen = %q
max_connections = 20000
[postfix]
policy_listen = %q
socketmap_listen = %q
[http]
listen = %q
[[list]]
name = "bench"
path = %q
format = "plain"
`

// startBlockd starts blockd with its default settings, but for the limit of milter
// connections.
func (m *milterDoor) startBlockd(ctx context.Context, dir string, l *addresses) (blockd path, socketmap, policy string, err error) {
	var addresses [4]string
	for i := range addresses {
		if addresses[i], err = freeAddress(); err != nil {
			return path{}, "", "", err
		}
	}
	config := filepath.Join(dir, "blockd.toml")
	text := fmt.Appendf(nil, milterBlockdConfig, l.index, addresses[0], addresses[1], addresses[2], addresses[3], l.text)
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return path{}, "", "", err
	}
	pid, err := m.launch(ctx, addresses[0], config+".log", l.program, "serve", "-c", config)
	if err == nil {
		err = ready(ctx, "http://"+addresses[3]+"/readyz")
	}
	return path{name: nameBlockd, address: addresses[0], pid: pid, filters: true}, addresses[2], addresses[1], err
}

// ready waits until a page is 200: blockd's index may have to be built first.
func ready(ctx context.Context, url string) error {
	return until(ctx, 10*time.Minute, url, func() (bool, error) {
		answer, err := http.Get(url)
		if err != nil {
			return false, nil
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
}

const pythonMilter = `
import sys, Milter

class Nothing(Milter.Base):
    @Milter.noreply
    def connect(self, name, family, address): return Milter.CONTINUE
    @Milter.noreply
    def hello(self, name): return Milter.CONTINUE
    def envfrom(self, sender, *parameters): return Milter.ACCEPT

Milter.factory = Nothing
Milter.set_exception_policy(Milter.ACCEPT)
Milter.runmilter("nothing", sys.argv[1], 240)
`

// python is Debian's: another one in the path does not know Debian's modules.
const python = "/usr/bin/python3"

func lacksPython() string {
	if exec.Command(python, "-c", "import Milter").Run() != nil {
		return "wants Debian's package python3-milter"
	}
	return ""
}

func (m *milterDoor) startPython(ctx context.Context, dir string) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	host, port, _ := strings.Cut(address, ":")
	file := filepath.Join(dir, "nothing.py")
	if err := os.WriteFile(file, []byte(pythonMilter), 0o644); err != nil {
		return path{}, err
	}
	pid, err := m.launch(ctx, address, file+".log", python, file, "inet:"+port+"@"+host)
	return path{name: namePython, address: address, pid: pid, filters: true}, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeFile(to, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	})
}
