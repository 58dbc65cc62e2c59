package session

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"blockd/internal/testkit/script"
	"blockd/policy"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// beginAuth is a session behind a STARTTLS that adds nothing, in which AUTH may be said.
func beginAuth(t *testing.T, server *script.Server, checker *policy.Checker) (*rig, *client) {
	t.Helper()
	r, c := begin(t, server, checker, Settings{Auth: "forward",
		StartTLS: func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }})
	c.want("STARTTLS", "220")
	c.want("EHLO client.example", "250")
	return r, c
}

// TestAuthLinesMayBeLong, and no others: 12,288 octets with CRLF (RFC 4954, section 4).
func TestAuthLinesMayBeLong(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"PIPELINING", "AUTH PLAIN XOAUTH2"}}
		_, c := beginAuth(t, server, checker)
		c.want("NOOP "+strings.Repeat("x", wire.MaxLine), "500 5.5.2")
		c.want("AUTH XOAUTH2 "+strings.Repeat("A", wire.MaxAuthLine), "500 5.5.2")

		server.On("AUTH", "334 ")
		c.want("AUTH XOAUTH2", "334")
		c.want(strings.Repeat("A", wire.MaxAuthLine), "500 5.5.6")

		server.On("AUTH", "334 ")
		server.On(script.SASL, "535 5.7.8 no")
		long := strings.Repeat("A", wire.MaxAuthLine-2)
		c.want("AUTH XOAUTH2", "334")
		c.want(long, "535 5.7.8")
		first := "AUTH XOAUTH2 " + strings.Repeat("A", wire.MaxAuthLine-2-len("AUTH XOAUTH2 "))
		c.want(first, "235")
		c.want("NOOP "+strings.Repeat("x", wire.MaxLine), "500 5.5.2")
		c.quit()
		server.Wait()
		if want := []string{"AUTH XOAUTH2", "AUTH XOAUTH2", long, first}; !slices.Equal(server.Log(), want) {
			t.Errorf("upstream read %d lines, want the %d of the exchanges", len(server.Log()), len(want))
		}
		if faults := server.Faults(); len(faults) > 0 {
			t.Errorf("upstream's view: %q", faults)
		}
	})
}

// TestAuthNeedsSecretConnections: where others could listen, on either connection, AUTH is not
// offered, whatever upstream announces.
func TestAuthNeedsSecretConnections(t *testing.T) {
	tests := []struct {
		name             string
		auth             string
		client, tls, own bool
		want             string
	}{
		{"TLS on both connections", "forward", true, true, false, "PLAIN"},
		{"upstream on this machine", "forward", true, false, true, "PLAIN"},
		{"upstream in the clear", "forward", true, false, false, ""},
		{"client in the clear", "forward", false, true, true, ""},
		{"switched off", "off", true, true, true, ""},
		{"not configured", "", true, true, true, ""},
	}
	for _, tt := range tests {
		s := &session{Relay: &Relay{settings: Settings{Auth: tt.auth}}, overTLS: tt.client}
		if got := s.mechanisms("AUTH PLAIN EXTERNAL", upstream.Caps{TLS: tt.tls, Local: tt.own}); got != tt.want {
			t.Errorf("%s: offers %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAuthEndlessChallenges: an upstream that never comes to a verdict.
func TestAuthEndlessChallenges(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"AUTH PLAIN"}}
		server.On("AUTH", "334 ")
		for range 100 {
			server.On(script.SASL, "334 ")
		}
		_, c := beginAuth(t, server, checker)
		c.want("AUTH PLAIN", "334")
		for range maxRounds - 1 {
			c.want("YQ==", "334")
		}
		c.want("YQ==", "421 4.7.0")
		<-c.ended
		server.Wait()
	})
}

// What a client says to log in is overwritten, whatever becomes of the command.
func TestAuthLeavesNoPasswordInMemory(t *testing.T) {
	long := strings.Repeat("QUJD", 1500) // longer than other commands, so that a buffer is lent
	for _, tc := range []struct{ name, before, auth, reply string }{
		{"passed on", "RSET", "AUTH PLAIN " + long, "235"},
		{"within a transaction", "MAIL FROM:<a@good.example>", "AUTH PLAIN " + long, "503"},
		{"malformed", "RSET", "AUTH PLAIN " + long + " \x01", "501"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c := beginAuth(t, &script.Server{Caps: []string{"AUTH PLAIN"}}, listChecker(t))
			var lent []*[dataBuffer]byte
			r.relay.buffers.New = func() any {
				lent = append(lent, new([dataBuffer]byte))
				return lent[len(lent)-1]
			}
			c.want(tc.before, "250")
			c.want(tc.auth, tc.reply)
			c.want("QUIT", "221")
			c.close()
			if len(lent) == 0 {
				t.Fatal("no buffer was lent")
			}
			for _, b := range lent {
				if bytes.Contains(b[:], []byte(long[:100])) {
					t.Error("the buffer still has it")
				}
			}
		})
	}
}
