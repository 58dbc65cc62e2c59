package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// The servers of our own run as processes of this program, `bench smtp-…`, so that
// their CPU time is theirs alone.

// runServer is `bench smtp-pipe LISTEN UPSTREAM`, `smtp-refuse LISTEN`,
// `smtp-hold ADDRESS SESSIONS` and `http-bare LISTEN CLEAR LISTED`; ok is false for other words.
func runServer(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool) {
	var err error
	switch {
	case len(args) == 3 && args[0] == "smtp-pipe":
		err = serveAll(args[1], func(conn net.Conn) { pipe(conn, args[2]) })
	case len(args) == 2 && args[0] == "smtp-refuse":
		err = serveAll(args[1], refuseAll)
	case len(args) == 3 && args[0] == "smtp-hold":
		var n int
		if n, err = strconv.Atoi(args[2]); err == nil {
			err = holdSessions(context.Background(), args[1], n, stdin, stdout)
		}
	case len(args) == 4 && args[0] == "http-bare":
		err = serveBare(args[1], args[2:]...)
	default:
		if err, ok = runMilterServer(args, stdin, stdout); !ok {
			if err, ok = runBlind(args); !ok {
				return 0, false
			}
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1, true
	}
	return 0, true
}

func serveAll(address string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(conn)
	}
}

// pipe is the least that a proxy in Go can be: package net moves the octets by
// splice, and nobody looks at them.
func pipe(client net.Conn, to string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer upstream.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(upstream, client)
		upstream.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(client, upstream)
	client.(*net.TCPConn).CloseWrite()
	<-done
}

// refuseAll is the least that a server that refuses can be: it reads lines and
// answers by their first letter.
func refuseAll(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1024)
	answer := "220 refuse.bench.test ESMTP\r\n"
	for {
		if _, err := io.WriteString(conn, answer); err != nil || strings.HasPrefix(answer, "221") {
			return
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		switch line[0] {
		case 'Q':
			answer = "221 2.0.0 Bye\r\n"
		case 'R':
			answer = "250 2.0.0 Ok\r\n"
			if line[1] == 'C' {
				answer = "550 5.7.1 Sender address rejected\r\n"
			}
		default:
			answer = "250 2.1.0 Ok\r\n"
		}
	}
}
