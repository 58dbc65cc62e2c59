package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

// neighbour is a local user that is neither root nor the daemon's.
const neighbour = 65533

// as runs a function whose sockets are those of a user: the kernel notes the file system user of the thread that
// makes one.
func as(t *testing.T, uid int, run func()) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, who may be two users")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			t.Error(err)
		}
		run()
	}()
	<-done
}

// Whoever has bound the daemon's address while it is down hears no token, however the command came by it, at any
// address that leads there.
func TestNoTokenForANeighbour(t *testing.T) {
	for _, tt := range []struct {
		name, listen, asked string
		uid                 int
		from                func(t *testing.T, c *config.Config)
		sent                bool
	}{
		{"token of the first start", "127.0.0.1:0", "127.0.0.1", neighbour, firstToken, false},
		{"token of the environment", "127.0.0.1:0", "127.0.0.1", neighbour, ofEnvironment, false},
		{"token of http.token_file", "127.0.0.1:0", "127.0.0.1", neighbour, ofFile, false},
		{"any address", "0.0.0.0:0", "127.0.0.1", neighbour, firstToken, false},
		{"both families", "[::]:0", "127.0.0.1", neighbour, firstToken, false},
		{"IPv6", "[::1]:0", "::1", neighbour, firstToken, false},
		{"a name", "127.0.0.1:0", "localhost", neighbour, firstToken, false},
		{"the daemon's user", "127.0.0.1:0", "127.0.0.1", neighbour, daemonsUser, true},
		{"root", "127.0.0.1:0", "127.0.0.1", 0, firstToken, true},
		{"root, any address", "[::]:0", "127.0.0.1", 0, firstToken, true},
		{"root, IPv6", "[::1]:0", "::1", 0, firstToken, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l net.Listener
			var err error
			as(t, tt.uid, func() { l, err = net.Listen("tcp", tt.listen) })
			if err != nil && strings.HasPrefix(tt.listen, "[::1]") {
				t.Skip("this machine has no IPv6")
			} else if err != nil {
				t.Fatal(err)
			}
			heard := make(chan string, 1)
			server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				heard <- r.Header.Get("Authorization")
				w.Write([]byte("{}"))
			})}
			go server.Serve(l)
			defer server.Close()
			c := config.Default()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			c.HTTP.Listen, c.HTTP.Socket = net.JoinHostPort(tt.asked, port), config.None
			c.Index.Path = filepath.Join(t.TempDir(), "blockd.bdx")
			tt.from(t, &c)
			var answer struct{}
			err = Ask(t.Context(), c, http.MethodPost, "/v1/reload", nil, &answer)
			if tt.sent {
				if err != nil || !strings.HasPrefix(<-heard, "Bearer token-of-") {
					t.Errorf("the daemon was not asked with a token: %v", err)
				}
				return
			}
			if !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), "no token is sent there: who listens is uid 65533, not the daemon's user") {
				t.Errorf("asked of a neighbour: %v", err)
			}
			select {
			case got := <-heard:
				t.Errorf("the neighbour heard %q", got)
			default:
			}
		})
	}
}

func firstToken(t *testing.T, c *config.Config) { writeToken(t, c.FirstToken()) }

func ofEnvironment(t *testing.T, _ *config.Config) { t.Setenv(tokenVariable, "token-of-a-person") }

func ofFile(t *testing.T, c *config.Config) {
	c.HTTP.TokenFile = filepath.Join(t.TempDir(), "token")
	writeToken(t, c.HTTP.TokenFile)
}

func daemonsUser(t *testing.T, c *config.Config) {
	firstToken(t, c)
	testkit.Must(t, os.Chown(filepath.Dir(c.Index.Path), neighbour, -1))
}

func writeToken(t *testing.T, path string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, []byte("token-of-a-file-it-is\n"), 0o600))
}

// A neighbour who has accepted the connection, and no longer listens, is none that the daemon's return makes
// trustworthy.
func TestNoTokenForWhoHasListened(t *testing.T) {
	var l, conn net.Conn
	as(t, neighbour, func() {
		listener := testkit.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer listener.Close()
		conn = testkit.Value(new(net.Dialer).DialContext(context.Background(), "tcp", listener.Addr().String()))(t)
		l = testkit.Value(listener.Accept())(t)
	})
	if l == nil || conn == nil {
		t.Fatal("no connection")
	}
	defer l.Close()
	defer conn.Close()
	again := testkit.Value(net.Listen("tcp", conn.RemoteAddr().String()))(t) // the daemon is back
	defer again.Close()
	c := config.Default()
	c.Index.Path = filepath.Join(t.TempDir(), "blockd.bdx")
	if err := proveListener(c, conn); !errors.Is(err, errStranger) {
		t.Errorf("proveListener = %v", err)
	}
}
