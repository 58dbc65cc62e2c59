package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Upgraded sends SIGUSR2 to the newest process of d and waits for the next one, which must answer.
func (d *Daemon) Upgraded(t *testing.T) {
	t.Helper()
	before, failed := d.Newest(t), strings.Count(d.Log.String(), "not upgraded")
	testkit.Must(t, syscall.Kill(before, syscall.SIGUSR2))
	testkit.Eventually(t, "another process to take over", func() bool {
		if strings.Count(d.Log.String(), "not upgraded") > failed {
			t.Fatalf("not upgraded; log:\n%s", Tail(d.Log.String(), 4000))
		}
		return d.Newest(t) != before
	})
}

var upgradedTo = regexp.MustCompile(`msg="another process answers, .* pid=([0-9]+)`)

// Newest is the process that answers.
func (d *Daemon) Newest(t *testing.T) int {
	t.Helper()
	all := upgradedTo.FindAllStringSubmatch(d.Log.String(), -1)
	if len(all) == 0 {
		return d.Cmd.Process.Pid
	}
	return testkit.Value(strconv.Atoi(all[len(all)-1][1]))(t)
}

// Freshly asks by a connection of its own each time: a kept one may lead to a former process.
var Freshly = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Asked is what the newest process answers about a sender.
func (d *Daemon) Asked(t *testing.T, sender string) string {
	t.Helper()
	status, body := answered(Freshly.Get("http://" + d.HTTP + "/v1/check?sender=" + sender))
	testkit.MustEqual(t, body, status, http.StatusOK)
	return body
}

// Sum adds all series of a counter.
func (d *Daemon) Sum(name string) (sum float64) {
	_, body := answered(Freshly.Get("http://" + d.HTTP + "/metrics"))
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			sum += n
		}
	}
	return sum
}

// Readyz asks by a connection of its own: a kept one may lead to a former process.
func (d *Daemon) Readyz() (status int, body string) {
	return answered(Freshly.Get("http://" + d.HTTP + "/readyz"))
}

var begunBy = regexp.MustCompile(`msg="another process begins" .*pid=([0-9]+)`)

// Killed runs `blockd reload`, and kills the process that is to take over at some time before it is ready.
func (d *Daemon) Killed(t *testing.T, when string, r *rand.Rand) {
	t.Helper()
	before := len(begunBy.FindAllString(d.Log.String(), -1))
	ended := make(chan string, 1)
	go func() {
		code, out := d.Reloaded(t)
		ended <- fmt.Sprint(code, " ", out)
	}()
	pid := 0
	testkit.Eventually(t, when+": another process to begin", func() bool {
		all := begunBy.FindAllStringSubmatch(d.Log.String(), -1)
		if len(all) <= before {
			return false
		}
		fmt.Sscan(all[len(all)-1][1], &pid)
		return true
	})
	end := time.Now().Add(time.Duration(r.IntN(1500)) * time.Millisecond)
	testkit.Eventually(t, "the time of its end", func() bool { return time.Now().After(end) })
	syscall.Kill(pid, syscall.SIGKILL)
	if got := <-ended; !regexp.MustCompile(`^1 (?s:.*)config\.toml:[1-9][0-9]*: `).MatchString(got) {
		t.Errorf("%s: killed: blockd reload ends with %q", when, got)
	}
}

// Passing is the command that starts d with open listeners, as systemd does: the
// descriptors from 3 on, and LISTEN_PID, which only the process itself can know.
func Passing(t *testing.T, d *Daemon, listeners map[string]net.Listener) *exec.Cmd {
	t.Helper()
	var names []string
	var files []*os.File
	for name, l := range listeners {
		names, files = append(names, name), append(files, FileOf(t, l.(interface{ File() (*os.File, error) })))
	}
	return PassingFiles(d, names, files)
}

// FileOf is the descriptor of a socket, until the test ends.
func FileOf(t *testing.T, socket interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f := testkit.Value(socket.File())(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func PassingFiles(d *Daemon, names []string, files []*os.File) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, Program, "serve", "-c", d.Path("config.toml"))
	cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.ExtraFiles = files
	return cmd
}
