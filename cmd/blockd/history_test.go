package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

// TestRefusedForNoList: who looks up the reference of a refusal by helo or ptr is told that
// it was no list, and where the reason stands.
func TestRefusedForNoList(t *testing.T) {
	for _, tt := range []struct {
		record history.Record
		rule   bool
	}{
		{history.Record{Outcome: "refuse", Verdict: "clear"}, true},
		{history.Record{Outcome: "refuse", Verdict: "blocked", List: "own"}, false},
		{history.Record{Outcome: "defer", Verdict: "unknown"}, false}, // the store could not be read
		{history.Record{Outcome: "accept", Verdict: "clear"}, false},
	} {
		if got := outcomeText(&tt.record); strings.Contains(got, "no list is the reason") != tt.rule {
			t.Errorf("%+v: %s", tt.record, got)
		}
	}
}

// pastOf is a configuration in a new folder with a history of these decisions.
func pastOf(t *testing.T, all []history.Record) (config string) {
	t.Helper()
	dir := t.TempDir()
	config = filepath.Join(dir, "config.toml")
	writeFile(t, dir, "config.toml", anyPorts)
	past := testkit.Value(history.Open(history.Settings{Folder: filepath.Join(dir, "var/a.bdx.history"), Max: history.MinMax, Keep: time.Hour}))(t)
	for _, r := range all {
		r.Time = time.Now()
		past.Add(r)
	}
	testkit.Must(t, past.Close())
	return config
}

func TestHistoryTop(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.7")
	config := pastOf(t, []history.Record{
		{Outcome: "accept", Sender: "a@fine.example", Recipient: "Boss@here.example", Client: client},
		{Outcome: "accept", Sender: "b@fine.example", Recipient: "boss@here.example", Client: client},
		{Outcome: "accept", Recipient: "boss@here.example", Client: client},
		{Outcome: "refuse", Sender: "x\x1b]0;mine\a@bad.example", Recipient: "boss@here.example", List: "own", Repeated: 7},
	})
	for _, tt := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{[]string{"--by", "domain"}, 0, "" +
			"decisions  share  domain\n" +
			"        7    70%  bad.example\n" +
			"        2    20%  fine.example\n" +
			"        1    10%  <>\n" +
			"3 of 3 domains in 10 decisions\n", ""},
		{[]string{"--by", "sender", "-k", "1"}, 0, "" +
			"decisions  share  sender\n" +
			"        7    70%  x\\x1b]0;mine\\a@bad.example\n" +
			"1 of 4 senders in 10 decisions\n", ""},
		{[]string{"--by", "recipient", "--outcome", "accept"}, 0, "" +
			"decisions  share  recipient\n" +
			"        3   100%  boss@here.example\n" +
			"1 of 1 recipient in 3 decisions\n", ""},
		{[]string{"--by", "list"}, 0, "" +
			"decisions  share  list\n" +
			"        7    70%  own\n" +
			"1 of 1 list in 10 decisions\n", "blockd history top: note: 3 of 10 decisions have no list\n"},
		{[]string{"--by", "client", "--list", "own"}, 1, "", "blockd history top: note: 7 of 7 decisions have no client\n"},
		{[]string{"--by", "client", "--list", "other"}, 1, "", "blockd history top: nothing found\n"},
		{nil, 2, "", "blockd history top: want --by, one of client, sender, domain, list, recipient, entry; see: blockd history top --help\n"},
		{[]string{"--by", "sender", "-k", "0"}, 2, "", "blockd history top: -k: want 1 to 10000, have 0; see: blockd history top --help\n"},
		{[]string{"--by", "sender", "--since", "soon"}, 2, "", "blockd history top: --since: want how long ago, such as 7d or 12h, or a time such as 2027-01-31, have \"soon\"; see: blockd history top --help\n"},
	} {
		code, out, errs := blockd(t, "", append([]string{"history", "top", "-c", config}, tt.args...)...)
		testkit.Got(code, out, errs)(t, fmt.Sprintf("%q", tt.args), tt.code, tt.out, tt.errs)
	}
	_, out, _ := blockd(t, "", "history", "top", "-c", config, "--by", "client", "--json")
	var got, want map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	text := `{"by":"client","decisions":10,"without":7,"distinct":1,"top":[{"name":"192.0.2.7","decisions":3,"share":0.3}],"damaged":0}`
	if err := json.Unmarshal([]byte(text), &want); err != nil || !reflect.DeepEqual(got, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("--json prints %s, want %s", out, text)
	}
}

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
