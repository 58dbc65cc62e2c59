package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/doors/httpapi"
	"blockd/index/live/shared/redis"
	"blockd/internal/testkit"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/redisserver"
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

// fleetKey is what machines that share have, and their store has not.
const fleetKey = "a key of 32 octets at the least, of a fleet"

// sharing begins so many daemons that share live entries by a database.
func sharing(t *testing.T, kind, dsn string, count int) []*running {
	t.Helper()
	var all []*running
	addresses, asked := make([]string, count), []string{}
	for i := range addresses {
		addresses[i] = testkit.Unused(t)
		asked = append(asked, fmt.Sprintf("%q", "http://"+addresses[i]))
	}
	for i := range count {
		dir := t.TempDir()
		testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
		testkit.Write(t, filepath.Join(dir, "live.dsn"), dsn+"\n"+fleetKey+"\n")
		testkit.Must(t, os.Chmod(filepath.Join(dir, "live.dsn"), 0o600))
		address := addresses[i]
		testkit.Write(t, filepath.Join(dir, "config.toml"), strings.Replace(anyPorts, "[http]\nlisten = \"127.0.0.1:0\"", "[http]\nlisten = \""+address+"\"", 1)+
			fmt.Sprintf("[fleet]\nnode = \"mx%d\"\naddress = \"http://%s\"\nask = [%s]\n", i, address, strings.Join(asked[:min(len(asked), 3)], ", "))+"[live]\nshared = \""+kind+"\"\ndsn_file = \"live.dsn\"\nname = \"eu-mx\"\n")
		all = append(all, serveIn(t, dir, "smtp", "http"))
	}
	for _, d := range all {
		testkit.Eventually(t, "the database answers", func() bool {
			status, out, _ := d.command("live", "status")
			return status == 0 && strings.Contains(out, "answers   yes")
		})
	}
	return all
}

// command runs a command with the daemon's configuration.
func (d *running) command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	at := 1
	if args[0] == "token" || args[0] == "live" {
		at = 2
	}
	args = append(append(args[:at:at], "-c", filepath.Join(d.dir, "config.toml")), args[at:]...)
	code = run(args, nil, &out, &errs)
	return code, out.String(), errs.String()
}

func (d *running) must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := d.command(args...)
	testkit.MustEqual(t, fmt.Sprintf("%q: %s", args, errs), code, 0)
	return out
}

