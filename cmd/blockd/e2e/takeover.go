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
	"sync"
	"sync/atomic"
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

// Flow is mail and questions at all doors at once, while something happens to a daemon.
type Flow struct {
	t       *testing.T
	stop    chan struct{}
	odd     chan string
	clients sync.WaitGroup
	Passed  atomic.Int64
	longest atomic.Int64 // nanoseconds, of one exchange
}

// NewFlow is a flow without clients.
func NewFlow(t *testing.T) *Flow {
	return &Flow{t: t, stop: make(chan struct{}), odd: make(chan string, 100)}
}

// Run repeats one exchange, the n-th of a client, until the end. What is said of it is wrong.
func (f *Flow) Run(what string, exchange func(n int) string) {
	f.clients.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-f.stop:
				return
			default:
			}
			began := time.Now()
			if wrong := exchange(n); wrong != "" {
				select {
				case f.odd <- what + ": " + wrong:
				default:
				}
				return
			}
			took := time.Since(began).Nanoseconds()
			for most := f.longest.Load(); took > most && !f.longest.CompareAndSwap(most, took); most = f.longest.Load() {
			}
			f.Passed.Add(1)
		}
	})
}

// Mails sends one message by a connection of its own, every second one from a listed sender.
func (f *Flow) Mails(what, address string, accepted *atomic.Int64) {
	f.Run(what, func(n int) string {
		if n%2 == 0 {
			if got := OneReply(address, "a@mx.bulk.example"); !strings.HasPrefix(got, "550 5.7.1 ") {
				return fmt.Sprintf("a listed sender: %q", got)
			}
			return ""
		}
		if got := OneReply(address, "friend@there.example"); got != "250 " {
			return fmt.Sprintf("a clear sender: %q", got)
		}
		accepted.Add(1)
		return ""
	})
}

// Odd reports whether something was wrong.
func (f *Flow) Odd() bool { return len(f.odd) > 0 }

// Goes waits until so many more exchanges have passed, or one was wrong.
func (f *Flow) Goes(on int64) {
	f.t.Helper()
	before := f.Passed.Load()
	testkit.Eventually(f.t, "clients to be served", func() bool { return f.Passed.Load() >= before+on || f.Odd() })
}

// End ends all clients, and the test has failed if something was wrong.
func (f *Flow) End() {
	f.t.Helper()
	close(f.stop)
	f.clients.Wait()
	close(f.odd)
	for text := range f.odd {
		f.t.Error(text)
	}
	f.t.Logf("%d exchanges; the longest took %v", f.Passed.Load(), time.Duration(f.longest.Load()).Round(time.Millisecond))
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
