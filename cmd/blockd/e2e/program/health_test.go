package program

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// probe asks the health door at address; the status is 0 where nobody answers.
func probe(address, path string) int {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// While another process takes over, no probe fails; a configuration may move the door; and a daemon that drains is not ready, but alive.
func TestProbesOverATakeOver(t *testing.T) {
	first, second := e2e.FreeAddress(t), e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Raced: true, SMTP: "drain_timeout = \"1m\"\n", Files: map[string]string{"spam.txt": "bulk.example\n"},
		Lists: fmt.Sprintf("[health]\nlisten = %q\n[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", first)})
	testkit.Eventually(t, "the daemon to be ready", func() bool { return probe(first, "/readyz") == 200 })

	var asked, failed atomic.Int32
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, path := range []string{"/readyz", "/livez"} {
				asked.Add(1)
				if status := probe(first, path); status != 200 {
					failed.Add(1)
					t.Errorf("%s in the midst of a take-over: %d", path, status)
				}
			}
		}
	}()
	for range 3 {
		d.Upgraded(t)
		before := asked.Load()
		testkit.Eventually(t, "more probes", func() bool { return asked.Load() > before+4 || failed.Load() > 0 })
	}
	close(stop)
	<-stopped
	t.Logf("%d probes over three take-overs", asked.Load())

	text := strings.Replace(string(testkit.Read(t, d.Path("config.toml"))), first, second, 1)
	testkit.Must(t, os.WriteFile(d.Path("config.toml"), []byte(text), 0o600))
	if code, out := d.Reloaded(t); code != 0 || !strings.Contains(out, "health.listen") {
		t.Errorf("reload: %d %q", code, out)
	}
	testkit.Eventually(t, "the door to have moved", func() bool { return probe(second, "/readyz") == 200 && probe(first, "/readyz") == 0 })

	open := e2e.DialSMTP(t, d.SMTP) // keeps the daemon from ending
	defer open.Conn.Close()
	open.Command("MAIL FROM:<friend@there.example>")
	testkit.Must(t, d.Cmd.Process.Signal(os.Interrupt))
	testkit.Eventually(t, "the door to say that nothing new is wanted", func() bool { return probe(second, "/readyz") == 503 })
	testkit.Equal(t, "/livez of a daemon that drains", probe(second, "/livez"), 200)
}
