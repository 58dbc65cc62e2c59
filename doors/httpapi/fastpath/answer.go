package fastpath

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// answer is the ResponseWriter of one answer after the other. Each is written at once, with
// its length.
type answer struct {
	header http.Header
	status int // 0: none yet
	body   []byte
	text   bytes.Buffer // of the whole

	second int64 // Unix
	date   []byte
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p...)
	return len(p), nil
}

// maxKept bounds the buffers that are kept while the connection idles.
const maxKept = 16 << 10

// finish returns the answer as net/http would send it, and is ready for the next one. What
// it returns is valid until its next call.
func (a *answer) finish(now time.Time) []byte {
	if second := now.Unix(); second != a.second {
		a.second, a.date = second, now.UTC().AppendFormat(a.date[:0], http.TimeFormat)
	}
	a.WriteHeader(http.StatusOK)
	a.text.Reset()
	line := append(a.text.AvailableBuffer(), "HTTP/1.1 "...)
	line = append(strconv.AppendInt(line, int64(a.status), 10), ' ')
	line = append(append(line, http.StatusText(a.status)...), "\r\n"...)
	a.text.Write(line)
	a.header.Write(&a.text) // to memory: it cannot fail
	line = append(append(a.text.AvailableBuffer(), "Date: "...), a.date...)
	if _, said := a.header["Content-Length"]; !said {
		line = strconv.AppendInt(append(line, "\r\nContent-Length: "...), int64(len(a.body)), 10)
	}
	a.text.Write(append(line, "\r\n\r\n"...))
	a.text.Write(a.body)

	whole := a.text.Bytes()
	clear(a.header)
	a.status, a.body = 0, a.body[:0]
	if cap(a.body) > maxKept { // an explanation
		a.body, a.text = nil, bytes.Buffer{}
	}
	return whole
}
