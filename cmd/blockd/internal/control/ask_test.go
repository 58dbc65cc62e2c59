package control

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8025": "127.0.0.1:8025", "0.0.0.0:8025": "127.0.0.1:8025", ":8025": "127.0.0.1:8025", "[::]:8025": "[::1]:8025",
		"192.0.2.1:80": "192.0.2.1:80", "mail.example:80": "mail.example:80",
	} {
		testkit.Equal(t, fmt.Sprintf("Reachable(%s)", listen), Reachable(listen), want)
	}
}

// A daemon that does not finish its answer has heard the question: it may have done what was asked, so nobody does it once more.
func TestFailedAnswersAreNoMissingDaemon(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		c := config.Default()
		c.HTTP.Socket, c.HTTP.TokenFile = config.None, config.None
		address := "127.0.0.1:0"
		if network == "unix" {
			c.HTTP.Listen, c.HTTP.Socket = "", filepath.Join(t.TempDir(), "s")
			address = c.HTTP.Socket
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if network == "tcp" {
			c.HTTP.Listen = l.Addr().String()
		}
		heard := make(chan struct{}, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1))
			heard <- struct{}{}
			conn.Close()
		}()
		var answer struct{}
		if err := Ask(t.Context(), c, http.MethodPost, "/v1/complaints", nil, &answer); err == nil || errors.Is(err, ErrNoDaemon) {
			t.Errorf("%s: %v", network, err)
		}
		<-heard
		l.Close()
		if err := Ask(t.Context(), c, http.MethodPost, "/v1/complaints", nil, &answer); !errors.Is(err, ErrNoDaemon) {
			t.Errorf("%s, nobody listens: %v", network, err)
		}
	}
}
