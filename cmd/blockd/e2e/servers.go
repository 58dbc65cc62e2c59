package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Sink runs Postfix's smtp-sink, which takes every message, on a loopback
// address.
func Sink(t *testing.T, options ...string) (address string) {
	t.Helper()
	address = FreeAddress(t)
	RunSink(t, address, options...)
	return address
}

// RunSink is Sink at an address of the test, HOST:PORT or unix:PATH.
func RunSink(t *testing.T, address string, options ...string) {
	t.Helper()
	if os.Geteuid() == 0 {
		options = append(options, "-u", "nobody")
	}
	StartServer(t, exec.Command(testkit.Peer(t, "smtp-sink"), append(options, "-m", "12000", address, "1000")...), address)
}

// Soak runs what make test shortens at full length.
var Soak = flag.Bool("soak", false, "long runs at full length")

// SinkMail sends mail with Postfix's smtp-source.
type SinkMail struct{ Source string }

// Run sends mails of 1 KB by 20 sessions, each on a connection of its own. None
// may fail.
func (s *SinkMail) Run(t *testing.T, address string, mails int) time.Duration {
	t.Helper()
	began := time.Now()
	out, err := exec.Command(s.Source, "-s", "20", "-m", fmt.Sprint(mails), "-l", "1024",
		"-f", "friend@there.example", "-t", "you@here.example", address).CombinedOutput()
	if err != nil {
		t.Fatalf("smtp-source: %v\n%s", err, out)
	}
	return time.Since(began)
}

// StartServer runs a server of one address in the foreground until the test ends. What it says goes where cmd says, else
// into the log of a test that fails.
func StartServer(t *testing.T, cmd *exec.Cmd, address string) {
	t.Helper()
	StartProgram(t, cmd, func() string { return "" }, func() bool { return Listens(address) })
}

// StartProgram is StartServer for a server of which a test knows when it is ready, and what it logs elsewhere.
func StartProgram(t *testing.T, cmd *exec.Cmd, logs func() string, ready func() bool) {
	t.Helper()
	log := &testkit.Log{}
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = log, log
	} else if own, is := cmd.Stdout.(*testkit.Log); is {
		log = own
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	cmd.WaitDelay = 5 * time.Second // a child that is left keeps the pipes open
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s did not end within a minute of SIGTERM", cmd.Path)
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group is ours: Setsid
		if t.Failed() {
			t.Logf("log of %s, its end:\n%s\n%s", filepath.Base(cmd.Path), Tail(log.String(), 4000), Tail(logs(), 4000))
		}
	})
	testkit.Eventually(t, cmd.Path+" to be ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s\n%s", cmd.Path, err, log, logs())
		default:
		}
		return ready()
	})
}

// Scanned is what rspamd says of a message.
type Scanned struct {
	Action  string
	Skipped bool `json:"is_skipped"`
	Symbols map[string]any
}

// Scan has the rspamd at an address look at a message, with fields of the request that tell of its envelope.
func Scan(address, message string, envelope map[string]string) (s Scanned, err error) {
	req, err := http.NewRequest("POST", "http://"+address+"/checkv2", strings.NewReader(message))
	if err != nil {
		return s, err
	}
	for name, value := range envelope {
		req.Header.Set(name, value)
	}
	status, text := answered(http.DefaultClient.Do(req))
	if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusOK {
		return s, fmt.Errorf("rspamd: %d, %w: %s", status, err, text)
	}
	return s, nil
}

// RunRspamd starts a real rspamd with options and modules, and returns where it scans.
func RunRspamd(t *testing.T, options, modules string) (scanner string) {
	t.Helper()
	rspamd := testkit.Peer(t, "rspamd")
	dir, err := os.MkdirTemp("", "blockd-rspamd-") // its user has to get there
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o777))
	scanner = FreeAddress(t)
	testkit.Write(t, filepath.Join(dir, "rspamd.conf"), strings.NewReplacer("FOLDER", dir, "SCANNER", scanner, "OPTIONS", options).Replace(`
lua = "$RULESDIR/rspamd.lua"
options {
  filters = "";
  pidfile = "FOLDER/pid";
  url_tld = "$SHAREDIR/effective_tld_names.dat";
  cache_file = "FOLDER/symbols.cache";
  control_socket = "FOLDER/control mode=0600";OPTIONS
}
logging { type = "console"; level = "info"; }
worker "normal" { bind_socket = "SCANNER"; count = 1; }
metric { name = "default"; actions { reject = 15; } }
`)+modules)
	args := []string{"-f", "-c", filepath.Join(dir, "rspamd.conf"), "--var=DBDIR=" + dir, "--var=RUNDIR=" + dir, "--var=LOGDIR=" + dir}
	if _, err := user.Lookup("_rspamd"); err == nil && os.Geteuid() == 0 {
		args = append(args, "-u", "_rspamd", "-g", "_rspamd")
	} else if os.Geteuid() == 0 {
		args = append(args, "-i")
	}
	StartServer(t, exec.Command(rspamd, args...), scanner)
	return scanner
}
