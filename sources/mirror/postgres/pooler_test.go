package postgres

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// TestPooler: pgbouncer is refused where it gives a connection to another client after each transaction.
func TestPooler(t *testing.T) {
	program := testkit.Peer(t, "pgbouncer")
	name, o := database(t, "", Options{Notify: "channel"})
	for _, tt := range []struct {
		mode string
		want mirror.Class
	}{{"transaction", mirror.ClassRefused}, {"statement", mirror.ClassRefused}, {"session", ""}} {
		t.Run(tt.mode, func(t *testing.T) {
			host, port, _ := net.SplitHostPort(testkit.Unused(t))
			_, behind, _ := net.SplitHostPort(shared.Address)
			dir, err := os.MkdirTemp(shared.Dir, "bouncer-")
			testkit.Must(t, err)
			testkit.Must(t, os.Chmod(dir, 0o755))
			file := filepath.Join(dir, "ini")
			testkit.Write(t, file, fmt.Sprintf(`[databases]
* = host=%s port=%s user=reader
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
`, shared.Dir, behind, host, port, tt.mode))
			cmd := shared.Command(program, file)
			testkit.Must(t, cmd.Start())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
			testkit.Eventually(t, "pgbouncer", func() bool {
				conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
			o.DSN = fmt.Sprintf("postgres://reader@%s/%s", net.JoinHostPort(host, port), name)
			s := open(t, o)
			_, err = s.Fingerprint(t.Context())
			mirrortest.WantFault(t, err, tt.want, "")
			if tt.want == "" {
				mirrortest.Rows(t, s)
			}
		})
	}
}
