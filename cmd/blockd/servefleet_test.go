package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/doors/httpapi"
	"blockd/internal/testkit"
	"blockd/sources/roster"
)

// A publisher shows the nodes that report to it, and halts the channel when those with a new sequence refuse more than the others. Here the
// nodes are reports alone, but one is a daemon.
func TestBrakeHaltsTheChannel(t *testing.T) {
	t.Parallel() // it waits for ten seconds: reports are weighed together
	dir, store := t.TempDir(), t.TempDir()
	key := filepath.Join(dir, "publish.key")
	runs(t, "publish", "keygen", key)
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
	testkit.Write(t, filepath.Join(dir, "config.toml"), strings.Replace(anyPorts, "[http]\n", "[http]\ntokens = \"tokens\"\nmax_rate = 0\n", 1)+
		fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n[[publish.stage]]\nshare = 1\nfor = \"1h\"\n", store, key))
	publisher := serveIn(t, dir, "http")
	token := strings.TrimSpace(publisher.must(t, "token", "new", "--name", "nodes", "--report"))
	published := func(n int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("sequence %d", n), func() bool {
			text, _ := os.ReadFile(filepath.Join(store, "prod", "latest.json"))
			_, err := os.Stat(filepath.Join(store, "prod", "latest.json.minisig"))
			return err == nil && strings.Contains(string(text), fmt.Sprintf("\"sequence\":%d,", n))
		})
	}
	published(1)

	// A daemon that follows tells how it is.
	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	follower := t.TempDir()
	testkit.Write(t, filepath.Join(follower, "node.token"), token+"\n")
	text, _, _ := strings.Cut(anyPorts, "[[list]]")
	testkit.Write(t, filepath.Join(follower, "config.toml"), text+fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\nnode = \"real\"\ncanary = true\nreport = %q\ntoken_file = \"node.token\"\n", store, public, publisher.http+"/v1/fleet"))
	serveIn(t, follower, "http")
	testkit.Eventually(t, "the node reports", func() bool {
		var v httpapi.FleetView
		out := publisher.must(t, "fleet", "--json")
		if json.Unmarshal([]byte(out), &v) != nil {
			return false
		}
		for _, r := range v.Nodes {
			if r.Node == "real" && r.Channel == "prod" && r.Sequence == 1 && r.Ready {
				return true
			}
		}
		return false
	})

	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\nworse.example\n")
	published(2)
	begun := time.Now()
	tell := func(node string, sequence int64, checks, refused uint64) {
		t.Helper()
		r := roster.Report{Node: node, At: time.Now(), Channel: "prod", Sequence: sequence, Newest: 2, Ready: true, Begun: begun, Checks: checks, Refused: refused,
			Since: roster.Counts{Sequence: sequence, Checks: checks, Refused: refused}}
		body := testkit.Value(r.Encode())(t)
		testkit.MustGot(publisher.post(t, token, "/v1/fleet", string(body)))(t, "a report", 204, "…")
	}
	testkit.Got(publisher.post(t, token, "/v1/fleet", `{"node":""}`))(t, "no report", 400, "…")
	checks := uint64(0)
	testkit.Eventually(t, "the halt", func() bool {
		checks += 10_000
		for i := range 5 {
			tell(fmt.Sprint("old", i), 1, checks, checks/20)
		}
		tell("canary", 2, checks, checks/10)
		tell("forged", 4711, checks, 0) // of a sequence that nobody has published: it does not make the others old
		_, err := os.Stat(filepath.Join(store, "prod", "pin.json"))
		return err == nil
	})
	reader := strings.TrimSpace(publisher.must(t, "token", "new", "--name", "reader"))
	halted := func() bool {
		_, said := publisher.get(t, "/readyz", "Authorization", "Bearer "+reader)
		return strings.Contains(said, "sequence 2 of the channel prod is halted")
	}
	testkit.Eventually(t, "/readyz tells of it", halted)
	// The token of a node tells how it is, and that is all.
	for path, want := range map[string]int{"/v1/fleet": 403, "/v1/check?sender=x@bad.example": 403, "/v1/decisions": 403, "/readyz": 403} {
		testkit.Got(publisher.get(t, path, "Authorization", "Bearer "+token))(t, fmt.Sprintf("%s with a token of a node", path), want, "…")
	}
	testkit.Got(publisher.post(t, token, "/v1/entries", `{"entry":"x.example"}`))(t, "a change with a token of a node", 403, "…")
	testkit.Has(t, publisher.must(t, "audit"), "snapshot.halt", "standard errors")
	// What is published ends the halt, and the word of it.
	publisher.must(t, "publish", "--why", "it was right")
	testkit.Eventually(t, "the halt is over", func() bool { return !halted() })
}

