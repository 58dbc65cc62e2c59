package postgres

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// message is a message of the protocol.
func message(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))) + body
}

// hostile is a server that takes any account, answers the questions of a connection by these in turn, the last one of
// which goes on without end if more is not "". sent counts what the driver has let it send.
func hostile(t *testing.T, more string, answers ...string) (address string, sent *atomic.Int64) {
	t.Helper()
	l, sent := testkit.Listen(t), &atomic.Int64{}
	serve := func(conn net.Conn) {
		defer conn.Close()
		length := make([]byte, 4)
		io.ReadFull(conn, length)
		io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(length))-4)
		asked := make(chan struct{})
		go func() { defer close(asked); io.Copy(io.Discard, conn) }() // whatever it is
		for _, answer := range answers {
			n, _ := io.WriteString(conn, answer)
			sent.Add(int64(n))
		}
		for err := error(nil); err == nil && more != ""; {
			var n int
			n, err = io.WriteString(conn, more)
			sent.Add(int64(n))
		}
		if more == "" {
			<-asked
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String(), sent
}

// A server may send what it likes: neither memory nor the process is its own.
func TestHostileAnswers(t *testing.T) {
	ready := message('R', "\x00\x00\x00\x00") + message('K', "\x00\x00\x00\x01\x00\x00\x00\x02") + message('Z', "I")
	column := func(n int) string {
		return message('T', string([]byte{0, byte(n)})+strings.Repeat("x\x00"+strings.Repeat("\x00", 18), n))
	}
	row := func(texts ...string) string {
		body := string([]byte{0, byte(len(texts))})
		for _, text := range texts {
			body += string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
		}
		return message('D', body)
	}
	described := message('1', "") + message('2', "") // parsed, bound
	pid := described + column(1) + row("1") + message('C', "SELECT 1\x00") + message('Z', "I")
	large := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, more string
		answers    []string
		want       string
	}{
		{"it tells of itself without end", message('S', "a\x00"+large+"\x00"), []string{message('R', "\x00\x00\x00\x00")}, "tells of itself without end"},
		{"and after the login", message('S', "a\x00"+large[:1000]+"\x00"), []string{ready}, "tells of itself without end"},
		{"a message of a gigabyte", large, []string{ready, "D\x40\x00\x00\x00"}, "a row of more than 32 MiB"},
		{"a message of four", large, []string{ready, "D\xff\xff\xff\xff"}, "unreachable"},
		{"a row of no columns", "", []string{ready, described + column(1) + row() + message('C', "SELECT 1\x00") + message('Z', "I")}, "a row of 0 columns in place of 1"},
		{"fewer columns than were asked for", "", []string{ready, pid, described + column(1) + row("1") + message('C', "SELECT 1\x00") + message('Z', "I")}, "the result has 1 columns in place of 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, sent := hostile(t, tt.more, tt.answers...)
			s := testkit.Value(Open(Options{DSN: "postgres://u:p@" + address + "/d?sslmode=disable", Query: "select entry from t", Changes: query.None}))(t)
			defer s.Close()
			_, err := s.Fingerprint(t.Context())
			if err == nil {
				_, err = s.All(t.Context(), mirrortest.Skip)
			}
			if err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("have %v, want %q", err, tt.want)
			}
			if sent.Load() > 2*maxAnswer {
				t.Errorf("took %d octets", sent.Load())
			}
		})
	}
}

// Rows that are kept have a bound, and rows that nobody asked for are not kept.
func TestRowsAreBounded(t *testing.T) {
	if _, err := (&chunks{text: make([]byte, maxAnswer)}).Write([]byte("x")); err == nil {
		t.Error("a row of a COPY without end")
	}
}
