package mysql

import (
	"bytes"
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

// packet is a packet of the protocol.
func packet(number byte, payload string) string {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	head[3] = number
	return string(head) + payload
}

// hostile is a server that takes any account, and answers every query by answer, and then by packets of the payload
// more without end, whose numbers go on from one. sent counts what the driver has let it send.
func hostile(t *testing.T, answer, more string, next byte) (address string, sent *atomic.Int64) {
	t.Helper()
	l, sent := testkit.Listen(t), &atomic.Int64{}
	serve := func(conn net.Conn) {
		defer conn.Close()
		const fine = "\x00\x00\x00\x02\x00\x00\x00"
		capabilities := "\x0d\xa2\x00\x00" // long password, database, protocol 4.1, transactions, secure connection
		io.WriteString(conn, packet(0, "\x0a8.0.0\x00\x01\x00\x00\x00abcdefgh\x00"+capabilities[:2]+"\x2d\x02\x00\x08\x00\x15"+strings.Repeat("\x00", 10)+"ijklmnopqrst\x00mysql_native_password\x00"))
		for n := 0; ; n++ {
			head := make([]byte, 4)
			if _, err := io.ReadFull(conn, head); err != nil {
				return
			}
			question := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
			if _, err := io.ReadFull(conn, question); err != nil {
				return
			}
			if n == 0 || bytes.HasPrefix(question, []byte("\x03set")) || bytes.HasPrefix(question, []byte("\x03SET")) || bytes.HasPrefix(question, []byte("\x03start")) {
				io.WriteString(conn, packet(head[3]+1, fine))
				continue
			}
			written, err := io.WriteString(conn, answer)
			for sent.Add(int64(written)); err == nil && more != ""; sent.Add(int64(written)) {
				written, err = io.WriteString(conn, packet(next, more))
				next++
			}
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
	const end = "\xfe\x00\x00\x02\x00"
	column := "\x03def\x00\x00\x00\x05entry\x00\x0c\x2d\x00\xff\x00\x00\x00\xfd\x00\x00\x00\x00\x00"
	head := packet(1, "\x01") + packet(2, column) + packet(3, end)
	endless := strings.Repeat("x", 1<<24-1)
	count := func(n uint64) string { return packet(1, "\xfe"+string(binary.LittleEndian.AppendUint64(nil, n))) }
	for _, tt := range []struct {
		name, answer, more, want string
		next                     byte
	}{
		{"a row without end", head, endless, "a row of more than", 4},
		{"a column without end", packet(1, "\x01"), endless, "a row of more than", 2},
		{"an error without end", "", "\xff" + endless[1:], "a row of more than", 1},
		{"results without end", packet(1, "\x00\x00\x00\x0a\x00\x00\x00"), "\x00\x00\x00\x0a\x00\x00\x00", "a row of more than", 2},
		{"columns for 80 GB", count(1 << 30), "", "a result of 1073741824 columns", 0},
		{"columns for the address space", count(1 << 41), "", "columns", 0},
		{"columns for more", count(1<<63 - 1), "", "columns", 0},
		{"a few columns too many", packet(1, "\xfc\x01\x10"), "", "a result of 4097 columns", 0},
		{"columns in three octets", packet(1, "\xfd\xff\xff\xff"), "", "a result of 16777215 columns", 0},
		{"a wish for a file", packet(1, "\xfb/etc/passwd"), "", "local file '/etc/passwd' is not registered", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, sent := hostile(t, tt.answer, tt.more, tt.next)
			s := testkit.Value(Open(Options{DSN: "mysql://u:p@" + address + "/d", Query: "select entry from t", Changes: query.None}))(t)
			defer s.Close()
			_, err := s.All(t.Context(), mirrortest.Skip)
			if err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("have %v, want %q", err, tt.want)
			}
			if sent.Load() > 4*maxRow {
				t.Errorf("took %d octets", sent.Load())
			}
		})
	}
}