// post sends JSON with a token, and returns the answer.
func (d *running) post(t *testing.T, token, path, body string) (status int, answer string) {
	t.Helper()
	req := testkit.Value(http.NewRequest("POST", d.http+path, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp := testkit.Value(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	text := testkit.Value(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(text)
}

// What is added, removed or revoked on one machine acts on the others.
func TestDaemonsShare(t *testing.T) {
	test := func(t *testing.T, kind, dsn string) {
		all := sharing(t, kind, dsn, 3)
		a, b, c := all[0], all[1], all[2]
		a.must(t, "add", "spam@phish.example", "--why", "phish")
		for _, d := range all {
			d.waitBlocked(t, "spam@phish.example", true)
		}
		token := strings.TrimSpace(a.must(t, "token", "new", "--name", "desk", "--write"))
		var answer struct {
			Results []struct{ Entry struct{ Rev uint64 } }
		}
		testkit.Eventually(t, "the token on B", func() bool {
			status, text := b.post(t, token, "/v1/entries", `{"entry":"two.example","why":"by a token"}`)
			return status == 200 && json.Unmarshal([]byte(text), &answer) == nil
		})
		c.waitBlocked(t, "x@two.example", true)
		rev := answer.Results[0].Entry.Rev
		testkit.Got(c.post(t, token, "/v1/entries", fmt.Sprintf(`{"entry":"two.example","why":"once more","if_rev":%d}`, rev)))(t, fmt.Sprintf("if_rev %d", rev), 200, "…")
		status, text := a.post(t, token, "/v1/entries", fmt.Sprintf(`{"entry":"two.example","why":"too late","if_rev":%d}`, rev))
		if status != 409 || !strings.Contains(text, `"was":{"entry":"two.example"`) || !strings.Contains(text, "once more") {
			t.Errorf("an old revision: %d %s", status, text)
		}
		testkit.Has(t, b.must(t, "token", "list"), "desk", "fleet")
		// One view of all, and one question about what they have decided.
		testkit.Eventually(t, "all nodes report", func() bool {
			var v httpapi.FleetView
			out := a.must(t, "fleet", "--json")
			if strings.Contains(out, "null") {
				t.Fatalf("a node that is well has something that is null, which pages cannot draw: %s", out)
			}
			return json.Unmarshal([]byte(out), &v) == nil && len(v.Nodes) == 3 && v.Nodes[2].Node == "mx2" && v.Nodes[2].LiveUp
		})
		testkit.Eventually(t, "doctor to find nothing wrong with live entries and fleet", func() bool { // a node's first report may be of its start
			_, out, _ := b.command("doctor")
			return strings.Contains(out, "ok       live  ") && strings.Contains(out, "ok       fleet  ")
		})
		testkit.Has(t, b.must(t, "fleet"), "mx0", "live rev")
		c.send(t, "x@two.example", "bob@here.example")
		t.Setenv("BLOCKD_TOKEN", token)
		testkit.Eventually(t, "a decision of another node", func() bool {
			code, out, _ := a.command("history", "--fleet", "--sender", "x@two.example", "--outcome", "refuse")
			return code == 0 && strings.Contains(out, "mx2")
		})
		t.Setenv("BLOCKD_TOKEN", "")
		testkit.Got(a.command("history", "--fleet", "--sender", "nobody@two.example"))(t, "without a token", 1, "…", "…mx2: it wants a token that may read…")
		refused := func(token string) {
			t.Helper()
			for _, d := range all {
				testkit.Eventually(t, "the token is refused", func() bool {
					status, _ := d.post(t, token, "/v1/entries", `{"entry":"three.example"}`)
					return status == 401
				})
			}
		}
		another := strings.TrimSpace(c.must(t, "token", "rotate", "desk"))
		refused(token)
		testkit.Eventually(t, "the other token on A", func() bool {
			status, _ := a.post(t, another, "/v1/entries", `{"entry":"two.example","why":"by another token"}`)
			return status == 200
		})
		b.must(t, "token", "revoke", "desk")
		refused(another)
		c.must(t, "remove", "spam@phish.example")
		for _, d := range all {
			d.waitBlocked(t, "spam@phish.example", false)
		}
		// Without a daemon the command reaches the others, too.
		testkit.Equal(t, "ended with", c.end(t), 0)
		c.must(t, "add", "four.example", "--why", "no daemon here")
		for _, d := range all[:2] {
			d.waitBlocked(t, "x@four.example", true)
		}
	}
	t.Run("postgres", func(t *testing.T) {
		server, err := postgresserver.Open()
		if err != nil {
			testkit.Missing(t, "PostgreSQL is not installed (make peers)")
		}
		t.Cleanup(server.Close)
		name := server.Database(t, "")
		code, ddl, errs := blockd(t, "", "source", "ddl", "live")
		testkit.MustEqual(t, "source ddl live: "+errs, code, 0)
		server.Exec(t, name, ddl) // as an administrator does for a role that may not
		test(t, "postgres", server.URL("postgres", name))
	})
	t.Run("redis", func(t *testing.T) { test(t, "redis", redisserver.Start(t).URL()) })
}

// While the database is away changes are refused with 503, and mail is answered as before.
func TestSharedDatabaseAway(t *testing.T) {
	server := redisserver.Start(t)
	d := sharing(t, "redis", server.URL(), 1)[0]
	d.must(t, "add", "one.example")
	token := strings.TrimSpace(string(testkit.Read(t, filepath.Join(d.dir, "var", "a.bdx.token"))))
	server.Kill()
	begun := time.Now()
	testkit.Got(d.post(t, token, "/v1/entries", `{"entry":"two.example"}`))(t, "away", 503, "…does not answer…")
	t.Logf("refused after %s", time.Since(begun))
	if !d.blocks(t, "x@one.example") || d.blocks(t, "x@two.example") {
		t.Error("what acts has changed")
	}
	testkit.Eventually(t, "/readyz tells of it", func() bool {
		_, text := d.get(t, "/readyz")
		return strings.Contains(text, "live.shared: ")
	})
}

// A node says itself where it can be asked. Neither the operator's token nor the question goes to an address that fleet.ask does not name.
func TestTheTokenStaysHome(t *testing.T) {
	server := redisserver.Start(t)
	d := sharing(t, "redis", server.URL(), 1)[0]
	asked := make(chan string, 10)
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String() + " " + r.Header.Get("Authorization")
	}))
	defer thief.Close()
	report := testkit.Value(roster.Report{Node: "thief", At: time.Now(), Address: thief.URL}.Encode())(t)
	e := testkit.Value(redis.Open(server.URL(), "eu-mx"))(t)
	defer e.Close()
	testkit.Must(t, e.Report(t.Context(), "thief", report, time.Minute))
	t.Setenv("BLOCKD_TOKEN", strings.Repeat("secret", 5))
	testkit.Got(d.command("history", "--fleet", "--sender", "anna@private.example"))(t, "said", "…", "…", "…thief: it says that it is at "+thief.URL+", which fleet.ask does not name…")
	select {
	case got := <-asked:
		t.Errorf("it was asked: %s", got)
	default:
	}
}

// A daemon that asks another daemon (a relay) for changes gets every live entry, and entries that are added to it reach the other one.
func TestDaemonBehindARelay(t *testing.T) {
	server := redisserver.Start(t)
	first := sharing(t, "redis", server.URL(), 1)[0]
	first.must(t, "add", "before.example")
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
	for name, text := range map[string]string{"live.dsn": server.URL() + "\n" + fleetKey + "\n", "relay.token": strings.TrimSpace(first.must(t, "token", "new", "--name", "relay"))} {
		testkit.Write(t, filepath.Join(dir, name), text+"\n")
		testkit.Must(t, os.Chmod(filepath.Join(dir, name), 0o600))
	}
	testkit.Write(t, filepath.Join(dir, "config.toml"), anyPorts+fmt.Sprintf("[live]\nshared = \"redis\"\ndsn_file = \"live.dsn\"\nname = \"eu-mx\"\nrelays = [%q]\nrelay_token_file = \"relay.token\"\n", first.http))
	d := serveIn(t, dir, "smtp", "http")
	d.waitBlocked(t, "x@before.example", true)
	testkit.Eventually(t, "the relay is asked", func() bool {
		_, text := first.get(t, "/v1/live/changes?since=0", "Authorization", "Bearer "+strings.TrimSpace(string(testkit.Read(t, filepath.Join(dir, "relay.token")))))
		return strings.Contains(text, `"entry":"before.example"`)
	})
	begun := time.Now()
	for i := range 5 {
		first.must(t, "add", fmt.Sprintf("x%d.example", i))
		d.waitBlocked(t, fmt.Sprintf("x@x%d.example", i), true)
	}
	t.Logf("five entries after %s", time.Since(begun))
	d.must(t, "add", "back.example")
	first.waitBlocked(t, "x@back.example", true)
	bearer := "Bearer " + strings.TrimSpace(string(testkit.Read(t, filepath.Join(dir, "relay.token"))))
	for _, query := range []string{"", "?since=x", "?since=1&wait=31", "?since=1&more=1"} {
		testkit.Got(first.get(t, "/v1/live/changes"+query, "Authorization", bearer))(t, query, 400, "…")
	}
	testkit.Got(first.get(t, "/v1/live/changes?since=0"))(t, "without a token", 401, "…")
}

// A node whose snapshot was damaged on disk, by whatever of its files, starts, fetches it again and has its lists.
func TestDamagedSnapshotAtAStart(t *testing.T) {
	dir, store, key := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "publish.key")
	runs(t, "publish", "keygen", key)
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
	testkit.Write(t, filepath.Join(dir, "config.toml"), anyPorts+fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
	runs(t, "compile", "-c", filepath.Join(dir, "config.toml"))
	runs(t, "publish", "-c", filepath.Join(dir, "config.toml"), "--why", "the first")
	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	base, _, _ := strings.Cut(anyPorts, "[[list]]")
	follower := t.TempDir()
	testkit.Write(t, filepath.Join(follower, "config.toml"), base+fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\nnode = \"real\"\n", store, public))
	d := serveIn(t, follower, "smtp", "http")
	d.waitBlocked(t, "x@bad.example", true)
	testkit.Equal(t, "ended with", d.end(t), 0)
	folder := testkit.Value(filepath.Glob(filepath.Join(follower, "*", "*.fleet")))(t)
	testkit.MustEqual(t, "folders of the fleet", len(folder), 1)
	for _, name := range []string{"current/manifest.json", "state", "files/*"} {
		for _, text := range []string{"", "{\"torn\":", "nonsense\n"} {
			paths := testkit.Value(filepath.Glob(filepath.Join(folder[0], name)))(t)
			testkit.AtLeast(t, name, len(paths), 1)
			testkit.Write(t, paths[0], text)
			d = serveIn(t, follower, "smtp", "http")
			d.waitBlocked(t, "x@bad.example", true)
			testkit.Equal(t, fmt.Sprintf("%s with %q: ended with", name, text), d.end(t), 0)
		}
	}
}

