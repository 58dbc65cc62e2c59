package trial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// A policy service that says something else than an action, ends, or says nothing, ends the asking with a word.
func TestPolicyServiceThatDoesNotAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		stays      bool
		want       string
	}{
		{"something else", "hello\n\n", true, `the policy service says "hello\n", which is no action`},
		{"the end", "", false, "the policy service does not answer: EOF"},
		{"half an answer", "action=DUNNO\n", false, "the policy service does not answer: EOF"},
		{"nothing", "", true, "context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy")
			listener := testkit.Value(net.Listen("unix", path))(t)
			defer listener.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1000))
				_, _ = io.WriteString(conn, tt.says)
				if tt.stays {
					if tt.says == "" {
						cancel()
					}
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
			w := Configuration{socket: path}
			_, err := w.Policy(func(string) migration.Answer { return migration.Answer{} })(ctx, []migration.Mail{{Client: netip.MustParseAddr("192.0.2.1")}})
			testkit.Got(err)(t, "error", tt.want)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := Configuration{socket: filepath.Join(t.TempDir(), "none")}
	if _, err := w.Policy(nil)(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a connection that was given up: %v", err)
	}
}
