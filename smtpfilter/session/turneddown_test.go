package session

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/policy"
	"blockd/records/history"
)

// TestReferenceOfARuleIsFound: the contact after a refusal by helo has a reference, which
// history and log have too.
func TestReferenceOfARuleIsFound(t *testing.T) {
	past := testkit.Value(history.Open(history.Settings{Folder: t.TempDir(), Max: history.MinMax, Keep: time.Hour}))(t)
	defer past.Close()
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"bad.example"}}}}
	ix := d.Index(t)
	r := newRig(&script.Server{}, nil, Settings{Helo: "valid"})
	r.relay.checker = policy.New(func() *index.Index { return ix }, policy.Settings{History: past, Contact: "https://here.example/r/%ref"}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c := connect(t, r, t.Context())
	c.want("", "220")
	c.want("EHLO -", "250")
	c.want("MAIL FROM:<a@good.example>", "250")
	c.send("RCPT TO:<carol@here.example>\r\n")
	reply := c.reply()
	c.close()
	told := regexp.MustCompile(`^550 5\.7\.1 Helo .* https://here\.example/r/([0-9a-z]+)\r\n$`).FindStringSubmatch(reply)
	if told == nil {
		t.Fatalf("reply %q", reply)
	}
	found := testkit.Value(past.Search(t.Context(), history.Query{Ref: told[1]}))(t)
	if len(found.Records) != 1 || found.Records[0].Outcome != "refuse" || found.Records[0].Recipient != "carol@here.example" {
		t.Errorf("of reference %s the history has %+v", told[1], found.Records)
	}
	if !strings.Contains(r.log.String(), " ref="+told[1]+" ") {
		t.Errorf("reference %s is not in the log:\n%s", told[1], r.log)
	}
}
