package httpapi

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"blockd/internal/testkit"
	"blockd/reload"
)

// A defect costs the one request, is counted, and told with its stack but without
// what was asked.
func TestDefectCostsOneRequest(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	var text bytes.Buffer
	f.Server.log = slog.New(slog.NewTextHandler(&text, nil))
	var broken atomic.Bool
	f.Server.status = func() reload.Status {
		if broken.Load() {
			panic("a defect")
		}
		return f.status
	}
	l := testkit.Listen(t)
	stop := f.running(t, l)

	ask := func() (status int, err error) {
		a, err := http.Get("http://" + l.Addr().String() + "/v1/lists?entries=0")
		if err != nil {
			return 0, err
		}
		defer a.Body.Close()
		_, err = io.ReadAll(a.Body)
		return a.StatusCode, err
	}
	broken.Store(true)
	if status, err := ask(); err == nil {
		t.Errorf("status %d from a request that panicked", status)
	}
	broken.Store(false)
	testkit.Equal(t, "the next request", testkit.Value(ask())(t), http.StatusOK)
	var counted dto.Metric
	testkit.Must(t, f.panics.Write(&counted))
	testkit.Equal(t, "counted", counted.Counter.GetValue(), 1)
	stop()
	if log := text.String(); strings.Count(log, "http request panicked") != 1 || !strings.Contains(log, "panic_test.go") || strings.Contains(log, "entries=0") {
		t.Errorf("log: %s", log)
	}
}
