package milter

import (
	"log/slog"
	"runtime/debug"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// recoverer is what the library calls: next, with a recover around every callback. The
// library has none, and a panic on its goroutine would end the process. After one,
// the events of the message are answered as on_error says, up to the next MAIL.
type recoverer struct {
	next   milter.Milter
	server *Server
	broken bool
}

var _ milter.Milter = (*recoverer)(nil)

// guarded runs one callback. otherwise is the answer where mail goes on.
func (t *recoverer) guarded(event string, otherwise *milter.Response, call func() (*milter.Response, error)) (r *milter.Response, err error) {
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
	if t.server.settings.OnError == policy.TempfailOnError && otherwise != nil {
		return reply(replyInternal)
	}
	return otherwise
}

// quiet is guarded for callbacks that have no answer.
func (t *recoverer) quiet(event string, call func()) {
	defer func() {
		if cause := recover(); cause != nil {
			t.panicked(event, cause)
		}
	}()
	call()
}

func (t *recoverer) NewConnection(m milter.Modifier) (err error) {
	t.broken = false
	t.quiet("connection", func() { err = t.next.NewConnection(m) })
	return err
}

func (t *recoverer) Connect(host, family string, port uint16, addr string, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("connect", milter.RespContinue, func() (*milter.Response, error) {
		return t.next.Connect(host, family, port, addr, m)
	})
}

func (t *recoverer) Helo(name string, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("helo", milter.RespContinue, func() (*milter.Response, error) { return t.next.Helo(name, m) })
}

// MailFrom begins a message: what was wrong with the one before it is over.
func (t *recoverer) MailFrom(from, args string, m milter.Modifier) (*milter.Response, error) {
	t.broken = false
	return t.guarded("mail", milter.RespContinue, func() (*milter.Response, error) { return t.next.MailFrom(from, args, m) })
}

func (t *recoverer) RcptTo(to, args string, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("rcpt", milter.RespContinue, func() (*milter.Response, error) { return t.next.RcptTo(to, args, m) })
}

func (t *recoverer) Data(m milter.Modifier) (*milter.Response, error) {
	return t.guarded("data", milter.RespContinue, func() (*milter.Response, error) { return t.next.Data(m) })
}

func (t *recoverer) Header(name, value string, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("header", milter.RespContinue, func() (*milter.Response, error) { return t.next.Header(name, value, m) })
}

func (t *recoverer) Headers(m milter.Modifier) (*milter.Response, error) {
	return t.guarded("end of header", milter.RespContinue, func() (*milter.Response, error) { return t.next.Headers(m) })
}

func (t *recoverer) BodyChunk(chunk []byte, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("body", milter.RespContinue, func() (*milter.Response, error) { return t.next.BodyChunk(chunk, m) })
}

func (t *recoverer) EndOfMessage(m milter.Modifier) (*milter.Response, error) {
	return t.guarded("end of message", milter.RespAccept, func() (*milter.Response, error) { return t.next.EndOfMessage(m) })
}

func (t *recoverer) Abort(m milter.Modifier) (err error) {
	t.quiet("abort", func() { err = t.next.Abort(m) })
	return err
}

func (t *recoverer) Unknown(cmd string, m milter.Modifier) (*milter.Response, error) {
	return t.guarded("unknown command", milter.RespContinue, func() (*milter.Response, error) { return t.next.Unknown(cmd, m) })
}

func (t *recoverer) Cleanup(m milter.Modifier) { t.quiet("cleanup", func() { t.next.Cleanup(m) }) }
