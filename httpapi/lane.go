package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lanes answer, in front of net/http's loop, what most connections bring: one check after
// the other that differ in nothing but the query. The first of them is parsed by
// net/http's ReadRequest; who then sends the same octets around another query has sent
// the same request with another query, and the same handler answers it. What this spares
// is what net/http does for each request: a header of 20 allocations, a goroutine that
// watches for the client's end, eight deadlines. See docs/decisions/0020-lane.md.
type lanes struct {
	ctx     context.Context // with its end lanes end
	handler http.Handler    // of GET checkPath
	places  chan struct{}   // one for each lane while it lasts
}

// newLanes returns those of a listener with so many connections at a time.
func newLanes(ctx context.Context, handler http.Handler, most int) *lanes {
	return &lanes{ctx: ctx, handler: handler, places: make(chan struct{}, most)}
}

// drain waits until all lanes have ended, as they do with their context, and keeps new
// ones from beginning. It ends with ctx at the latest.
func (all *lanes) drain(ctx context.Context) {
	for range cap(all.places) {
		select {
		case all.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// lane is that of one connection. It lasts from the connection's first octet, where
// nothing is half read, to the first read that brings anything but one such request, whole
// and alone: from there on the connection is net/http's, for good.
type lane struct {
	all   *lanes
	conn  net.Conn
	owner *connection     // that it is part of; nil: none counts it
	ctx   context.Context // all.ctx, with the address that the guard looks for

	request *http.Request // that was parsed, with the query of the last
	behind  []byte        // what stood behind its query; nil: none was parsed
	armed   time.Time     // until when conn's deadlines are good
	reply   reply
}

// of returns the lane of a connection that nobody has read from.
func (all *lanes) of(conn net.Conn) *lane {
	ctx := context.WithValue(all.ctx, http.LocalAddrContextKey, conn.LocalAddr())
	return &lane{all: all, conn: conn, ctx: ctx, reply: reply{header: http.Header{}}}
}

// read answers requests as long as there are such, and then reads into p what net/http
// is to have first. net/http takes the connection for a new one until then.
func (l *lane) read(p []byte) (n int, err error) {
	select {
	case l.all.places <- struct{}{}:
	default: // drained
		return l.conn.Read(p)
	}
	defer func() { <-l.all.places }()
	defer context.AfterFunc(l.ctx, l.end)()
	for {
		if n, err = l.conn.Read(p); err != nil {
			return n, err
		}
		now := time.Now()
		if !l.recognise(p[:n]) {
			l.conn.SetReadDeadline(now.Add(headerTimeout)) // the other one is net/http's to set
			return n, nil
		}
		l.arm(now)
		l.answer(now)
		if _, err = l.conn.Write(l.reply.finish(now)); err != nil {
			return 0, err
		}
	}
}

// answer answers the request in hand.
func (l *lane) answer(now time.Time) {
	if l.owner != nil {
		l.owner.begin(now)
		defer l.owner.end()
	}
	l.all.handler.ServeHTTP(&l.reply, l.request)
}

// laneSlack is how much later than they should the deadlines of a lane may come. In its
// time they are set once: setting them for each request takes as long as the look-up.
const laneSlack = 15 * time.Second

// arm sets deadlines for an answer and for the request behind it.
func (l *lane) arm(now time.Time) {
	if now.Before(l.armed) {
		return
	}
	l.armed = now.Add(laneSlack)
	l.conn.SetReadDeadline(l.armed.Add(idleTimeout))
	l.conn.SetWriteDeadline(l.armed.Add(requestTimeout))
	if l.ctx.Err() != nil {
		l.end() // again: it may have come before
	}
}

// end lets an answer under way be written, and nobody wait for another request.
func (l *lane) end() {
	l.conn.SetWriteDeadline(time.Now().Add(graceTimeout))
	l.conn.SetReadDeadline(time.Unix(1, 0))
}

// checkPath is what lanes are for.
const checkPath = "/v1/check"

// checkStart stands before the query of every request of a lane.
const checkStart = "GET " + checkPath + "?"

// recognise reports whether b is a request that the lane answers, which is then in
// l.request. Of others nothing is kept.
func (l *lane) recognise(b []byte) bool {
	rest, ok := bytes.CutPrefix(b, []byte(checkStart))
	n := bytes.IndexByte(rest, ' ')
	if !ok || n < 1 || slices.ContainsFunc(rest[:n], func(c byte) bool { return c < '!' || c > '~' }) {
		return false
	}
	if behind := rest[n:]; l.behind == nil || !bytes.Equal(behind, l.behind) {
		if !l.parse(b) {
			return false
		}
		l.behind = append(l.behind[:0], behind...)
	}
	l.request.RequestURI = string(b[len("GET ") : len(checkStart)+n])
	l.request.URL.RawQuery = l.request.RequestURI[len(checkPath+"?"):]
	return true
}

// parse reads b as net/http does: as one request that is plain, with nothing behind it.
func (l *lane) parse(b []byte) bool {
	text := bytes.NewReader(b)
	in := bufio.NewReader(text)
	r, err := http.ReadRequest(in)
	if err != nil || in.Buffered()+text.Len() > 0 || !plain(r) {
		return false
	}
	r.RemoteAddr = l.conn.RemoteAddr().String()
	l.request = r.WithContext(l.ctx)
	return true
}

// plain reports whether net/http would hand r to the handler as it is and read the next
// request behind it: it has no body and leaves the connection open. Its fields are those
// that change nothing, and the one that the guard looks at, each time.
func plain(r *http.Request) bool {
	if r.Proto != "HTTP/1.1" || r.Body != http.NoBody || r.Host == "" || strings.ContainsFunc(r.Host, outsideHost) {
		return false
	}
	for name, values := range r.Header {
		if len(values) != 1 || strings.ContainsFunc(values[0], func(c rune) bool { return c < ' ' || c > '~' }) {
			return false
		}
		switch name {
		case "Accept", "Accept-Encoding", "Accept-Language", "Authorization", "User-Agent":
		case "Connection":
			if values[0] != "keep-alive" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func outsideHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".:[]-", c)
}

// reply is a ResponseWriter for one answer after the other, each written at once, with
// its length.
type reply struct {
	header http.Header
	status int // 0: none yet
	body   []byte
	text   bytes.Buffer // of the whole

	second int64 // Unix
	date   []byte
}

// Header implements http.ResponseWriter.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *reply) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *reply) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body = append(r.body, p...)
	return len(p), nil
}

// finish returns the answer as net/http would send it, and is ready for the next. What
// it returns holds until its next call.
func (r *reply) finish(now time.Time) []byte {
	if second := now.Unix(); second != r.second {
		r.second, r.date = second, now.UTC().AppendFormat(r.date[:0], http.TimeFormat)
	}
	r.WriteHeader(http.StatusOK)
	r.text.Reset()
	line := append(r.text.AvailableBuffer(), "HTTP/1.1 "...)
	line = append(strconv.AppendInt(line, int64(r.status), 10), ' ')
	line = append(append(line, http.StatusText(r.status)...), "\r\n"...)
	r.text.Write(line)
	r.header.Write(&r.text) // to memory: nothing can fail
	line = append(append(r.text.AvailableBuffer(), "Date: "...), r.date...)
	line = strconv.AppendInt(append(line, "\r\nContent-Length: "...), int64(len(r.body)), 10)
	r.text.Write(append(line, "\r\n\r\n"...))
	r.text.Write(r.body)

	whole := r.text.Bytes()
	clear(r.header)
	r.status, r.body = 0, r.body[:0]
	if cap(r.body) > maxLine { // an explanation: not to be kept while the connection idles
		r.body, r.text = nil, bytes.Buffer{}
	}
	return whole
}
