package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// milterTalk is one connection of a mail server to a milter. It writes the octets
// that Postfix would, as Postfix does: macros and event in one go.
type milterTalk struct {
	conn net.Conn
	out  []byte
	in   [64 << 10]byte
}

// Replies of a milter.
const (
	milterContinue = 'c'
	milterAccept   = 'a'
	milterReply    = 'y'
)

// dialMilter connects, negotiates all that there is, and tells of a client.
func dialMilter(d net.Dialer, address string) (*milterTalk, error) {
	conn, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	t := &milterTalk{conn: conn}
	offer := binary.BigEndian.AppendUint32(nil, 6)
	offer = binary.BigEndian.AppendUint32(offer, 0x1ff)    // actions
	offer = binary.BigEndian.AppendUint32(offer, 0x1fffff) // what may be left out
	t.packet('O', string(offer))
	got, body, err := t.exchange()
	if err == nil && (got != 'O' || len(body) < 12) {
		err = fmt.Errorf("answer %q to the negotiation", got)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	leaves := binary.BigEndian.Uint32(body[8:])
	const noConnectReply, noHeloReply = 0x1000, 0x2000
	t.macros('C', "j", "mail.bench.test", "{client_addr}", "192.0.2.7", "{daemon_name}", "smtpd", "v", "Postfix 3.7.11")
	t.packet('C', "client.bench.test\x004\xc0\x00192.0.2.7\x00")
	if err := t.answered(leaves&noConnectReply != 0, milterContinue); err != nil {
		return nil, err
	}
	t.packet('H', "client.bench.test\x00")
	if err := t.answered(leaves&noHeloReply != 0, milterContinue); err != nil {
		return nil, err
	}
	return t, t.flush()
}

// packet appends one to what is to be written.
func (t *milterTalk) packet(command byte, data string) {
	t.out = binary.BigEndian.AppendUint32(t.out, uint32(len(data)+1))
	t.out = append(append(t.out, command), data...)
}

func (t *milterTalk) macros(stage byte, texts ...string) {
	t.packet('D', string(stage)+strings.Join(texts, "\x00")+"\x00")
}

func (t *milterTalk) flush() error {
	_, err := t.conn.Write(t.out)
	t.out = t.out[:0]
	return err
}

// answered writes and reads one answer, unless none is to come.
func (t *milterTalk) answered(silent bool, want byte) error {
	if silent {
		return nil
	}
	got, _, err := t.exchange()
	if err == nil && got != want {
		err = fmt.Errorf("answer %q of the milter, want %q", got, want)
	}
	return err
}

// exchange writes what there is to write and reads one packet.
func (t *milterTalk) exchange() (command byte, data []byte, err error) {
	if err := t.flush(); err != nil {
		return 0, nil, err
	}
	n, err := io.ReadAtLeast(t.conn, t.in[:], 5)
	if err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(t.in[:])) + 4
	if size > len(t.in) {
		return 0, nil, fmt.Errorf("answer of %d octets", size)
	}
	if n < size {
		if _, err := io.ReadFull(t.conn, t.in[n:size]); err != nil {
			return 0, nil, err
		}
	}
	return t.in[4], t.in[5:size], nil
}

// mail is MAIL, and where that is not the end, RCPT and the end of the transaction.
// It returns how long the two answers took.
func (t *milterTalk) mail(sender string, want byte) (mail, rcpt time.Duration, err error) {
	t.macros('M', "{mail_addr}", sender, "{mail_host}", "bench.test", "{mail_mailer}", "smtp")
	t.packet('M', "<"+sender+">\x00")
	begun := time.Now()
	if err := t.answered(false, want); err != nil || want == milterAccept {
		return time.Since(begun), 0, err
	}
	mail = time.Since(begun)
	t.macros('R', "{rcpt_addr}", anyReceiver, "{rcpt_host}", "here.bench.test", "{rcpt_mailer}", "relay")
	t.packet('R', "<"+anyReceiver+">\x00")
	begun = time.Now()
	if err := t.answered(false, milterReply); err != nil {
		return mail, 0, err
	}
	rcpt = time.Since(begun)
	t.packet('A', "") // goes with the next
	return mail, rcpt, nil
}

// timedEvents are those that timeEvents times, in microseconds.
var timedEvents = [...]string{"MAIL", "MAIL, listed", "RCPT, listed"}

// timeEvents times events one by one on one connection: half of the senders listed.
func timeEvents(address string, n int, listed []string) (map[string]series, error) {
	t, err := dialMilter(net.Dialer{}, address)
	if err != nil {
		return nil, err
	}
	defer t.conn.Close()
	times := map[string]series{}
	note := func(event string, took time.Duration) {
		times[event] = append(times[event], float64(took.Nanoseconds())/1e3)
	}
	for i := range n / 2 {
		mail, _, err := t.mail(clearSender, milterAccept)
		if err != nil {
			return nil, err
		}
		note(timedEvents[0], mail)
		mail, rcpt, err := t.mail(listed[i%len(listed)], milterContinue)
		if err != nil {
			return nil, err
		}
		note(timedEvents[1], mail)
		note(timedEvents[2], rcpt)
	}
	return times, nil
}

// holdMilters opens n connections that have told of a client and ask nothing, and
// waits until the end of input. It prints a line when they stand.
func holdMilters(address string, n int, stdin io.Reader, stdout io.Writer) error {
	var held []*milterTalk
	for i := range n {
		t, err := dialMilter(net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/5000), 1)}, KeepAlive: -1}, address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
		held = append(held, t)
	}
	fmt.Fprintln(stdout, len(held))
	_, err := io.Copy(io.Discard, stdin)
	for _, t := range held {
		t.conn.Close()
	}
	return err
}