// An administrator halts the channel and takes it back over HTTP, beside a daemon that publishes by itself. What was taken back does not come
// again by itself, and other people find in the journal who did it and why.
func TestChannelOverHTTP(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	key := filepath.Join(dir, "publish.key")
	runs(t, "publish", "keygen", key)
	list := filepath.Join(dir, "lists", "bad.txt")
	testkit.Write(t, list, "bad.example\n")
	testkit.Write(t, filepath.Join(dir, "config.toml"), strings.Replace(anyPorts, "[http]\n", "[http]\ntokens = \"tokens\"\nmax_rate = 0\n", 1)+
		fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
	publisher := serveIn(t, dir, "http")
	admin := strings.TrimSpace(publisher.must(t, "token", "new", "--name", "ann", "--admin"))
	state := func() (s httpapi.ChannelState) {
		status, said := publisher.get(t, "/v1/fleet/sequences", "Authorization", "Bearer "+admin)
		err := json.Unmarshal([]byte(said), &s)
		testkit.MustGot(status, err, said)(t, "status", 200, nil, "…")
		return s
	}
	post := func(path, body string, want int) string {
		t.Helper()
		status, said := publisher.post(t, admin, path, body)
		testkit.Equal(t, fmt.Sprintf("%s %s: %d %s", path, body, status, said), status, want)
		return said
	}
	testkit.Eventually(t, "the first sequence", func() bool { return state().Sequence == 1 })
	testkit.Has(t, post("/v1/fleet/halt", `{"why":"x"}`, 409), "no sequence before")
	testkit.Write(t, list, "bad.example\ngood.example\n")
	testkit.Eventually(t, "the second sequence", func() bool { return state().Sequence == 2 })

	post("/v1/fleet/halt", `{"why":"good mail is refused"}`, 200)
	if s := state(); s.Halted == nil || s.Halted.Sequence != 1 || len(s.Sequences) != 2 || s.Sequences[1].Entries != 1 || s.Sequences[0].Lists[0] != "bad" {
		t.Errorf("halted: %+v", s)
	}
	testkit.Value(os.Stat(filepath.Join(store, "prod", "pin.json")))(t)
	problem := func(text string) func() bool {
		return func() bool {
			_, said := publisher.get(t, "/readyz", "Authorization", "Bearer "+admin)
			return strings.Contains(said, text)
		}
	}
	testkit.Eventually(t, "/readyz tells of the halt", problem("the channel is halted"))
	post("/v1/fleet/again", `{"sequence":1,"now":true,"why":"ticket 4711"}`, 200)
	if s := state(); s.Halted != nil || !s.Stands || s.Sequence != 3 || s.Sequences[0].Entries != 1 {
		t.Errorf("taken back: %+v", s)
	}
	testkit.Eventually(t, "/readyz tells that it stands", problem("was published again, and stands"))
	testkit.Write(t, list, "bad.example\ngood.example\nother.example\n")
	testkit.Eventually(t, "the list serves here", func() bool {
		_, said := publisher.get(t, "/v1/check?sender=x@other.example", "Authorization", "Bearer "+admin)
		return strings.Contains(said, "blocked")
	})
	testkit.Equal(t, "the sequence of what was taken back", state().Sequence, 3)
	testkit.Has(t, publisher.must(t, "audit"), "good mail is refused", "what sequence 1 had", "ann")
	testkit.Write(t, list, "bad.example\nother.example\n")
	publisher.must(t, "publish", "--why", "the list is right")
	if s := state(); s.Sequence != 4 || s.Stands {
		t.Errorf("published: %+v", s)
	}
	testkit.Write(t, list, "bad.example\n")
	testkit.Eventually(t, "it publishes by itself again", func() bool { return state().Sequence == 5 })
}
