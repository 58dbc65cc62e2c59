package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"blockd/internal/testkit"
)

func TestLine(t *testing.T) {
	longest := strings.Repeat("x", MaxLine-2)
	tests := []struct {
		name, input, want string
		err               error
	}{
		{"plain", "NOOP\r\n", "NOOP", nil},
		{"empty", "\r\n", "", nil},
		{"longest", longest + "\r\n", longest, nil},
		{"one octet too long", longest + "x\r\n", "", ErrLongLine},
		{"far too long", strings.Repeat("x", 100_000) + "\r\n", "", ErrLongLine},
		{"too long, ended by a bare LF", strings.Repeat("x", 100_000) + "\n", "", ErrBare},
		{"without end", strings.Repeat("x", maxSkip+2*MaxLine), "", ErrEndlessLine},
		{"bare LF", "NOOP\n", "", ErrBare},
		{"bare LF alone", "\n", "", ErrBare},
		{"bare LF before CRLF", "MAIL FROM:<a@b.example>\nRCPT TO:<c@d.example>\r\n", "", ErrBare},
		{"bare CR", "NO\rOP\r\n", "", ErrBare},
		{"CR CR LF", "NOOP\r\r\n", "", ErrBare},
		{"NUL", "NO\x00OP\r\n", "", ErrBare},
		{"end of the stream", "", "", io.EOF},
		{"end of the stream within a line", "QUI", "", io.ErrUnexpectedEOF},
		{"end of the stream behind CR", "QUIT\r", "", io.ErrUnexpectedEOF},
		{"end of the stream within a long line", strings.Repeat("x", 10_000), "", io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "by octet": iotest.OneByteReader,
				"by half": iotest.HalfReader, "error with data": iotest.DataErrReader,
			} {
				got, err := NewReader(wrap(strings.NewReader(tt.input))).Line()
				if string(got) != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("%s: Line(%.40q) = %.40q, %v, want %.40q, %v", name, tt.input, got, err, tt.want, tt.err)
				}
			}
		})
	}
}

func TestReadingGoesOnBehindALongLine(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("x", 9000) + "\r\nNOOP\r\n"))
	if _, err := r.Line(); !errors.Is(err, ErrLongLine) {
		t.Fatalf("first line: %v, want %v", err, ErrLongLine)
	}
	testkit.Equal(t, "second line", string(testkit.Value(r.Line())(t)), "NOOP")
}

// TestLongLineInAWideBuffer: what was lent for data does not make lines longer.
func TestLongLineInAWideBuffer(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("x", 9000) + "\r\nNOOP\r\n"))
	r.Widen(make([]byte, 32<<10))
	if err := r.Fill(); err != nil || !r.Ready() {
		t.Fatalf("Fill = %v, Ready = %v", err, r.Ready())
	}
	if r.Narrow() != nil {
		t.Error("the lent buffer came back before it was empty enough")
	}
	testkit.Fails(r.Line())(t, "first line", ErrLongLine)
	if r.Narrow() == nil {
		t.Error("the lent buffer did not come back")
	}
	testkit.Equal(t, "second line", string(testkit.Value(r.Line())(t)), "NOOP")
}

// TestIdleReaderIsSmall: after a long line, and after many at a time, a reader waits
// for the next one with its own buffer.
func TestIdleReaderIsSmall(t *testing.T) {
	for _, input := range []string{
		strings.Repeat("x", MaxLine-3) + "\r\n",
		strings.Repeat(strings.Repeat("x", 50)+"\r\n", 200),
	} {
		src := &waitingReader{text: input}
		r := NewReader(src)
		src.idle = func() {
			testkit.Equal(t, "waits with a buffer of: octets", len(r.buf), ownBuffer)
		}
		for err := error(nil); err == nil; {
			_, err = r.Line()
		}
		if src.reads > 10 {
			t.Errorf("%d reads of %d octets, want at most 10", src.reads, len(input))
		}
	}
}

// waitingReader is a source that calls idle when it has given all of text.
type waitingReader struct {
	text  string
	reads int
	idle  func()
}

func (w *waitingReader) Read(p []byte) (int, error) {
	if w.text == "" {
		w.idle()
		return 0, io.EOF
	}
	w.reads++
	n := copy(p, w.text)
	w.text = w.text[n:]
	return n, nil
}

