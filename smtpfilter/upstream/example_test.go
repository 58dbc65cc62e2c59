package upstream_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"strings"

	"github.com/emersion/go-smtp"

	"blockd/smtpfilter/upstream"
)

// A session with an SMTP server, ready for MAIL.
func ExampleDialer_Open() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return accepts{}, nil }))
	server.Domain, server.MaxMessageBytes = "next.example", 1000
	go server.Serve(l)
	defer server.Close()

	next := upstream.New(upstream.Settings{Network: "tcp", Address: l.Addr().String(), Hostname: "filter.example"})
	conn, err := next.Open(context.Background(), upstream.Client{
		Addr: netip.MustParseAddrPort("192.0.2.7:4321"), Helo: "client.example", ESMTP: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(strings.Join(conn.Caps.Lines, ", "))
	fmt.Println(conn.Caps.Has("PIPELINING"), conn.Caps.Size)
	// Output:
	// PIPELINING, 8BITMIME, ENHANCEDSTATUSCODES, CHUNKING, SIZE 1000
	// true 1000
}

// accepts is a session that takes every message.
type accepts struct{}

func (accepts) Reset()                               {}
func (accepts) Logout() error                        { return nil }
func (accepts) Mail(string, *smtp.MailOptions) error { return nil }
func (accepts) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (accepts) Data(r io.Reader) error               { _, err := io.Copy(io.Discard, r); return err }
