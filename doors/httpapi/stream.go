package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"blockd/policy"
)

// maxLine bounds a line of a stream. A stream of any length takes little more memory
// than that.
const maxLine = 16 << 10

// streamIdle is how long a stream may stand still on either side.
const streamIdle = time.Minute

// lineError stands in the answer to a line that is no question.
type lineError struct {
	Line  int    `json:"line" minimum:"1" doc:"of the request, from 1; blank lines count"`
	Error string `json:"error"`
}

// checkStream answers a line for a line, in order: a JSON string or an object
// {"sender":"…","client":"…"} each, and blank lines not at all. The client may wait for an
// answer before it sends the next line. Every answer names its generation; a
// reload may fall between two.
func (s *Server) checkStream(w http.ResponseWriter, r *http.Request, p *query) {
	control := http.NewResponseController(w)
	// Without it (HTTP/1.1) the first answer would close the request's body. If
	// it is not supported, the answers come after the whole request.
	if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		fail(w, http.StatusInternalServerError, "no stream on this connection")
		return
	}
	wake := func() { control.SetReadDeadline(time.Unix(1, 0)) } // ends the wait for the client when the server stops
	defer context.AfterFunc(r.Context(), wake)()
	if r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		w.WriteHeader(http.StatusContinue) // the flush below would say 200 in its place, and the client might keep its body
	}
	w.Header()["Content-Type"] = typeStream

	in := bufio.NewReaderSize(r.Body, maxLine)
	pending := &pending{s.workspace(r, p), bufio.NewWriterSize(w, maxLine)}
	defer pending.release()
	for n := 1; ; n++ {
		if !lineBuffered(in) { // the next read may wait for the client, which may wait for answers
			if s.revoked(r) {
				wake() // net/http would wait for more of the body
				panic(http.ErrAbortHandler)
			}
			if pending.yield(control) != nil || r.Context().Err() != nil { // wake may have come before the deadline
				panic(http.ErrAbortHandler) // as below
			}
		}
		line, err := readLine(in)
		if err != nil && err != io.EOF && err != bufio.ErrTooLong {
			pending.flush()
			panic(http.ErrAbortHandler) // a clean end would say that all was answered
		}
		pending.take(n, line, err)
		if err == io.EOF {
			pending.flush()
			return
		}
	}
}

// maxPending bounds the questions of a stream that are answered together: enough
// for their look-ups to overlap.
const maxPending = 512

// pending are the questions of a stream that wait for their answers.
type pending struct {
	*workspace
	out *bufio.Writer // an error of it stays
}

// take takes line n, which came with err, unless it is blank.
func (p *pending) take(n int, line []byte, err error) {
	if len(bytes.TrimSpace(line)) == 0 && err != bufio.ErrTooLong {
		return
	}
	if q, fault := decodeLine(line, err); fault != nil {
		p.answer()
		encoder(p.out).Encode(lineError{n, fault.Error()})
	} else if p.add(q); len(p.questions) == maxPending {
		p.answer()
	}
}

// answer writes an answer a line, in order.
func (p *pending) answer() {
	if len(p.questions) > 0 {
		p.text = p.appendAnswers(p.text[:0], '\n', "\n")
		p.out.Write(p.text)
	}
}

func (p *pending) flush() error {
	p.answer()
	return p.out.Flush()
}

// yield answers what is pending, and lets the client go on for a while.
func (p *pending) yield(control *http.ResponseController) error {
	err := errors.Join(p.flush(), ignoreUnsupported(control.Flush()))
	now := time.Now()
	control.SetReadDeadline(now.Add(streamIdle))
	control.SetWriteDeadline(now.Add(2 * streamIdle)) // longer: the answers to what is read come after
	return err
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// lineBuffered reports whether a whole line is there without reading.
func lineBuffered(in *bufio.Reader) bool {
	b, _ := in.Peek(in.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

// readLine returns the next line, which is valid until the next call. It keeps nothing of a
// line longer than maxLine; the error is then bufio.ErrTooLong. The
// last line comes with io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	for err == bufio.ErrBufferFull {
		_, err = in.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return nil, bufio.ErrTooLong // and the next call finds the end, if it is there
}

// decodeLine reads the question of one line, which may have come with err.
func decodeLine(line []byte, err error) (policy.Question, error) {
	if err == bufio.ErrTooLong {
		return policy.Question{}, fmt.Errorf("line over %d octets", maxLine)
	}
	return decodeQuestion(line)
}
