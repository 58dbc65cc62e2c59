package session

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/smtpfilter/upstream"
)

// TestUpstreamsGoodbyeIsRead: to close with its answer to QUIT unread would reset the
// connection under it. A client that does not hang up costs upstream nothing of that.
func TestUpstreamsGoodbyeIsRead(t *testing.T) {
	clients, servers := testkit.Listen(t), testkit.Listen(t)
	r := newRig(&script.Server{}, listChecker(t), Settings{ClientInfo: "none"})
	r.relay.upstream = upstream.New(upstream.Settings{Network: "tcp", Address: servers.Addr().String(), Hostname: hostname})
	ended := make(chan error, 1)
	go func() { // upstream
		conn, err := servers.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		io.WriteString(conn, "220 up\r\n")
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				ended <- err
				return
			case strings.HasPrefix(line, "QUIT"):
				io.WriteString(conn, "221 bye\r\n")
			default:
				io.WriteString(conn, "250 ok\r\n")
			}
		}
	}()
	client := testkit.Value(net.Dial("tcp", clients.Addr().String()))(t)
	defer client.Close()
	near := testkit.Value(clients.Accept())(t)
	go io.WriteString(client, "HELO client.example\r\nMAIL FROM:<a@good.example>\r\nRCPT TO:<bob@here.example>\r\nRSET\r\nGET / HTTP/1.1\r\n")
	r.relay.Run(context.Background(), near, testClient)
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Errorf("upstream's connection ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("upstream's connection is open")
	}
}