// A file of a snapshot in force that has gone is missing, and no list without entries; it is there again after the
// next look.
func TestLostFilesOfASnapshot(t *testing.T) {
	dir, store, key := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "publish.key")
	runs(t, "publish", "keygen", key)
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "n%d.example\n", i)
	}
	writeFile(t, dir, "lists/bad.txt", many.String()+"bad.example\n")
	publisher := writeFile(t, dir, "config.toml", anyPorts+fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
	runs(t, "publish", "-c", publisher)
	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	base, _, _ := strings.Cut(anyPorts, "[[list]]")
	node := t.TempDir()
	config := func(every string) string {
		return writeFile(t, node, "config.toml", base+fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = %q\n", store, public, every))
	}
	config("1h") // it does not look while this test does
	links := filepath.Join(node, "var", "a.bdx.fleet", "current", "lists", "bad")
	for what, spoil := range map[string]func(){
		"a link": func() {
			for _, path := range testkit.Value(filepath.Glob(filepath.Join(links, "*.ent")))(t) {
				if bytes.Contains(testkit.Read(t, path), []byte("bad.example")) {
					testkit.Must(t, os.Remove(path))
				}
			}
		},
		"the folder": func() { testkit.Must(t, os.RemoveAll(links)) },
		"a shard": func() {
			for _, path := range testkit.Value(filepath.Glob(filepath.Join(links, "*.ent")))(t) {
				if file, err := filepath.EvalSymlinks(path); err == nil { // shards without entries are one file
					testkit.Must(t, os.Remove(file))
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := serveIn(t, node, "smtp", "http")
			d.waitBlocked(t, "x@bad.example", true)
			spoil()
			testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
			testkit.Eventually(t, "it is told", func() bool {
				_, body := d.get(t, "/readyz")
				said := fmt.Sprint(d.log) // the look of the start may come first, and mend it
				return strings.HasPrefix(body, "degraded") && strings.Contains(body, "missing") ||
					strings.Contains(said, " made again") || strings.Contains(said, " fetched again")
			})
			d.waitBlocked(t, "x@bad.example", true)
			testkit.MustEqual(t, "exit", d.end(t), 0)
			d = serveIn(t, node, "smtp", "http")
			d.waitBlocked(t, "x@bad.example", true)
			testkit.Eventually(t, "in order again", func() bool { _, body := d.get(t, "/readyz"); return strings.HasPrefix(body, "ok") })
			testkit.MustEqual(t, "exit", d.end(t), 0)
		})
	}
}

// What an operator has chosen for a fleet, or a node, the daemon takes as it is, and so do the commands that compare a
// list with the index.
func TestCommandsTakeWhatWasChosenForAFleet(t *testing.T) {
	dir, store, node := t.TempDir(), t.TempDir(), t.TempDir()
	key := filepath.Join(dir, "publish.key")
	runs(t, "publish", "keygen", key)
	publish := func(n int, args ...string) {
		t.Helper()
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "n%d.example\n", i)
		}
		writeFile(t, dir, "lists/bad.txt", text.String())
		config := writeFile(t, dir, "config.toml", anyPorts+fmt.Sprintf("max_grow = 100\n[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
		runs(t, append([]string{"publish", "--now", "-c", config}, args...)...)
	}
	publish(1000)
	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	text, _, _ := strings.Cut(anyPorts, "[[list]]")
	config := writeFile(t, node, "config.toml", text+fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\n", store, public))
	d := serveIn(t, node, "http")
	d.waitBlocked(t, "x@n7.example", true)
	publish(10_100)
	testkit.Eventually(t, "the gate refuses the second sequence", func() bool {
		_, body := d.get(t, "/readyz")
		return strings.Contains(body, "grown: 10100 entries after 1000")
	})
	testkit.MustEqual(t, "exit", d.end(t), 0)

	file := filepath.Join(node, "var", "a.bdx.fleet", "current", "lists", "bad", "00.ent")
	says(t, 1, "grown: 10100 entries after 1000", "compile", "-c", config, "--offline")
	runs(t, "fleet", "pin", "2", "-c", config)
	runs(t, "lint", "-c", config, file)
	runs(t, "compile", "-c", config, "--offline")
	d = serveIn(t, node, "http")
	d.waitBlocked(t, "x@n10099.example", true)
}
