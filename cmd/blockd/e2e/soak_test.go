package e2e

import (
	"flag"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// soak runs what make test shortens at full length.
var soak = flag.Bool("soak", false, "long runs at full length")

// sinkMail sends mail with Postfix's smtp-source.
type sinkMail struct{ source string }

// run sends mails of 1 KB by 20 sessions, each on a connection of its own. None
// may fail.
func (s *sinkMail) run(t *testing.T, address string, mails int) time.Duration {
	t.Helper()
	began := time.Now()
	out, err := exec.Command(s.source, "-s", "20", "-m", fmt.Sprint(mails), "-l", "1024",
		"-f", "friend@there.example", "-t", "you@here.example", address).CombinedOutput()
	if err != nil {
		t.Fatalf("smtp-source: %v\n%s", err, out)
	}
	return time.Since(began)
}
