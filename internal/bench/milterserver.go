package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// runMilterServer is `bench milter-pass LISTEN`, `policy-dunno LISTEN`, `dns-nobody LISTEN` and
// `milter-hold ADDRESS CONNECTIONS`, as processes of their own; ok is false for
// other words.
func runMilterServer(args []string, stdin io.Reader, stdout io.Writer) (err error, ok bool) {
	switch {
	case len(args) == 2 && args[0] == "milter-pass":
		return serveAll(args[1], passAll), true
	case len(args) == 2 && args[0] == "policy-dunno":
		return serveAll(args[1], dunnoAll), true
	case len(args) == 2 && args[0] == "dns-nobody":
		conn, err := net.ListenPacket("udp", args[1])
		if err != nil {
			return err, true
		}
		go answerNobody(conn)
		return serveAll(args[1], func(conn net.Conn) { conn.Close() }), true // to be seen to be there
	case len(args) == 3 && args[0] == "milter-hold":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err, true
		}
		return holdMilters(args[1], n, stdin, stdout), true
	}
	return nil, false
}

// passAll is the least that a milter in Go can be: it asks for no answers but at
// MAIL, and accepts.
func passAll(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1024)
	var head [5]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(head[:])) - 1); err != nil {
			return
		}
		answer := ""
		switch head[4] {
		case 'O': // version 6, no actions; no connection and HELO replies, no header, body, DATA, unknown commands
			answer = "\x00\x00\x00\x0dO\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x33\x70"
		case 'M':
			answer = "\x00\x00\x00\x01a"
		case 'Q':
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// answerNobody answers every question to the DNS with NXDOMAIN (RFC 1035, section
// 4.1.1), at once.
func answerNobody(conn net.PacketConn) {
	packet := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if n < 12 {
			continue
		}
		end := 12 // of the question: labels, a zero octet, type and class
		for end < n && packet[end] != 0 {
			end += 1 + int(packet[end])
		}
		if end += 5; end > n {
			continue
		}
		packet[2], packet[3] = 0x81, 0x83
		packet[6], packet[7], packet[8], packet[9], packet[10], packet[11] = 0, 0, 0, 0, 0, 0
		conn.WriteTo(packet[:end], from)
	}
}

// refusedAtEnd is refusals at a server that refuses behind the end of a message.
// Each message has a connection of its own.
func refusedAtEnd(ctx context.Context, address string, total int, senders []string) (float64, error) {
	var left atomic.Int64
	left.Store(int64(total))
	var clients sync.WaitGroup
	faults := make(chan error, smtpSessions)
	begun := time.Now()
	for range smtpSessions {
		clients.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				if err := messageRefused(ctx, address, senders[int(n)%len(senders)]); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	clients.Wait()
	select {
	case err := <-faults:
		return 0, err
	default:
		return time.Since(begun).Seconds(), nil
	}
}

func messageRefused(ctx context.Context, address, sender string) error {
	t, err := dialTalk(ctx, address)
	if err != nil {
		return err
	}
	defer t.close()
	for _, step := range []struct{ text, want string }{
		{"MAIL FROM:<" + sender + ">", "250"}, {"RCPT TO:<" + anyReceiver + ">", "250"}, {"DATA", "354"}, {oneKilobyte, "554"}, {"QUIT", "221"},
	} {
		if err := t.say(step.text, step.want); err != nil {
			return err
		}
	}
	return nil
}
