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
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
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
	if rs.socket == "" {
		if err := rs.start(ctx); err != nil {
			return nil, err
		}
	}
	answers := make([]Answer, len(mails))
	client := rs.client()
	defer client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scanners)
	for i := range mails {
		g.Go(func() (err error) {
			answers[i], err = rs.scanned(ctx, client, &mails[i])
			return err
		})
	}
	return answers, g.Wait()
}

func (rs *rspamd) client() *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", rs.socket)
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: scanners, DialContext: dial}}
}

// scanned asks about one mail.
func (rs *rspamd) scanned(ctx context.Context, client *http.Client, m *Mail) (Answer, error) {
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
	resp, err := client.Do(req)
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
	for _, r := range rs.maprules { // in which order rspamd asks its rules changes from start to start, and the first one counts
		switch {
		case said.Symbols[r.symbol] == nil || r.action == "":
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

// actionFates is what rspamd's actions lead to.
var actionFates = map[string]Fate{"no action": Passes, "accept": Passes, "greylist": Passes, "reject": Refused, "soft reject": Deferred, "add header": Tagged,
	"rewrite subject": Tagged, "quarantine": Held, "discard": Dropped}

// start starts rspamd with the rules and copies of their maps: it may run as another user, who could not read the maps
// themselves.
func (rs *rspamd) start(ctx context.Context) error {
	program, err := tool{"rspamd", "rspamd", 0}.find()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "blockd-rspamd-")
	if err != nil {
		return err
	}
	rs.stop = func() { os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	rules := map[string]any{}
	for _, r := range rs.maprules {
		if paths, files := r.asked["map"].([]string); files && len(r.paths) > 0 {
			for i, path := range r.paths {
				lines, err := rs.files.lines(path)
				if err != nil {
					return err
				}
				var data bytes.Buffer
				for _, text := range lines {
					data.WriteString(bareKey(text) + "\n")
				}
				paths[i] = filepath.Join(dir, fmt.Sprintf("%s-%d", r.Name, i))
				if err := os.WriteFile(paths[i], data.Bytes(), 0o644); err != nil {
					return err
				}
			}
		}
		rules[r.symbol] = r.asked
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	config := strings.ReplaceAll(rspamdConf, "FOLDER", dir) + "multimap " + string(text) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rspamd.conf"), []byte(config), 0o644); err != nil {
		return err
	}
	// Of what rspamd's own rules define, multimap needs this alone: no rule that is carried over asks Redis.
	if err := os.WriteFile(filepath.Join(dir, "import.lua"), []byte("rspamd_parse_redis_server = function() return nil end\n"), 0o644); err != nil {
		return err
	}
	args := []string{"-f", "--skip-template", "-c", filepath.Join(dir, "rspamd.conf"), "--var=DBDIR=" + dir, "--var=RUNDIR=" + dir, "--var=LOGDIR=" + dir}
	if _, err := user.Lookup("_rspamd"); os.Geteuid() == 0 && err == nil {
		args = append(args, "-u", "_rspamd", "-g", "_rspamd")
	} else if os.Geteuid() == 0 {
		args = append(args, "-i")
	}
	cmd := exec.Command(program, args...)
	complaints := limited{most: maxConfig, forgets: true}
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &complaints, &complaints, dir, time.Second
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	rs.stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left of the group
		os.RemoveAll(dir)
	}
	patience, cancel := context.WithTimeout(ctx, startOfRspamd)
	defer cancel()
	for rs.socket = filepath.Join(dir, "scan"); ; {
		if _, err := rs.ping(patience); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			lines := strings.Split(strings.TrimSpace(complaints.text.String()), "\n")
			return fmt.Errorf("rspamd does not start: %s", original.Shown(lines[len(lines)-1]))
		case <-patience.Done():
			return errors.New("rspamd does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ping asks about a mail that no rule is about.
func (rs *rspamd) ping(ctx context.Context) (Answer, error) {
	client := rs.client()
	defer client.CloseIdleConnections()
	m := Mail{Sender: nobody}.complete()
	return rs.scanned(ctx, client, &m)
}

// rspamdConf is what rspamd is told beside the rules.
const rspamdConf = `lua = "FOLDER/import.lua"
options {
  filters = "";
  pidfile = "FOLDER/pid";
  url_tld = "$SHAREDIR/effective_tld_names.dat";
  cache_file = "FOLDER/symbols.cache";
  control_socket = "FOLDER/control mode=0600";
  map_watch_interval = 1h;
}
logging { type = "console"; level = "error"; }
worker "normal" { bind_socket = "FOLDER/scan mode=0666"; count = 1; }
actions { reject = 15; "add header" = 6; }
modules { path = "$PLUGINSDIR/multimap.lua"; }
`
