package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// scanners is how many mails rspamd is asked about at once.
const scanners = 4

// startOfRspamd bounds how long rspamd may take until it answers: it compiles expressions, and reads its maps.
const startOfRspamd = time.Minute

// scan asks an rspamd that knows the rules alone which the import carries over: nothing that their configuration says
// is executed, and it listens at a socket of a folder of its own. It knows the rules without their actions: it would
// not ask the rules behind one with an action. What counts points refuses a mail at 15, and tags it at 6, as rspamd is
// delivered.
func (rs *rspamd) scan(ctx context.Context, mails []Mail) ([]Answer, error) {
	if rs.client == nil {
		if err := rs.start(ctx); err != nil {
			return nil, err
		}
	}
	answers := make([]Answer, len(mails))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scanners)
	for i := range mails {
		g.Go(func() (err error) {
			answers[i], err = rs.scanned(ctx, &mails[i])
			return err
		})
	}
	return answers, g.Wait()
}

// scanned asks about one mail.
func (rs *rspamd) scanned(ctx context.Context, m *Mail) (Answer, error) {
	author := m.Field + ": <" + m.Author + ">\r\n"
	if m.Field != "From" {
		author += "From: <" + nobody + ">\r\n"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://rspamd/checkv2", strings.NewReader(author+"Subject: x\r\n\r\nx\r\n"))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("From", m.Sender)
	req.Header.Set("Rcpt", m.Recipient)
	req.Header.Set("IP", m.Client.String())
	resp, err := rs.client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("rspamd: %w", err)
	}
	defer resp.Body.Close()
	var said struct {
		Action  string
		Symbols map[string]any
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxConfig)).Decode(&said); err != nil {
		return Answer{}, fmt.Errorf("rspamd: %s: %w", resp.Status, err)
	}
	action := said.Action // by points
	decided := false
	for i, r := range rs.rules { // in which order rspamd asks its rules changes from start to start, and the first one counts
		switch {
		case said.Symbols[symbolOf(i)] == nil || r.action == "":
		case !decided:
			action, decided = r.action, true
		case action != r.action:
			return Answer{Unknown, fmt.Sprintf("rules that say %q and %q match the same mail: which one counts, rspamd decides anew at every start", min(action, r.action), max(action, r.action))}, nil
		}
	}
	fate, ok := actionFates[action]
	if !ok {
		return Answer{Unknown, original.Shown("rspamd says " + action)}, nil
	}
	return Answer{Fate: fate}, nil
}

// symbolOf is the symbol of a rule where it is asked.
func symbolOf(rule int) string { return "RULE_" + strconv.Itoa(rule) }

// actionFates is what rspamd's actions lead to.
var actionFates = map[string]Fate{"no action": Passes, "accept": Passes, "greylist": Passes, "reject": Refused, "soft reject": Deferred, "add header": Tagged,
	"rewrite subject": Tagged, "quarantine": Held, "discard": Dropped}

// start starts rspamd, and waits until it answers.
func (rs *rspamd) start(ctx context.Context) error {
	args, err := rs.settings()
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c, err := rspamdTool.start(running, rs.work.dir, "", args...)
	if err != nil {
		cancel()
		return err
	}
	ended := make(chan struct{})
	go func() { _ = c.wait(); close(ended) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(rs.work.dir, "run", "scan"))
	}
	rs.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: scanners, DialContext: dial}}
	rs.stop = func() {
		rs.client.CloseIdleConnections()
		cancel()
		<-ended
		rs.client = nil
	}
	patience, cancelPatience := context.WithTimeout(ctx, startOfRspamd)
	defer cancelPatience()
	m := Mail{Sender: nobody}.complete() // which no rule is about
	for {
		if _, err := rs.scanned(patience, &m); err == nil {
			return nil
		}
		select {
		case <-ended:
			lines := c.complained()
			return fmt.Errorf("rspamd does not start: %s", original.Shown(lines[len(lines)-1]))
		case <-patience.Done():
			return errors.New("rspamd does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settings writes the rules, with copies of their maps, and returns how rspamd is started with them. As root it runs
// as its own user, who reads the folder by its group and writes below "run" alone; nobody else comes in.
func (rs *rspamd) settings() (args []string, err error) {
	var as *user.User
	if os.Geteuid() == 0 {
		if as, err = rspamdUser(user.Lookup); err != nil {
			return nil, err
		}
	}
	rules := map[string]map[string]any{}
	for i, r := range rs.rules {
		rules[symbolOf(i)] = r.settings
		if r.standing != nil { // rspamd takes the first of such keys for a file or a URL, if it looks like one
			r.settings["map"] = append([]string{"-"}, r.standing...)
			continue
		}
		var data bytes.Buffer
		for _, k := range r.keys {
			if !unprintable(k.line) {
				data.WriteString(k.line + "\n")
			}
		}
		if r.settings["map"], err = rs.work.write(symbolOf(i), data.Bytes()); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return nil, err
	}
	dir, err := rs.work.open()
	if err != nil {
		return nil, err
	}
	// Of what rspamd's own rules define, multimap needs this alone: no rule that is carried over asks Redis.
	if _, err := rs.work.write("import.lua", []byte("rspamd_parse_redis_server = function() return nil end\n")); err != nil {
		return nil, err
	}
	path, err := rs.work.write("rspamd.conf", []byte(strings.ReplaceAll(rspamdConf, "FOLDER", dir)+"multimap "+string(text)+"\n"))
	if err != nil {
		return nil, err
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	args = []string{"-f", "--skip-template", "-c", path, "--var=DBDIR=" + run, "--var=RUNDIR=" + run, "--var=LOGDIR=" + run}
	if as != nil {
		group, err := user.LookupGroupId(as.Gid)
		if err != nil {
			return nil, err
		}
		args = append(args, "-u", as.Username, "-g", group.Name)
		return args, handOver(dir, run, as)
	}
	return args, nil
}

// rspamdUser is whom rspamd runs as where root asks.
func rspamdUser(lookup func(name string) (*user.User, error)) (*user.User, error) {
	for _, name := range []string{"_rspamd", "rspamd"} {
		if u, err := lookup(name); err == nil {
			return u, nil
		}
	}
	return nil, errors.New("rspamd is not started as root, and has no user _rspamd or rspamd here: start the import as another user")
}

// handOver lets a user's group read a folder of root's with its files, and gives the user the folder run in it.
func handOver(dir, run string, as *user.User) error {
	uid, err := strconv.Atoi(as.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(as.Gid)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if path := filepath.Join(dir, f.Name()); path != run && err == nil {
			err = errors.Join(os.Lchown(path, 0, gid), os.Chmod(path, 0o640))
		}
	}
	return errors.Join(err, os.Lchown(run, uid, gid), os.Lchown(dir, 0, gid), os.Chmod(dir, 0o750))
}

// rspamdConf is what rspamd is told beside the rules.
const rspamdConf = `lua = "FOLDER/import.lua"
options {
  filters = "";
  pidfile = "FOLDER/pid";
  url_tld = "$SHAREDIR/effective_tld_names.dat";
  cache_file = "FOLDER/run/symbols.cache";
  control_socket = "FOLDER/run/control mode=0600";
  map_watch_interval = 1h;
}
logging { type = "console"; level = "error"; }
worker "normal" { bind_socket = "FOLDER/run/scan mode=0600"; count = 1; }
actions { reject = 15; "add header" = 6; }
modules { path = "$PLUGINSDIR/multimap.lua"; }
`
