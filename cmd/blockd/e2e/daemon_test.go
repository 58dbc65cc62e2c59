package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// daemon is a running `blockd serve` of a test's own.
type daemon struct {
	dir        string // of config.toml, lists and the Maildir
	smtp, http string // HOST:PORT
	maildir    string // "" with another upstream
	cmd        *exec.Cmd
	log        daemonLog
	ended      chan error
	unready    bool // start does not wait until it is ready, for it will not be
}

// setup is what a test wants of its daemon.
type setup struct {
	upstream string            // "" = the embedded mailbox
	smtp     string            // more lines of [smtp]
	milter   string            // lines of [milter]; "" = no such door
	postfix  string            // lines of [postfix]; "" = none of its services
	lists    string            // [[list]] tables; paths relative to the daemon's folder or absolute
	files    map[string]string // list files below the daemon's folder, name to text
}

// manyErrors is for a daemon that a test asks much on one session: refusals are errors, and
// a session of too many ends.
const manyErrors = "hard_errors = 20000\n"

// serve configures and starts a daemon.
func serve(t *testing.T, s setup) *daemon {
	t.Helper()
	d := configure(t, s)
	d.start(t)
	return d
}

// configure is serve without the start.
func configure(t *testing.T, s setup) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{dir: dir, smtp: freeAddress(t), http: freeAddress(t)}
	if s.upstream == "" {
		d.maildir = filepath.Join(dir, "mail")
		s.upstream = "maildir:mail"
	}
	if s.milter == "" {
		s.milter = `listen = ""`
	}
	if s.postfix == "" {
		s.postfix = `policy_listen = ""`
	}
	for name, text := range s.files {
		testkit.Write(t, d.path(name), text)
	}
	config := fmt.Sprintf(`
[index]
path = "blockd.bdx"
quiet = "50ms"

[smtp]
listen = %q
hostname = "filter.here.example"
upstream = %q
%s

[milter]
%s

[postfix]
%s

[http]
listen = %q

[log]
format = "text"

%s
`, d.smtp, s.upstream, s.smtp, s.milter, s.postfix, d.http, s.lists)
	testkit.Write(t, d.path("config.toml"), config)
	return d
}

// start runs the program on the config.toml in d.dir until the test ends, and
// waits until it is ready to filter.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.run(t, exec.Command(program, "serve", "-c", d.path("config.toml")))
}

// run is start with another command line.
func (d *daemon) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, out := newDaemonLog(t)
	defer out.Close()
	d.cmd, d.log, d.ended = cmd, log, make(chan error, 1)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { d.stop(t) })

	testkit.Eventually(t, "the daemon to be ready", func() bool {
		select {
		case err := <-d.ended:
			d.ended <- err
			t.Fatalf("blockd serve ended: %v\n%s", err, d.log)
		default:
		}
		status, _ := d.get("/readyz")
		return status == http.StatusOK || d.unready && status != 0
	})
}

// reload has the daemon look at its files at once.
func (d *daemon) reload(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

// stop ends the daemon as an init system does, and fails the test when it does
// not end well: a race report makes the exit status 66.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.ended:
		if err != nil {
			t.Errorf("blockd serve ended with %v\n%s", err, d.log)
		}
		d.ended <- err
	case <-time.After(90 * time.Second):
		d.cmd.Process.Kill()
		t.Errorf("blockd serve did not end within 90 s of SIGTERM\n%s", d.log)
	}
	if t.Failed() {
		t.Logf("log of blockd, its end:\n%s", tail(d.log.String(), 8000))
	}
}

// get asks the HTTP door; status 0 means no answer.
func (d *daemon) get(path string) (status int, body string) { return d.getWith("", path) }

// getWith is get with a token.
func (d *daemon) getWith(token, path string) (status int, body string) {
	req, err := http.NewRequest("GET", "http://"+d.http+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// metric returns the value of one series as /metrics prints it, "" if absent.
func (d *daemon) metric(series string) string {
	_, body := d.get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// counted waits until a series of /metrics has a value: a daemon may count what it has done
// after it has told the client.
func (d *daemon) counted(t *testing.T, series, want string) {
	t.Helper()
	last := ""
	defer func() {
		if last != want {
			t.Logf("%s is %q, want %q", series, last, want)
		}
	}()
	testkit.Eventually(t, series+" "+want, func() bool {
		last = d.metric(series)
		return last == want
	})
}

// countedSome is counted for any value but zero.
func (d *daemon) countedSome(t *testing.T, series string) {
	t.Helper()
	testkit.Eventually(t, series, func() bool { n := d.metric(series); return n != "" && n != "0" })
}

// messages returns those in a Maildir's new/.
func messages(t *testing.T, maildir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(maildir, "new", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// freeAddress returns a loopback address that nobody listens on, and that nobody is
// given while its server starts. The tests of other packages, which run at the same
// time, take their ports from the system (32768 and up, ip_local_port_range), where
// one that was only looked at is soon somebody else's.
func freeAddress(t *testing.T) string {
	t.Helper()
	const first, ports = 12_000, 20_000
	for range ports {
		address := fmt.Sprintf("127.0.0.1:%d", first+nextPort.Add(1)%ports)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("somebody listens on every port")
	return ""
}

// replace writes a file the way list tools do: aside, then renamed over the old.
func replace(t *testing.T, path, text string) {
	t.Helper()
	testkit.Write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
