package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadReply(t *testing.T) {
	many := strings.Repeat("250-x\r\n", MaxReplyLines-1)
	tests := []struct {
		name, input string
		code        int // 0: refused with err
		err         error
	}{
		{"one line", "250 Ok\r\n", 250, nil},
		{"without text", "250\r\n", 250, nil},
		{"with a blank only", "250 \r\n", 250, nil},
		{"multi-line, enhanced codes on each", "550-5.1.1 a\r\n550-5.1.1 b\r\n550 5.1.1 c\r\n", 550, nil},
		{"UTF-8 text", "250 grüß\r\n", 250, nil},
		{"TAB", "250 a\tb\r\n", 250, nil},
		{"most lines", many + "250 x\r\n", 250, nil},
		{"one line too many", many + "250-x\r\n250 x\r\n", 0, ErrReply},
		{"longest line", "250 " + strings.Repeat("x", MaxReplyLine-6) + "\r\n", 250, nil},
		{"line too long", "250 " + strings.Repeat("x", MaxReplyLine-5) + "\r\n", 0, ErrReply},
		{"line longer than the buffer", "250 " + strings.Repeat("x", 10_000) + "\r\n", 0, ErrReply},
		{"too long as a whole", strings.Repeat("250-"+strings.Repeat("x", 1000)+"\r\n", 70) + "250 x\r\n", 0, ErrReply},
		{"two codes", "250-a\r\n550 b\r\n", 0, ErrReply},
		{"bare LF", "250 Ok\n", 0, ErrReply},
		{"bare CR", "250 O\rk\r\n", 0, ErrReply},
		{"NUL", "250 O\x00k\r\n", 0, ErrReply},
		{"escape sequence", "250 \x1b[31m\r\n", 0, ErrReply},
		{"DEL", "250 \x7f\r\n", 0, ErrReply},
		{"two digits", "25 Ok\r\n", 0, ErrReply},
		{"four digits", "2500 Ok\r\n", 0, ErrReply},
		{"letters", "abc\r\n", 0, ErrReply},
		{"empty line", "\r\n", 0, ErrReply},
		{"1xx", "150 wait\r\n", 0, ErrReply},
		{"6xx", "600 what\r\n", 0, ErrReply},
		{"end of the stream", "", 0, io.EOF},
		{"end within a line", "250 O", 0, io.ErrUnexpectedEOF},
		{"end between two lines", "250-O\r\n", 0, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReader(iotest.HalfReader(strings.NewReader(tt.input)))
			got, err := ReadReply(r)
			if got.Code != tt.code || err != tt.err { // the very error: callers compare with ==
				t.Fatalf("ReadReply(%.40q) = %d, %v, want %d, %v", tt.input, got.Code, err, tt.code, tt.err)
			}
			if err == nil && string(got.Raw) != tt.input {
				t.Errorf("Raw = %.60q, want the input", got.Raw)
			}
		})
	}
}

func TestReadReplyPassesErrorsOn(t *testing.T) {
	if _, err := ReadReply(bufio.NewReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("250 Ok\r\n"))))); err != iotest.ErrTimeout {
		t.Errorf("ReadReply = %v, want %v", err, iotest.ErrTimeout)
	}
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte("250 Ok\r\n"))
	f.Add([]byte("250-a\r\n250-b\r\n250 c\r\n354 go\r\n"))
	f.Add([]byte("250-a\r\n251 b\r\n"))
	f.Add([]byte("421 bye\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		r := bufio.NewReader(iotest.HalfReader(bytes.NewReader(input)))
		rest := input
		for {
			got, err := ReadReply(r)
			if err != nil {
				if err != ErrReply && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("unexpected error %v", err)
				}
				return
			}
			if !bytes.HasPrefix(rest, got.Raw) {
				t.Fatalf("Raw %q is not what stood there: %q", got.Raw, rest)
			}
			rest = rest[len(got.Raw):]
			lines := bytes.Split(bytes.TrimSuffix(got.Raw, []byte("\r\n")), []byte("\r\n"))
			for i, line := range lines {
				if !bytes.HasPrefix(line, fmt.Append(nil, got.Code)) || bytes.ContainsAny(line, "\r\n\x00") {
					t.Fatalf("line %q in reply %d", line, got.Code)
				}
				if dash := len(line) > 3 && line[3] == '-'; dash != (i < len(lines)-1) {
					t.Fatalf("line %d of %q ends the reply or does not", i, got.Raw)
				}
			}
			if len(got.Raw) > MaxReply || len(lines) > MaxReplyLines {
				t.Fatalf("%d octets in %d lines", len(got.Raw), len(lines))
			}
		}
	})
}

func ExampleReadReply() {
	r := bufio.NewReader(strings.NewReader("550-5.1.1 no such user\r\n550 5.1.1 here\r\n"))
	reply, err := ReadReply(r)
	fmt.Printf("%d %q %v\n", reply.Code, reply.Raw, err)
	_, err = ReadReply(r)
	fmt.Println(errors.Is(err, io.EOF))
	// Output:
	// 550 "550-5.1.1 no such user\r\n550 5.1.1 here\r\n" <nil>
	// true
}
