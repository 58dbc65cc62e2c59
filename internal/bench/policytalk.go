package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// policyConnections are the numbers of connections to the policy service.
var policyConnections = [...]int{1, 8}

// policyRequest is what Postfix 3.7 asks at RCPT, with the sender, and the number of
// the message.
const policyRequest = `request=smtpd_access_policy
protocol_state=RCPT
protocol_name=ESMTP
client_address=192.0.2.7
client_name=client.bench.test
client_port=41234
reverse_client_name=client.bench.test
server_address=192.0.2.1
server_port=25
helo_name=client.bench.test
sender=%s
recipient=you@here.bench.test
recipient_count=0
queue_id=
instance=1a2b.6560f0aa.%x.0
size=0
etrn_domain=
stress=
sasl_method=
sasl_username=
sasl_sender=
ccert_subject=
ccert_issuer=
ccert_fingerprint=
ccert_pubkey_fingerprint=
encryption_protocol=
encryption_cipher=
encryption_keysize=0
policy_context=

`

// listedEvery says which share of the questions is about listed senders: one in so
// many.
const listedEvery = 10

// askPolicy asks n questions, as many on each of so many connections, one at a time
// on each, and returns the seconds that they took.
func askPolicy(address string, connections, n int, listed []string) (float64, error) {
	faults := make([]error, connections)
	var askers sync.WaitGroup
	begun := time.Now()
	for i := range connections {
		askers.Go(func() {
			conn, err := dialPolicy(address, connections)
			if err == nil {
				err = askPolicyAlone(conn, i, n/connections, listed)
				conn.Close()
			}
			faults[i] = err
		})
	}
	askers.Wait()
	return time.Since(begun).Seconds(), errors.Join(faults...)
}

// dialPolicy connects in the way that costs this side least, for it shares the cores
// with the service: one connection by a blocking socket, as Postfix has it; several
// by Go's poller, since a thread each is woken for every answer (39,000 to 44,000
// questions a second on eight, against 48,000 to 53,000).
func dialPolicy(address string, connections int) (io.ReadWriteCloser, error) {
	if connections > 1 {
		return net.Dial("tcp", address)
	}
	return dialBlocking(address)
}

// askPolicyAlone asks on one connection.
func askPolicyAlone(conn io.ReadWriter, seed, n int, listed []string) error {
	question, answer := make([]byte, 0, 2048), make([]byte, 1024)
	for i := range n {
		sender, want := clearSender, "action=DUNNO\n\n"
		if i%listedEvery == 0 {
			sender, want = listed[(seed+i)%len(listed)], "action=550 "
		}
		question = fmt.Appendf(question[:0], policyRequest, sender, seed<<32+i)
		if _, err := conn.Write(question); err != nil {
			return err
		}
		have := 0
		for !bytes.HasSuffix(answer[:have], []byte("\n\n")) {
			got, err := conn.Read(answer[have:])
			if err != nil {
				return err
			}
			have += got
		}
		if !strings.HasPrefix(string(answer[:have]), want) {
			return fmt.Errorf("%s: answer %q, want %q", sender, answer[:have], want)
		}
	}
	return nil
}

// blockingConn is a socket that Go's poller does not know.
type blockingConn int

func dialBlocking(address string) (blockingConn, error) {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return 0, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	}
	if err != nil {
		syscall.Close(fd)
	}
	return blockingConn(fd), err
}

func (c blockingConn) Write(p []byte) (int, error) { return syscall.Write(int(c), p) }

func (c blockingConn) Read(p []byte) (int, error) {
	n, err := syscall.Read(int(c), p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (c blockingConn) Close() error { return syscall.Close(int(c)) }

// dunnoAll is the least that a policy service in Go can be: it looks for the empty
// line and answers; listed is who is not the one clear sender.
func dunnoAll(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 4096)
	have := 0
	for {
		got, err := conn.Read(buf[have:])
		if err != nil {
			return
		}
		if have += got; !bytes.HasSuffix(buf[:have], []byte("\n\n")) {
			continue
		}
		answer := "action=DUNNO\n\n"
		if !bytes.Contains(buf[:have], []byte("sender="+clearSender+"\n")) {
			answer = "action=550 5.7.1 listed\n\n"
		}
		have = 0
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}
