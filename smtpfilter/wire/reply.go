package wire

import (
	"bufio"
	"errors"
	"io"
)

// Reply is one complete reply as the server sent it.
type Reply struct {
	Code int    // 200 to 599
	Raw  []byte // all lines verbatim, each with its CRLF
}

// The bounds of a reply (docs/smtp.md): a longer one is no reply.
const (
	MaxReplyLine  = 2048 // octets, with CRLF
	MaxReplyLines = 128
	MaxReply      = 64 << 10
)

// ErrReply reports bytes that are no SMTP reply: the stream cannot be trusted
// any further, so close it.
var ErrReply = errors.New("malformed reply")

// ReadReply reads one reply, multi-line ones whole: three digits, the same code
// on every line, no controls but TAB. A reply that breaks these rules gives
// ErrReply; errors of r are returned as they are (io.ErrUnexpectedEOF within a reply).
// Raw is freshly allocated. r must have a buffer of at least MaxReplyLine octets.
func ReadReply(r *bufio.Reader) (Reply, error) {
	var reply Reply
	for range MaxReplyLines {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(line) > MaxReplyLine:
			return Reply{}, ErrReply
		case err == io.EOF && (len(line) > 0 || len(reply.Raw) > 0):
			return Reply{}, io.ErrUnexpectedEOF
		case err != nil:
			return Reply{}, err
		}
		code, last, ok := replyLine(line)
		if !ok || len(reply.Raw) > 0 && code != reply.Code || len(reply.Raw)+len(line) > MaxReply {
			return Reply{}, ErrReply
		}
		reply.Code = code
		reply.Raw = append(reply.Raw, line...)
		if last {
			return reply, nil
		}
	}
	return Reply{}, ErrReply
}

// replyLine reads one line of a reply, with its line end. last is false if a
// "-" after the code announces another line (RFC 5321, section 4.2.1).
func replyLine(line []byte) (code int, last, ok bool) {
	n := len(line) - 2
	if n < 3 || line[n] != '\r' {
		return 0, false, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, false, false
		}
		code = 10*code + int(c-'0')
	}
	// 1xx has no use in SMTP, and a client that waits for more after one would
	// fall out of step with us.
	if code < 200 || code > 599 {
		return 0, false, false
	}
	for _, c := range line[3:n] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, false, false
		}
	}
	switch {
	case n == 3, line[3] == ' ':
		return code, true, true
	case line[3] == '-':
		return code, false, true
	}
	return 0, false, false
}
