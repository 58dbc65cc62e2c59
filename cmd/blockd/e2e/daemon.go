package e2e

import (
	"cmp"
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

// Daemon is a running `blockd serve` of a test's own.
type Daemon struct {
	Dir        string // of config.toml, lists and the Maildir
	SMTP, HTTP string // HOST:PORT
	Maildir    string // "" with another upstream
	Cmd        *exec.Cmd
	Log        daemonLog
	Ended      chan error
	Unready    bool   // Start does not wait until it is ready, for it will not be
	Program    string // its path; "" = the one that is built as users build it
}

// Setup is what a test wants of its daemon.
type Setup struct {
	Upstream string            // "" = the embedded mailbox
	SMTP     string            // more lines of [smtp]
	Milter   string            // lines of [milter]; "" = no such door
	Postfix  string            // lines of [postfix]; "" = none of its services
	Lists    string            // [[list]] tables; paths relative to the daemon's folder or absolute
	Files    map[string]string // list files below the daemon's folder, name to text
	Raced    bool              // the program with the race detector
}

// ManyErrors is for a daemon that a test asks much on one session: refusals are errors, and
// a session of too many ends.
const ManyErrors = "hard_errors = 20000\n"

// Serve configures and starts a daemon.
func Serve(t *testing.T, s Setup) *Daemon {
	t.Helper()
	d := Configure(t, s)
	d.Start(t)
	return d
}

// Configure is serve without the start.
func Configure(t *testing.T, s Setup) *Daemon {
	t.Helper()
	dir := t.TempDir()
	d := &Daemon{Dir: dir, SMTP: FreeAddress(t), HTTP: FreeAddress(t)}
	if s.Raced {
		d.Program = Raced(t)
	}
	if s.Upstream == "" {
		d.Maildir = filepath.Join(dir, "mail")
		s.Upstream = "maildir:mail"
	}
	if s.Milter == "" {
		s.Milter = `listen = ""`
	}
	if s.Postfix == "" {
		s.Postfix = `policy_listen = ""`
	}
	for name, text := range s.Files {
		testkit.Write(t, d.Path(name), text)
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
`, d.SMTP, s.Upstream, s.SMTP, s.Milter, s.Postfix, d.HTTP, s.Lists)
	testkit.Write(t, d.Path("config.toml"), config)
	return d
}

// Start runs the program on the config.toml in d.dir until the test ends, and
// waits until it is ready to filter.
func (d *Daemon) Start(t *testing.T) {
	t.Helper()
	d.Run(t, exec.Command(cmp.Or(d.Program, Program), "serve", "-c", d.Path("config.toml")))
}

// Run is start with another command line.
func (d *Daemon) Run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, out := newDaemonLog(t)
	defer out.Close()
	d.Cmd, d.Log, d.Ended = cmd, log, make(chan error, 1)
	d.Cmd.Stdout, d.Cmd.Stderr = out, out
	testkit.Must(t, d.Cmd.Start())
	go func() { d.Ended <- d.Cmd.Wait() }()
	t.Cleanup(func() { d.Stop(t) })

	testkit.Eventually(t, "the daemon to be ready", func() bool {
		select {
		case err := <-d.Ended:
			d.Ended <- err
			t.Fatalf("blockd serve ended: %v\n%s", err, d.Log)
		default:
		}
		status, _ := d.Get("/readyz")
		return status == http.StatusOK || d.Unready && status != 0
	})
}

// Reload has the daemon look at its files at once.
func (d *Daemon) Reload(t *testing.T) {
	t.Helper()
	testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGHUP))
}

func (d *Daemon) Path(name string) string { return filepath.Join(d.Dir, name) }

// Stop ends the daemon as an init system does, and fails the test when it does
// not end well: a race report makes the exit status 66.
func (d *Daemon) Stop(t *testing.T) {
	t.Helper()
	d.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.Ended:
		if err != nil {
			t.Errorf("blockd serve ended with %v\n%s", err, d.Log)
		}
		d.Ended <- err
	case <-time.After(90 * time.Second):
		d.Cmd.Process.Kill()
		t.Errorf("blockd serve did not end within 90 s of SIGTERM\n%s", d.Log)
	}
	if t.Failed() {
		t.Logf("log of blockd, its end:\n%s", Tail(d.Log.String(), 8000))
	}
}

// Get asks the HTTP door; status 0 means no answer.
func (d *Daemon) Get(path string) (status int, body string) { return d.GetWith("", path) }

// GetWith is Get with a token.
func (d *Daemon) GetWith(token, path string) (status int, body string) {
	return d.request("GET", path, token, "")
}

// request asks the HTTP door, with a token unless it is "", and with fields of a header, "NAME: VALUE".
func (d *Daemon) request(method, path, token, body string, header ...string) (status int, answer string) {
	req, err := http.NewRequest(method, "http://"+d.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		header = append(header, "Authorization: Bearer "+token)
	}
	if body != "" {
		header = append(header, "Content-Type: application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return answered(http.DefaultClient.Do(req))
}

// answered is an answer of HTTP; status 0 means that there was none.
func answered(resp *http.Response, err error) (status int, body string) {
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

// Metric returns the value of one series as /metrics prints it, "" if absent.
func (d *Daemon) Metric(series string) string {
	_, body := d.Get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// Counted waits until a series of /metrics has a value: a daemon may count what it has done
// after it has told the client.
func (d *Daemon) Counted(t *testing.T, series, want string) {
	t.Helper()
	last := ""
	defer func() {
		if last != want {
			t.Logf("%s is %q, want %q", series, last, want)
		}
	}()
	testkit.Eventually(t, series+" "+want, func() bool {
		last = d.Metric(series)
		return last == want
	})
}

// CountedSome is counted for any value but zero.
func (d *Daemon) CountedSome(t *testing.T, series string) {
	t.Helper()
	testkit.Eventually(t, series, func() bool { n := d.Metric(series); return n != "" && n != "0" })
}

// Messages returns those in a Maildir's new/.
func Messages(t *testing.T, maildir string) []string {
	t.Helper()
	return testkit.Value(filepath.Glob(filepath.Join(maildir, "new", "*")))(t)
}

// Replace writes a file the way list tools do: aside, then renamed over the old.
func Replace(t *testing.T, path, text string) {
	t.Helper()
	testkit.Write(t, path+".new", text)
	testkit.Must(t, os.Rename(path+".new", path))
}

// NetworkOf is an address of a configuration, HOST:PORT or unix:PATH, for net.Dial.
func NetworkOf(address string) (network, where string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix", path
	}
	return "tcp", address
}

// Listens reports whether somebody listens at an address of a configuration.
func Listens(address string) bool {
	network, where := NetworkOf(address)
	conn, err := net.Dial(network, where)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
