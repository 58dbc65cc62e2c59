package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"
)

// rspamdConfig is one way to run rspamd: the files of its configuration, which hold
// the words that startRspamd replaces.
type rspamdConfig struct {
	name  string
	whole bool // rspamd.conf is among files; else they are Debian's local.d
	files map[string]string
}

const rspamdMultimap = `BENCH { type = "from"; map = "file://LIST"; prefilter = true; action = "reject"; }`

var rspamds = []rspamdConfig{
	// Debian's configuration with a list of senders, on ports of its own, and with a
	// DNS server that answers at once that there is no such name.
	{name: nameRspamd, files: map[string]string{
		"worker-proxy.inc":      `bind_socket = "PROXY"; upstream "local" { default = yes; hosts = "SCANNER"; }`,
		"worker-normal.inc":     `bind_socket = "SCANNER";`,
		"worker-controller.inc": `bind_socket = "CONTROLLER";`,
		"options.inc":           `dns { nameserver = "NAMESERVER"; }`,
		"logging.inc":           `type = "file"; filename = "FOLDER/rspamd.log";`,
		"multimap.conf":         rspamdMultimap,
	}},
	// As little as rspamd can be asked to do: the proxy scans by itself, and there is
	// one module.
	{name: nameRspamdBare, whole: true, files: map[string]string{"rspamd.conf": `
lua = "$RULESDIR/rspamd.lua"
options {
  filters = "";
  pidfile = "FOLDER/pid";
  dns { nameserver = "NAMESERVER"; }
  url_tld = "$SHAREDIR/effective_tld_names.dat";
  cache_file = "FOLDER/symbols.cache";
  control_socket = "FOLDER/control mode=0600";
}
logging { type = "file"; filename = "FOLDER/rspamd.log"; level = "warning"; }
worker "rspamd_proxy" {
  bind_socket = "PROXY";
  milter = yes;
  timeout = 120s;
  count = 1;
  upstream "local" { default = yes; self_scan = yes; }
}
modules { path = "$PLUGINSDIR/multimap.lua"; }
multimap { ` + rspamdMultimap + ` }
metric { name = "default"; actions { reject = 15; } }
`}},
}

// rspamdStartLimit is for a list of ten million and for the expressions that are
// compiled at each start.
const rspamdStartLimit = 10 * time.Minute

// startRspamd runs rspamd as a milter until stop.
func (m *milterDoor) startRspamd(ctx context.Context, dir string, c rspamdConfig, nameserver, list string) (path, error) {
	base, err := os.MkdirTemp(dir, "rspamd-")
	if err != nil {
		return path{}, err
	}
	if err := os.MkdirAll(filepath.Join(base, "local.d"), 0o755); err != nil {
		return path{}, err
	}
	words := []string{"FOLDER", base, "LIST", list, "NAMESERVER", nameserver}
	address := ""
	for _, word := range []string{"SCANNER", "CONTROLLER", "PROXY"} {
		if address, err = freeAddress(); err != nil {
			return path{}, err
		}
		words = append(words, word, address)
	}
	for name, text := range c.files {
		if err := os.WriteFile(filepath.Join(base, "local.d", name), []byte(strings.NewReplacer(words...).Replace(text)), 0o644); err != nil {
			return path{}, err
		}
	}
	owner, err := user.Lookup("_rspamd")
	if err != nil {
		return path{}, err
	}
	if out, err := exec.CommandContext(ctx, "chown", "-R", owner.Uid+":"+owner.Gid, base).CombinedOutput(); err != nil {
		return path{}, fmt.Errorf("chown: %w: %s", err, out)
	}
	args := []string{"rspamd", "-f", "-u", "_rspamd", "-g", "_rspamd",
		"--var=DBDIR=" + base, "--var=RUNDIR=" + base, "--var=LOGDIR=" + base, "--var=LOCAL_CONFDIR=" + base}
	if c.whole {
		args = append(args, "-c", filepath.Join(base, "local.d", "rspamd.conf"))
	}
	pid, err := m.launch(ctx, address, filepath.Join(base, "errors"), args...)
	if err != nil {
		return path{}, err
	}
	p := path{name: c.name, address: address, pid: pid, filters: true}
	return p, idle(ctx, p)
}

// idle waits until a path's processes have done nothing for three seconds: rspamd
// listens before it has compiled its expressions.
func idle(ctx context.Context, p path) error {
	last, since := -1.0, time.Now()
	return until(ctx, rspamdStartLimit, p.name+" to be idle", func() (bool, error) {
		now, err := p.cpu()
		if err != nil {
			return false, err
		}
		if now > last+0.03 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second, nil
	})
}
