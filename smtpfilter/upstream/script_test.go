package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// A script is what a server of the tests does, step by step:
//
//	"S: TEXT"   sends TEXT and CRLF
//	"R: TEXT"   sends TEXT as it is
//	"C: LINE"   expects LINE and CRLF
//	"hang"      reads until the client gives up
//
// At the end it expects the client to close, or, after "close", closes itself.
type script []string

// run plays s on conn and returns where the client departed from it.
func (s script) run(conn net.Conn) error {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if over, err := s.play(conn, r); over || err != nil {
		return err
	}
	if line, err := r.ReadString('\n'); err == nil {
		return fmt.Errorf("client says %q, want its end", line)
	}
	return nil
}

// play is run without the end: over means that the script itself has ended it.
func (s script) play(conn net.Conn, r *bufio.Reader) (over bool, err error) {
	for _, step := range s {
		kind, text, _ := strings.Cut(step, ": ")
		switch kind {
		case "S":
			text += "\r\n"
			fallthrough
		case "R":
			if _, err := io.WriteString(conn, text); err != nil {
				return false, fmt.Errorf("at %q: %w", step, err)
			}
		case "C":
			line, err := r.ReadString('\n')
			if err != nil {
				return false, fmt.Errorf("at %q: %w", step, err)
			}
			if line != text+"\r\n" {
				return false, fmt.Errorf("client says %q, want %q", line, text+"\r\n")
			}
		case "hang":
			io.Copy(io.Discard, r)
			return true, nil
		case "close":
			return true, nil
		}
	}
	return false, nil
}

// pipe returns a Dial that plays s at the other end of a pipe, and a check that
// the client kept to it.
func (s script) pipe(t *testing.T) (dial func(context.Context) (net.Conn, error), check func()) {
	done := make(chan error, 1)
	dial = func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { done <- s.run(server) }()
		return client, nil
	}
	return dial, func() {
		t.Helper()
		testkit.Should(t, <-done)
	}
}

// listen plays s to each client of a TCP listener until the test ends.
func (s script) listen(t *testing.T) (address string) {
	l := testkit.Listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			testkit.Should(t, s.run(conn))
		}
	}()
	return l.Addr().String()
}
