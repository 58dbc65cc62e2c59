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
