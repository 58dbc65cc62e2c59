package milter

import (
	"log/slog"
	"runtime/debug"

	"blockd/policy/rule"

	"github.com/d--j/go-milter"
)

// recoverer calls the callbacks of next and recovers from their panics. The library does not
// recover, so a panic on its goroutine would end the process. After a panic, recoverer answers
// the events of the message as on_error says, up to the next MAIL.
type recoverer struct {
	next   milter.Milter
	server *Server
	broken bool
}

var _ milter.Milter = (*recoverer)(nil)

// run calls one callback and returns its answer. otherwise is the answer with on_error =
// "accept", or nil if the event has none.
func (t *recoverer) run(event string, otherwise *milter.Response, call func() (*milter.Response, error)) (r *milter.Response, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			t.panicked(event, cause)
			r, err = t.fallback(otherwise), nil
		}
	}()
	if t.broken {
		return t.fallback(otherwise), nil
	}
	return call()
}

func (t *recoverer) panicked(event string, cause any) {
	t.broken = true
	t.server.metrics.panics.Inc()
	t.server.log.Error("milter event panicked", slog.String("event", event), slog.Any("panic", cause),
		slog.String("stack", string(debug.Stack())))
}

func (t *recoverer) fallback(otherwise *milter.Response) *milter.Response {
	if t.server.settings.OnError == rule.TempfailOnError && otherwise != nil {
		return response(replyInternal)
	}
	return otherwise
}

// runQuiet is run for callbacks that have no answer.
func (t *recoverer) runQuiet(event string, call func()) {
	defer func() {
		if cause := recover(); cause != nil {
			t.panicked(event, cause)
		}
	}()
	call()
}

func (t *recoverer) NewConnection(m milter.Modifier) (err error) {
	t.broken = false
	t.runQuiet("connection", func() { err = t.next.NewConnection(m) })
	return err
}

func (t *recoverer) Connect(host, family string, port uint16, addr string, m milter.Modifier) (*milter.Response, error) {
	return t.run("connect", milter.RespContinue, func() (*milter.Response, error) {
		return t.next.Connect(host, family, port, addr, m)
	})
}

func (t *recoverer) Helo(name string, m milter.Modifier) (*milter.Response, error) {
	return t.run("helo", milter.RespContinue, func() (*milter.Response, error) { return t.next.Helo(name, m) })
}

// MailFrom begins a new message, so a panic in the one before it no longer counts.
func (t *recoverer) MailFrom(from, args string, m milter.Modifier) (*milter.Response, error) {
	t.broken = false
	return t.run("mail", milter.RespContinue, func() (*milter.Response, error) { return t.next.MailFrom(from, args, m) })
}

func (t *recoverer) RcptTo(to, args string, m milter.Modifier) (*milter.Response, error) {
	return t.run("rcpt", milter.RespContinue, func() (*milter.Response, error) { return t.next.RcptTo(to, args, m) })
}

func (t *recoverer) Data(m milter.Modifier) (*milter.Response, error) {
	return t.run("data", milter.RespContinue, func() (*milter.Response, error) { return t.next.Data(m) })
}

func (t *recoverer) Header(name, value string, m milter.Modifier) (*milter.Response, error) {
	return t.run("header", milter.RespContinue, func() (*milter.Response, error) { return t.next.Header(name, value, m) })
}

func (t *recoverer) Headers(m milter.Modifier) (*milter.Response, error) {
	return t.run("end of header", milter.RespContinue, func() (*milter.Response, error) { return t.next.Headers(m) })
}

func (t *recoverer) BodyChunk(chunk []byte, m milter.Modifier) (*milter.Response, error) {
	return t.run("body", milter.RespContinue, func() (*milter.Response, error) { return t.next.BodyChunk(chunk, m) })
}

func (t *recoverer) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	return t.run("end of message", milter.RespAccept, func() (*milter.Response, error) { return t.next.EndOfMessage(m) })
}

func (t *recoverer) Abort(m milter.Modifier) (err error) {
	t.runQuiet("abort", func() { err = t.next.Abort(m) })
	return err
}

func (t *recoverer) Unknown(cmd string, m milter.Modifier) (*milter.Response, error) {
	return t.run("unknown command", milter.RespContinue, func() (*milter.Response, error) { return t.next.Unknown(cmd, m) })
}

func (t *recoverer) Cleanup(m milter.Modifier) { t.runQuiet("cleanup", func() { t.next.Cleanup(m) }) }
