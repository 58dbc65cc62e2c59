package mailbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

// pipeSession is a session over a pipe in memory, whose deadlines follow the
// clock of a synctest bubble.
func pipeSession(t *testing.T, m *Server) *raw {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	c := newConn(m, far)
	m.mu.Lock()
	m.conns[c] = struct{}{}
	m.mu.Unlock()
	m.incoming <- c
	return &raw{t, near, bufio.NewReader(near)}
}

// begin brings a session to where the message is expected.
func (r *raw) begin() {
	r.t.Helper()
	r.want("220")
	for _, step := range [][2]string{
		{"EHLO c\r\n", "250"}, {"MAIL FROM:<a@b.example>\r\n", "250"}, {"RCPT TO:<c@d.example>\r\n", "250"}, {"DATA\r\n", "354"},
	} {
		r.send(step[0])
		r.want(step[1])
	}
}

func TestSilentClientIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, Settings{Dir: filepath.Join(t.TempDir(), "mail")})
		r := pipeSession(t, m)
		r.want("220")
		begin := time.Now()
		r.want("421 4.4.2")
		r.wantEnd()
		testkit.Equal(t, "after", time.Since(begin), idleTimeout)
	})
}

func TestSilenceWithinAMessageIsTemporary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, Settings{})
		r := pipeSession(t, m)
		r.begin()
		r.send("half\r\n")
		begin := time.Now()
		r.want("451 4.3.0")
		r.want("421 4.4.2")
		r.wantEnd()
		testkit.Equal(t, "after", time.Since(begin), idleTimeout)
		if names, _ := files(t, m, "new"); len(names) != 0 {
			t.Errorf("new/ holds %q, want nothing", names)
		}
	})
}

// A line a minute is not silence, but does not make a session for ever.
func TestTrickleEndsWithTheHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, Settings{})
		r := pipeSession(t, m)
		r.begin()
		begin := time.Now()
		for {
			if _, err := io.WriteString(r.conn, "x\r\n"); err != nil {
				break
			}
			<-time.After(time.Minute)
		}
		if took := time.Since(begin); took < receiveTimeout || took > receiveTimeout+time.Minute {
			t.Errorf("after %s, want %s, as seen with the next line", took, receiveTimeout)
		}
		if names, _ := files(t, m, "new"); len(names) != 0 {
			t.Errorf("new/ holds %q, want nothing", names)
		}
	})
}

// A pipe that nobody reads stands for a disk that does not answer: no write to
// it ends. The client is not kept.
func TestHangingDiskDoesNotHoldTheClient(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "disk")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip("no named pipes here: ", err)
	}
	disk := testkit.Value(os.OpenFile(fifo, os.O_RDWR, 0))(t)
	defer disk.Close()
	m := start(t, Settings{})
	m.receiveTimeout = 50 * time.Millisecond
	m.maildir.create = func(string) (*os.File, error) { return os.OpenFile(fifo, os.O_WRONLY, 0) }
	r := rawSession(t, m)
	r.begin()
	// The pipe takes 64 KiB and the socket a few hundred, then all stands still.
	io.WriteString(r.conn, strings.Repeat(strings.Repeat("x", 998)+"\r\n", 4000)) // cut off
	if line, err := r.r.ReadString('\n'); err == nil {
		t.Errorf("client reads %q, want the end of the session", line)
	}
	go io.Copy(io.Discard, disk) // the disk answers again
	select {
	case <-m.shutdownDone(t):
	case <-time.After(time.Minute):
		t.Error("the session's goroutine does not end")
	}
}

// shutdownDone ends m and returns a channel that is closed when all sessions have.
func (m *Server) shutdownDone(t *testing.T) <-chan struct{} {
	t.Helper()
	go m.Shutdown(t.Context())
	return m.empty
}

func TestNewCleansUpAfterItself(t *testing.T) {
	dir := t.TempDir()
	start(t, Settings{Dir: dir})
	for _, sub := range []string{"tmp", "new", "cur"} {
		entries := testkit.Value(os.ReadDir(filepath.Join(dir, sub)))(t)
		testkit.Equal(t, fmt.Sprintf("%s/ holds %v, want nothing", sub, entries), len(entries), 0)
		info := testkit.Value(os.Stat(filepath.Join(dir, sub)))(t)
		testkit.Equal(t, fmt.Sprintf("%s/ has mode", sub), info.Mode().Perm(), 0o700)
	}
	testkit.Fails(New(Settings{Dir: "/dev/null/mail"}, quiet()))(t, "New below a file", syscall.ENOTDIR)
}
