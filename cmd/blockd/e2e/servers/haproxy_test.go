package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestBehindHAProxy has a real HAProxy in front that says who the client is, by
// either version of its protocol, and looks after its servers' health.
func TestBehindHAProxy(t *testing.T) {
	haproxy := testkit.Peer(t, "haproxy")
	for _, version := range []string{"send-proxy", "send-proxy-v2"} {
		t.Run(version, func(t *testing.T) {
			d := e2e.Configure(t, e2e.Setup{Lists: e2e.BadList, Files: e2e.BadFiles, SMTP: "proxy_from = [\"127.0.0.1\"]\n"})
			d.Start(t)
			front := e2e.FreeAddress(t)
			config := filepath.Join(t.TempDir(), "haproxy.cfg")
			testkit.Write(t, config, fmt.Sprintf(`
defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
listen smtp
  bind %s
  source 127.0.0.1
  server blockd %s %s check check-%s inter 100ms
`, front, d.SMTP, version, "send-proxy"))
			cmd := exec.Command(haproxy, "-db", "-f", config)
			out := &testkit.Log{}
			cmd.Stdout, cmd.Stderr = out, out
			testkit.Must(t, cmd.Start())
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
				if t.Failed() {
					t.Logf("haproxy:\n%s", out)
				}
			})
			testkit.Eventually(t, "HAProxy to listen", func() bool { return e2e.Listens(front) })

			c := e2e.DialFrom(t, "127.0.0.99", front)
			testkit.Begins(t, "a listed sender", c.Send("a@bulk.example", "you@here.example", nil), "550 5.7.1 ")
			testkit.Begins(t, "a clear sender", c.Send("friend@there.example", "you@here.example", e2e.Crlf([]byte("Subject: x\n\nhi\n"))), "250 ")
			d.Logged(t, 1, "client=127.0.0.99 ")
			// HAProxy's own address must not be the client of anybody's mail.
			testkit.Eventually(t, "health checks to be served", func() bool {
				return d.Metric("blockd_smtp_sessions_total") > "1"
			})
			testkit.Equal(t, "connections of HAProxy refused", d.Metric(`blockd_smtp_connections_refused_total{why="proxy"}`), "0")
		})
	}
}

// A client that pretends to be a proxy is sent away.
func TestProxyHeaderOfAClient(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{SMTP: "proxy_from = [\"192.0.2.0/24\"]\n"})
	c := e2e.DialTalk(t, d.SMTP)
	testkit.Begins(t, "PROXY", c.Command("PROXY TCP4 203.0.113.7 192.0.2.25 4711 25"), "500 ")
	if rest, err := c.R.ReadString('\n'); err == nil {
		t.Errorf("the session goes on: %q", rest)
	}
}
