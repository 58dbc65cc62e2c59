package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

// replayOf runs `blockd replay` over mail that was accepted from these senders for
// recipients, each "SENDER RECIPIENT".
func replayOf(t *testing.T, config string, files map[string]string, mail []string, args ...string) (report replayReport, text string) {
	t.Helper()
	dir := t.TempDir()
	files["config.toml"] = config
	for name, text := range files {
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	past := testkit.Value(history.Open(history.Settings{Folder: filepath.Join(dir, "x.bdx.history"), Max: history.MinMax, Keep: time.Hour}))(t)
	for _, m := range mail {
		sender, recipient, _ := strings.Cut(m, " ")
		past.Add(history.Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Client: netip.MustParseAddr("192.0.2.7"),
			Sender: sender, Recipient: recipient})
	}
	testkit.Must(t, past.Close())
	path := filepath.Join(dir, "config.toml")
	runs(t, "compile", "-c", path)
	args = append([]string{"replay", "-c", path}, args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", dir)
	}
	text = runs(t, args...)
	testkit.Must(t, json.Unmarshal([]byte(runs(t, append(args, "--json")...)), &report))
	return report, text
}

const replayConfig = `
[smtp]
upstream = "maildir:mail"
[index]
path = "x.bdx"
[[list]]
name = "own"
path = "own.txt"
[[list]]
name = "new"
path = "other.txt"
on_match = "tag"
[[policy]]
recipients = ["vip@here.example"]
lists = ["new"]
`

// A file is no [[list]] of the configuration because it is called like one: only --as
// makes it one.
func TestReplayOfAFileThatIsCalledLikeAList(t *testing.T) {
	mail := []string{"a@bulk.example you@here.example", "b@bulk.example vip@here.example", "c@fine.example you@here.example"}
	for _, tt := range []struct {
		file            string
		as              []string
		list            string
		refused, marked int
	}{
		{"bought.txt", nil, "bought", 1, 0}, // no [[policy]] names it
		{"new.txt", nil, "new", 1, 0},
		{"new.txt", []string{"--as", "new"}, "new", 0, 2},
	} {
		files := map[string]string{"own.txt": "own.example\n", "other.txt": "other.example\n", tt.file: "bulk.example\n"}
		r, text := replayOf(t, replayConfig, files, mail, append([]string{"--list", "DIR/" + tt.file}, tt.as...)...)
		testkit.Got(r.List, r.Accepted, r.Refused, r.OnMessage)(t, fmt.Sprintf("%s %q: %s", tt.file, tt.as, text), tt.list, 3, tt.refused, tt.marked)
	}
}

// The null sender has no domain, and a row all the same.
func TestReplayOfTheNullSender(t *testing.T) {
	files := map[string]string{"own.txt": "own.example\n", "other.txt": "other.example\n", "clients.txt": "192.0.2.0/24\n"}
	r, text := replayOf(t, replayConfig, files, []string{" you@here.example"}, "--list", "DIR/clients.txt")
	if got := fmt.Sprint(len(r.Senders), len(r.Domains)); r.Refused != 1 || got != "1 1" || r.Senders[0].Name != "<>" || r.Domains[0].Name != "<>" {
		t.Errorf("refused %d, senders %+v, domains %+v:\n%s", r.Refused, r.Senders, r.Domains, text)
	}
}
