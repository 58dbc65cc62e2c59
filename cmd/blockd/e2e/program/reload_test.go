package program

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestReloadUnderLoad serves a million real names and swaps the generation ten
// times, a hundred with -soak, while twenty sessions of smtp-source send mail. A list change is never
// felt: no session may fail, no listed sender may pass, no other be refused.
func TestReloadUnderLoad(t *testing.T) {
	union := testkit.Shared(t, "lists/union-domains.txt.gz")
	source := testkit.Peer(t, "smtp-source")
	first, last := ends(t, union)

	d := e2e.Serve(t, e2e.Setup{
		Raced:    true,
		Upstream: "smtp://" + e2e.Sink(t),
		SMTP:     "client_info = \"none\"\nallow_open_upstream = true\nmax_connections_per_ip = 200\n",
		Lists: fmt.Sprintf("[[list]]\nname = \"union\"\npath = %q\nformat = \"plain\"\n\n[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nmax_freed = 1.0\n",
			union),
		Files: map[string]string{"own.txt": "always@toggle.example\n"},
	})

	ctx, cancel := context.WithCancel(t.Context())
	type load struct {
		runs, mails int
		err         error
	}
	loaded := make(chan load)
	var running atomic.Bool
	go func() { // twenty sessions at a time, a new connection for every mail
		var l load
		for l.err == nil && ctx.Err() == nil {
			running.Store(true)
			out, err := exec.Command(source, "-s", "20", "-m", "400", "-l", "2048",
				"-f", "clear@sender.example", "-t", "user@here.example", d.SMTP).CombinedOutput()
			if err != nil {
				l.err = fmt.Errorf("smtp-source: %w\n%s", err, out)
			}
			l.runs, l.mails = l.runs+1, l.mails+400
		}
		loaded <- l
	}()
	testkit.Eventually(t, "the load to begin", running.Load)

	var verdicts int
	check := func(sender, want string) {
		t.Helper()
		verdicts++
		testkit.Begins(t, fmt.Sprintf("RCPT after MAIL FROM:<%s>", sender), e2e.Ask(t, d.SMTP, sender), want)
	}
	var slowest time.Duration
	reloads := 10
	if *e2e.Soak {
		reloads = 100
	}
	for i := range reloads {
		begun := time.Now()
		text, want := "always@toggle.example\nnow@toggle.example\n", "550 "
		if i%2 == 1 { // every other reload takes the line away again
			text, want = "always@toggle.example\n", "250 "
		}
		e2e.Replace(t, filepath.Join(d.Dir, "own.txt"), text)
		testkit.Eventually(t, fmt.Sprintf("reload %d to act", i+1), func() bool {
			// What no reload may change, asked all the while it is built and swapped.
			check("x@"+first, "550 ")
			check("x@sub."+last, "550 ")
			check("always@toggle.example", "550 ")
			check("clear@sender.example", "250 ")
			return strings.HasPrefix(e2e.Ask(t, d.SMTP, "now@toggle.example"), want) || t.Failed()
		})
		slowest = max(slowest, time.Since(begun))
	}
	cancel()
	l := <-loaded
	if l.err != nil {
		t.Error(l.err)
	}
	t.Logf("%d reloads of 1,006,827 entries, the slowest acting after %v; meanwhile %d mails in %d runs of smtp-source, none lost, and %d verdicts, none wrong",
		reloads, slowest.Round(time.Millisecond), l.mails, l.runs, verdicts)
}

// ends returns the first and the last name of a gzipped list.
func ends(t *testing.T, path string) (first, last string) {
	t.Helper()
	f := testkit.Value(os.Open(path))(t)
	defer f.Close()
	text := testkit.Value(gzip.NewReader(f))(t)
	scanner := bufio.NewScanner(text)
	for scanner.Scan() {
		last = scanner.Text()
		if first == "" {
			first = last
		}
	}
	testkit.Must(t, scanner.Err())
	return first, last
}