func TestSourceErrorsComeAsTheyAre(t *testing.T) {
	testkit.Fails(NewReader(iotest.ErrReader(io.ErrClosedPipe)).Line())(t, "Line", io.ErrClosedPipe)
	testkit.Fails(NewReader(stuckReader{}).Line())(t, "Line", io.ErrNoProgress)
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// TestWideBufferKeepsEveryOctet lends and takes back a buffer at random and
// reads as a session does; every octet must come out once, in order.
func TestWideBufferKeepsEveryOctet(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var input []byte
		for range rng.IntN(3000) {
			input = append(append(input, bytes.Repeat([]byte("y"), rng.IntN(60))...), '\r', '\n')
		}
		r := NewReader(bytes.NewReader(input))
		var got []byte
		lent := false
		for {
			switch k := rng.IntN(10); {
			case k == 0 && !lent:
				r.Widen(make([]byte, 32<<10))
				lent = true
			case k == 1 && lent:
				lent = r.Narrow() == nil
			case k == 2 && len(r.Buffered()) < MaxLine:
				_ = r.Fill() // the end of the input shows in Line too
			case k < 5:
				n := rng.IntN(1 + len(r.Buffered()))
				got = append(got, r.Buffered()[:n]...)
				r.Discard(n)
			}
			line, err := r.Line()
			if errors.Is(err, ErrBare) && len(got) > 0 && got[len(got)-1] == '\r' {
				got = append(got, '\n') // Discard had cut CRLF in two
				continue
			}
			if err != nil {
				break
			}
			got = append(append(got, line...), '\r', '\n')
		}
		if !bytes.Equal(got, input) {
			t.Fatalf("seed %d: %d octets came out of %d", seed, len(got), len(input))
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n"))
	f.Add([]byte("a\nb\r\n"))
	f.Add([]byte("a\r\r\nb\r\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(input)))
		for {
			line, err := r.Line()
			switch {
			case errors.Is(err, ErrLongLine):
				continue
			case err != nil:
				return
			case bytes.ContainsAny(line, "\r\n\x00") || len(line) > MaxLine-2:
				t.Fatalf("accepted %q", line)
			case !bytes.Contains(input, append(bytes.Clone(line), '\r', '\n')):
				t.Fatalf("line %q does not stand in the input with CRLF", line)
			}
		}
	})
}

func TestAuthLineIsBounded(t *testing.T) {
	tests := []struct {
		name string
		size int // of the line with CRLF
		err  error
	}{
		{"longer than a command", MaxLine + 1, nil},
		{"longest", MaxAuthLine, nil},
		{"one octet too long", MaxAuthLine + 1, ErrLongLine},
		{"far too long", 100_000, ErrLongLine},
	}
	for _, tt := range tests {
		r := NewReader(iotest.HalfReader(strings.NewReader(strings.Repeat("A", tt.size-2) + "\r\nNOOP\r\n")))
		r.Widen(make([]byte, 32<<10))
		line, err := r.AuthLine()
		if !errors.Is(err, tt.err) || err == nil && len(line) != tt.size-2 {
			t.Errorf("%s: %d octets, %v, want %v", tt.name, len(line), err, tt.err)
		}
		testkit.Equal(t, fmt.Sprintf("%s: behind it", tt.name), string(testkit.Value(r.Line())(t)), "NOOP")
	}
}

// TestWipeLeavesNothingOfWhatWasConsumed, and all of what was not.
func TestWipeLeavesNothingOfWhatWasConsumed(t *testing.T) {
	r := NewReader(strings.NewReader("AUTH PLAIN c2VjcmV0\r\nNOOP\r\n"))
	lent := make([]byte, 32<<10)
	for _, wide := range []bool{false, true} {
		if wide {
			r = NewReader(strings.NewReader("AUTH PLAIN c2VjcmV0\r\nNOOP\r\n"))
			if err := r.Fill(); err != nil { // it was read before the buffer was lent
				t.Fatal(err)
			}
			r.Widen(lent)
		}
		testkit.Value(r.Line())(t)
		r.Wipe()
		if bytes.Contains(r.own, []byte("c2Vj")) || bytes.Contains(lent, []byte("c2Vj")) {
			t.Errorf("wide %v: the line is still there", wide)
		}
		testkit.Equal(t, fmt.Sprintf("wide %v", wide), string(testkit.Value(r.Line())(t)), "NOOP")
	}
}

// Nothing of a source is left for the next one, whatever buffer it has come into.
func TestReaderReset(t *testing.T) {
	for _, size := range []int{10, ownBuffer, MaxLine, 2 * MaxLine} {
		r := NewReader(strings.NewReader(strings.Repeat("x", size)))
		if size > MaxLine {
			r.Widen(make([]byte, 2*size))
		}
		for r.Fill() == nil && len(r.Buffered()) < min(size, MaxLine) {
		}
		r.Reset(strings.NewReader("NOOP\r\n"))
		if len(r.Buffered()) > 0 || r.Wide() || bytes.IndexByte(r.own, 'x') >= 0 {
			t.Errorf("%d octets: %d are left to be read, %q in the buffer", size, len(r.Buffered()), r.own)
		}
		testkit.Equal(t, fmt.Sprintf("%d octets: next line", size), string(testkit.Value(r.Line())(t)), "NOOP")
	}
}

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
