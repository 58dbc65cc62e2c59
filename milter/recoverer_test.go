package milter

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/d--j/go-milter"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
)

// exploding panics in one callback and refuses in all others.
type exploding struct {
	milter.NoOpMilter
	in string
}

func (e *exploding) at(event string) (*milter.Response, error) {
	if e.in == event {
		panic("defect in " + event)
	}
	return milter.RespReject, nil
}

func (e *exploding) NewConnection(milter.Modifier) error { e.at("new"); return nil }
func (e *exploding) Abort(milter.Modifier) error         { e.at("abort"); return nil }
func (e *exploding) Cleanup(milter.Modifier)             { e.at("cleanup") }
func (e *exploding) Connect(string, string, uint16, string, milter.Modifier) (*milter.Response, error) {
	return e.at("connect")
}
func (e *exploding) Helo(string, milter.Modifier) (*milter.Response, error) { return e.at("helo") }
func (e *exploding) MailFrom(string, string, milter.Modifier) (*milter.Response, error) {
	return e.at("mail")
}
func (e *exploding) RcptTo(string, string, milter.Modifier) (*milter.Response, error) {
	return e.at("rcpt")
}
func (e *exploding) Data(milter.Modifier) (*milter.Response, error) { return e.at("data") }
func (e *exploding) Header(string, string, milter.Modifier) (*milter.Response, error) {
	return e.at("header")
}
func (e *exploding) Headers(milter.Modifier) (*milter.Response, error) { return e.at("headers") }
func (e *exploding) BodyChunk([]byte, milter.Modifier) (*milter.Response, error) {
	return e.at("body")
}
func (e *exploding) EndOfMessage(milter.Modifier) (*milter.Response, error) { return e.at("end") }
func (e *exploding) Unknown(string, milter.Modifier) (*milter.Response, error) {
	return e.at("unknown")
}

// A panic in any callback costs the message at most. Its answer is that of on_error, and the
// next message is filtered again.
func TestPanicInEveryCallback(t *testing.T) {
	var calls recovererCalls
	for _, in := range []string{"new", "connect", "helo", "mail", "rcpt", "data", "header", "headers", "body", "end", "unknown", "abort", "cleanup"} {
		for _, onError := range []rule.OnError{rule.AcceptOnError, rule.TempfailOnError} {
			t.Run(in+" "+string(onError), func(t *testing.T) {
				log := &strings.Builder{}
				reg := prometheus.NewRegistry()
				l := slog.New(slog.NewTextHandler(log, nil))
				checker := policy.New(func() *index.Index { return nil }, policy.Settings{}, l, reg)
				s := New(Settings{OnError: onError}, checker, reg, l)
				m := &recoverer{next: &exploding{in: in}, server: s}

				answer := calls.run(t, m, in)
				want := "response=continue"
				switch {
				case in == "new" || in == "abort" || in == "cleanup":
					want = ""
				case onError == rule.TempfailOnError:
					want = `response=reply_code action=temp_fail code=451 reason="451 4.3.0 Internal error, try again"`
				case in == "end":
					want = "response=accept"
				}
				testkit.Equal(t, "answer", answer, want)
				var count dto.Metric
				if err := s.metrics.panics.Write(&count); err != nil || count.GetCounter().GetValue() != 1 {
					t.Errorf("panics: %v (%v), want 1", &count, err)
				}
				testkit.Has(t, log.String(), "defect in "+in, "recoverer_test.go")
				if in == "mail" || in == "connect" || in == "new" {
					return // or it would panic again
				}
				testkit.Equal(t, "the next message", calls.run(t, m, "mail"), "response=reject")
			})
		}
	}
}

// After a panic at MAIL, the filter gives no answer of its own to the rest of the message.
func TestBrokenMessageStaysWithOnError(t *testing.T) {
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	s := New(Settings{}, policy.New(func() *index.Index { return nil }, policy.Settings{}, log, reg), reg, log)
	m := &recoverer{next: &exploding{in: "mail"}, server: s}
	var calls recovererCalls
	calls.run(t, m, "mail")
	for event, want := range map[string]string{"rcpt": "response=continue", "headers": "response=continue", "end": "response=accept"} {
		testkit.Equal(t, event, calls.run(t, m, event), want)
	}
}

// recovererCalls calls one callback by its name.
type recovererCalls struct{}

func (recovererCalls) run(t *testing.T, m *recoverer, event string) string {
	t.Helper()
	var r *milter.Response
	var err error
	switch event {
	case "new":
		err = m.NewConnection(nil)
	case "connect":
		r, err = m.Connect("", "", 0, "", nil)
	case "helo":
		r, err = m.Helo("", nil)
	case "mail":
		r, err = m.MailFrom("", "", nil)
	case "rcpt":
		r, err = m.RcptTo("", "", nil)
	case "data":
		r, err = m.Data(nil)
	case "header":
		r, err = m.Header("", "", nil)
	case "headers":
		r, err = m.Headers(nil)
	case "body":
		r, err = m.BodyChunk(nil, nil)
	case "end":
		r, err = m.EndOfMessage(nil)
	case "unknown":
		r, err = m.Unknown("", nil)
	case "abort":
		err = m.Abort(nil)
	case "cleanup":
		m.Cleanup(nil)
	}
	if err != nil {
		t.Errorf("%s returns %v: the library would close the connection", event, err)
	}
	if r == nil {
		return ""
	}
	return r.String()
}
