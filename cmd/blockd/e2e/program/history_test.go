package program

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
	"blockd/records/history"
	"blockd/records/letter"
)

// TestHistory refuses a mail, takes the reference out of the reply, and has it
// explained: by the daemon, after a crash, and without a daemon. Then it asks what a new
// list would have done to the mail that was taken.
func TestHistory(t *testing.T) {
	policy := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Postfix: fmt.Sprintf("policy_listen = %q", policy),
		Files: map[string]string{"own.txt": "# ours\nbad.example\n", "friends.txt": "boss@fine.example\n",
			"new.txt": "other.example\nfine.example\nbad.example\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nreason = \"phishing\"\n" +
			"[[list]]\nname = \"friends\"\npath = \"friends.txt\"\naction = \"allow\"\n"})
	smtp := e2e.DialSMTP(t, d.SMTP)
	reply := smtp.Send("X@Sub.Bad.Example", "you@here.example", []byte("Subject: a\r\n\r\nb\r\n"))
	found := e2e.Reference.FindStringSubmatch(reply)
	if found == nil || !strings.HasPrefix(reply, "550 5.7.1 ") {
		t.Fatalf("reply %q", reply)
	}
	for _, to := range []string{"you@here.example", "postmaster@here.example"} {
		for _, from := range []string{"good@fine.example", "boss@fine.example", "else@third.example"} {
			e2e.MustBegin(t, fmt.Sprintf("%s to %s", from, to), smtp.Send(from, to, []byte("Subject: a\r\n\r\nb\r\n")), "250")
		}
	}
	conn := testkit.Value(net.Dial("tcp", policy))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=news@fine.example\nrecipient=you@here.example\nclient_address=198.51.100.9\nhelo_name=mx.fine.example\n\n")
	if _, err := io.ReadFull(conn, make([]byte, len("action=DUNNO\n\n"))); err != nil {
		t.Fatal(err)
	}

	explained := func(when string) {
		t.Helper()
		out := d.Must(t, "history", "--ref", strings.ToUpper(found[1]))
		for _, want := range []string{found[1], "refused", "smtp", "127.0.0.1", "x@sub.bad.example", "you@here.example", "own", "bad.example (block, tree)",
			"own.txt:2", "phishing"} {
			if !strings.Contains(out, want) {
				t.Fatalf("%s: no %q in\n%s", when, want, out)
			}
		}
	}
	explained("by the daemon")
	if out := d.Must(t, "history", "--sender", "news@fine.example"); !strings.Contains(out, "198.51.100.9") || strings.Count(out, "\n") != 2 {
		t.Errorf("the policy service's decision:\n%s", out)
	}
	testkit.Has(t, d.Must(t, "lists", "--entries"), "boss@fine.example  friends:1     2     2", "bad.example        own:2         1     1")
	if status, body := d.Get("/v1/decisions?outcome=refuse"); status != 401 || strings.Contains(body, "bad.example") {
		t.Errorf("GET /v1/decisions without a token = %d, %s", status, body)
	}
	status, body := d.GetWith(d.FirstToken(t), "/v1/decisions?outcome=refuse")
	var answer struct {
		Decisions []struct{ Ref, List, Sender string }
		More      bool
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || len(answer.Decisions) != 1 || answer.Decisions[0].Ref != found[1] {
		t.Errorf("GET /v1/decisions = %d, %s", status, body)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "since=7d", "verdict=no", "colour=red", "client=nobody", "ref=a&ref=b"} {
		if status, body := d.GetWith(d.FirstToken(t), "/v1/decisions?"+bad); status != 400 {
			t.Errorf("GET /v1/decisions?%s = %d, %s", bad, status, body)
		}
	}

	testkit.Eventually(t, "the decisions to be on disk", func() bool {
		all := d.Kept(t)
		return strings.Contains(all, found[1]) && strings.Contains(all, "news@fine.example")
	})
	d.Kill(t)
	explained("after a crash, without a daemon")
	d.Start(t)
	explained("after a crash, by the daemon")

	var report struct {
		Accepted, Refused, Exempt, Allowed int
		AcceptedSenders                    int `json:"accepted_senders"`
		RefusedSenders                     int `json:"refused_senders"`
		Senders                            []struct {
			Name  string
			Mails int
		}
	}
	out := d.Must(t, "replay", "--list", d.Path("new.txt"), "--since", "1h", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	// Taken: three senders for two recipients, and one by the policy service. Of these
	// the list has good@ twice, once exempt, boss@ whom an entry allows, and news@.
	if report.Accepted != 7 || report.Refused != 2 || report.Exempt != 2 || report.Allowed != 1 || report.AcceptedSenders != 3 ||
		report.RefusedSenders != 2 || len(report.Senders) != 2 || report.Senders[0].Name != "good@fine.example" {
		t.Errorf("replay says %s", out)
	}
	testkit.Has(t, d.Must(t, "replay", "--list", d.Path("new.txt")), "newly refused  2  of 2 senders", "fine.example (line 2)")
	testkit.Has(t, d.Must(t, "replay", "--list", d.Path("own.txt")), "newly refused  0")
	testkit.Has(t, d.Ends(t, 1, "history", "--sender", "nobody@else.example"), "nothing found")
}

// TestGateKnowsTheMailOfBeforeTheStart takes mail of 120 senders, starts the daemon
// anew, and then has a list that would refuse half of them.
func TestGateKnowsTheMailOfBeforeTheStart(t *testing.T) {
	var writers strings.Builder
	for i := range 60 {
		fmt.Fprintf(&writers, "w%d.example\n", 2*i)
	}
	d := e2e.Serve(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n", "new.txt": writers.String()},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	for i := range 120 { // each from a network of its own: one counts for a few domains a day
		smtp := e2e.DialFrom(t, fmt.Sprintf("127.1.%d.1", i), d.SMTP)
		e2e.MustBegin(t, fmt.Sprintf("mail %d", i), smtp.Send(fmt.Sprintf("n@w%d.example", i), "you@here.example", e2e.Crlf([]byte("Subject: hello\n\nhi\n"))), "250")
		smtp.Conn.Close()
	}
	d.Stop(t)
	<-d.Ended
	if code, out, errs := d.Command(t, "replay", "--list", d.Path("new.txt")); code != 1 || !strings.Contains(out, "newly refused   60  of 60 senders") {
		t.Errorf("replay: %d\n%s%s", code, out, errs)
	}
	d.Start(t)
	testkit.Write(t, d.Path("own.txt"), "bad.example\n"+writers.String())
	d.Reload(t)
	d.Says(t, "/readyz", "would refuse 60 of the 120 ")
}

// TestNoHistory: nothing is kept where nothing is to be.
func TestNoHistory(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	config := testkit.Read(t, d.Path("config.toml"))
	testkit.Write(t, d.Path("config.toml"), string(config)+"\n[history]\nfolder = \"none\"\n")
	d.Start(t)
	testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "x@bad.example"), "550")
	if status, _ := d.Get("/v1/decisions"); status != 404 {
		t.Errorf("GET /v1/decisions = %d", status)
	}
	for _, args := range [][]string{{"history"}, {"replay", "--list", d.Path("own.txt")}} {
		if code, _, errs := d.Command(t, args...); code == 0 || !strings.Contains(errs, "no history is kept") {
			t.Errorf("blockd %q: %d, %s", args, code, errs)
		}
	}
	if _, err := os.Stat(d.Path("blockd.bdx.history")); !os.IsNotExist(err) {
		t.Errorf("there is a folder: %v", err)
	}
}

// TestHistoryOfADamagedFolder: what cannot be kept costs no mail.
func TestHistoryOfADamagedFolder(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "bad.example\n", "blockd.bdx.history": "a file in place of the folder\n"},
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\n"})
	d.Start(t)
	d.Logged(t, 1, "no history is kept")
	testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "x@bad.example"), "550")
}

// TestChartsAndTop: after a stop and after an upgrade the counts of /v1/series are still there, and they are those of the decisions
// that were made.
func TestChartsAndTop(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n[[list]]\nname = \"watch\"\npath = \"watch.txt\"\nmode = \"shadow\"\n",
		Files: map[string]string{"a.txt": "bad.example\nworse.example\n", "watch.txt": "ok.example\n"}})
	ask := func(sender string) {
		t.Helper()
		c := e2e.DialSMTP(t, d.SMTP)
		c.Command("MAIL FROM:<" + sender + ">")
		c.Command("RCPT TO:<you@here.example>")
		c.Command("QUIT")
	}
	for _, sender := range []string{"x@bad.example", "y@bad.example", "x@worse.example", "z@ok.example"} {
		ask(sender)
	}
	d.Fetch(t, "/v1/check?sender=x@bad.example")
	want := func(query string, wanted map[string]uint64) {
		t.Helper()
		have := d.Series(t, query)
		for name, n := range wanted {
			if have[name] != n {
				t.Errorf("%s: %s is %d, want %d, of %v", query, name, have[name], n, have)
			}
		}
	}
	want("by=outcome&span=1h", map[string]uint64{"refuse": 3, "accept": 1})
	want("by=list&span=24h&outcome=refuse", map[string]uint64{"a": 3})
	want("by=shadow&span=7d", map[string]uint64{"watch": 1})

	d.Stop(t)
	d.Start(t)
	want("by=outcome&span=30d", map[string]uint64{"refuse": 3, "accept": 1})
	want("by=checks&span=1h", map[string]uint64{"http": 1, "smtp": 4})
	ask("x@bad.example")
	d.Upgraded(t)
	ask("x@bad.example") // either process may decide about it
	testkit.Eventually(t, "the process before to end", func() bool { return strings.Contains(d.Log.String(), "the process before has ended") })
	want("by=outcome&span=1h", map[string]uint64{"refuse": 5, "accept": 1})
	want("by=door&span=365d&outcome=refuse", map[string]uint64{"smtp": 5})

	top := e2e.JSONOf[httpapi.Top](t, d, "/v1/top?by=domain&span=24h&outcome=refuse")
	if top.Decisions != 5 || len(top.Top) != 2 || top.Top[0].Name != "bad.example" || top.Top[0].Decisions != 4 {
		t.Errorf("top is %+v", top)
	}
	for _, row := range top.Top { // each leads to its decisions
		found := e2e.JSONOf[httpapi.DecisionList](t, d, "/v1/decisions?outcome=refuse&domain="+row.Name)
		testkit.Equal(t, row.Name+": its decisions, and what the top says", uint64(len(found.Decisions)), row.Decisions)
	}
	one := e2e.JSONOf[httpapi.DecisionList](t, d, "/v1/decisions?limit=2")
	two := e2e.JSONOf[httpapi.DecisionList](t, d, "/v1/decisions?limit=2&cursor="+one.Next)
	back := e2e.JSONOf[httpapi.DecisionList](t, d, "/v1/decisions?limit=2&cursor="+two.Prev)
	if one.Prev != "" || len(back.Decisions) != 2 || back.Decisions[0] != one.Decisions[0] || back.Next != one.Next {
		t.Errorf("back from the second page is %+v, want %+v", back, one)
	}

	page := e2e.JSONOf[httpapi.ListPage](t, d, "/v1/lists/watch")
	if page.Worth.Mode != "shadow" || page.Shadow.Decisions != 1 || len(page.Loads) == 0 || !page.Undo {
		t.Errorf("the page of a list is %+v", page)
	}
	replayed := e2e.JSONOf[httpapi.Replay](t, d, "/v1/lists/watch/replay?span=24h")
	if replayed.Accepted != 1 || replayed.Refused != 1 || !replayed.Complete || len(replayed.BySender) != 1 || replayed.BySender[0].Name != "z@ok.example" {
		t.Errorf("a replay of the list is %+v", replayed)
	}
	if a := e2e.JSONOf[httpapi.Replay](t, d, "/v1/lists/a/replay"); a.Refused != 0 || a.RefusedThen != 5 {
		t.Errorf("a replay of the list that refuses is %+v", a)
	}
	if status, body := d.GetWith(d.FirstToken(t), "/v1/lists/none/replay"); status != http.StatusNotFound {
		t.Errorf("a replay of no list: %d %s", status, body)
	}
	added := e2e.JSONOf[httpapi.NewList](t, d, "/v1/catalogue/text?what=https://lists.example/some.txt")
	if !strings.Contains(added.Text, "[[list]]") || !strings.Contains(added.Text, `mode = "shadow"`) {
		t.Errorf("a new list is %+v", added)
	}
}

// Changes by commands, by HTTP and by another configuration are one chain, which a kill and a restart do not break, and which a shell
// without blockd can check.
func TestAudit(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bank.example\n"}})
	d.Must(t, "add", "--why", "ticket 4711", "x@bulk.example")
	d.Must(t, "pause", "bad", "--for", "2h", "--why", "refuses our bank")
	d.Kill(t)
	d.Start(t)
	d.Must(t, "remove", "--why", "it was another", "x@bulk.example")
	d.Must(t, "resume", "bad")
	out := d.Must(t, "audit", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"list.resume", "entry.remove", "start", "list.pause", "entry.add", "start"}
	if len(lines) != len(want) {
		t.Fatalf("%s", out)
	}
	for i, action := range want {
		if !strings.Contains(lines[i], `"action":"`+action+`"`) {
			t.Errorf("line %d: %s, want %s", i, lines[i], action)
		}
	}
	if !strings.Contains(lines[1], `"why":"it was another"`) || !strings.Contains(lines[1], "ticket 4711") {
		t.Errorf("what was removed: %s", lines[1])
	}
	testkit.Begins(t, "audit --verify", d.Must(t, "audit", "--verify"), "whole: 6 lines from ")
	_, sum, _ := strings.Cut(lines[len(lines)-1], `"hash":"`)
	files, err := filepath.Glob(d.Path("*.audit/00000001.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := exec.Command("sh", "-c", `head -n1 "$0" | sed 's/,"hash":"[0-9a-f]*"}$//' | tr -d '\n' | sha256sum`, files[0]).Output()
	if err != nil || len(sum) < 64 || !strings.HasPrefix(string(text), sum[:64]) {
		t.Errorf("by sha256sum: %s, %v, want %s", text, err, sum)
	}
}

// TestNobodyIsToldAnothersRefusal: one address names 200 listed senders, repeats some of them, and then somebody else's
// sender is refused from there. Each is told its own list and a reference of its own, and what each door, command and
// chart says of it is the same, to the digit, at once.
func TestNobodyIsToldAnothersRefusal(t *testing.T) {
	const each, again, deferred = 200, 61, 25
	door := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{SMTP: e2e.ManyErrors,
		Files: map[string]string{"flood.txt": "bad.example\n", "junk.txt": "junk.example\n", "maybe.txt": "maybe.example\n"},
		Lists: fmt.Sprintf("[receipts]\nlisten = %q\n", door) + e2e.List("flood", `on_match = "refuse"`) + e2e.List("junk", `on_match = "refuse"`) +
			e2e.List("maybe", `on_match = "tempfail"`)})
	begun := time.Now().Add(-time.Second).Truncate(time.Second)
	client := e2e.DialSMTP(t, d.SMTP)
	refuse := func(sender, recipient string) (ref string) {
		t.Helper()
		reply := client.Rcpt(sender, recipient)
		found := e2e.Reference.FindStringSubmatch(reply)
		if found == nil {
			t.Fatalf("%s: %q", sender, reply)
		}
		return found[1]
	}
	refs := map[string]string{}
	for n := range each {
		sender := fmt.Sprintf("x%d@bad.example", n)
		refs[refuse(sender, "you@here.example")] = sender
	}
	for n := range again {
		refuse("again@bad.example", "you@here.example")
		refuse("many@bad.example", fmt.Sprintf("r%d@here.example", n))
	}
	for range deferred {
		refuse("x@maybe.example", "you@here.example")
	}
	victim := refuse("victim@junk.example", "you@here.example")
	refs[victim] = "victim@junk.example"
	testkit.Equal(t, "references", len(refs), each+1)

	lists := map[string]uint64{"flood": each + 2*again, "junk": 1, "maybe": deferred}
	senders := map[string]uint64{"again@bad.example": again, "many@bad.example": again, "x@maybe.example": deferred}
	for _, sender := range refs {
		senders[sender] = 1
	}
	same := func(what string, got, want map[string]uint64) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: have %v, want %v", what, got, want)
		}
	}
	charts := func(when string) {
		t.Helper()
		same(when+", the chart", d.Series(t, "by=list&span=1h"), lists)
		same(when+", outcomes", d.Series(t, "by=outcome&span=1h"), map[string]uint64{"refuse": each + 2*again + 1, "defer": deferred})
	}
	top := func(by, since string) map[string]uint64 {
		got := map[string]uint64{}
		for _, row := range e2e.JSONOf[httpapi.Top](t, d, "/v1/top?limit=1000&outcome=mail&by="+by+since).Top {
			got[row.Name] = row.Decisions
		}
		return got
	}
	charts("at once")
	series := e2e.JSONOf[httpapi.Series](t, d, "/v1/series?span=1h")
	same("top of the chart's time", top("list", "&since="+series.From.Format(time.RFC3339)), lists)
	same("top, by sender", top("sender", ""), senders)
	recipients := top("recipient", "")
	testkit.Equal(t, "refusals of you", recipients["you@here.example"], each+again+deferred+1)
	for n := range again {
		testkit.AtMost(t, "refusals of one of many", recipients[fmt.Sprintf("r%d@here.example", n)], 1)
	}
	var counted history.Top
	testkit.Must(t, json.Unmarshal([]byte(d.Must(t, "history", "top", "--by", "list", "--json")), &counted))
	got := map[string]uint64{}
	for _, row := range counted.Rows {
		got[row.Name] = row.Decisions
	}
	same("history top", got, lists)
	var report letter.Letter
	testkit.Must(t, json.Unmarshal([]byte(d.Must(t, "report", "--since", begun.UTC().Format(time.RFC3339), "--json")), &report))
	clear(got)
	for _, list := range report.Lists {
		got[list.Name] = list.Refused + list.Deferred
	}
	same("report", got, lists)
	testkit.Got(report.Mail.Refused, report.Mail.Deferred)(t, "report of mail", uint64(each+2*again+1), uint64(deferred))
	clear(got)
	for _, list := range e2e.JSONOf[httpapi.ListTable](t, d, "/v1/lists").Worth {
		got[list.List] = *list.Hits
		page := e2e.JSONOf[httpapi.ListPage](t, d, "/v1/lists/"+list.List)
		testkit.Equal(t, "decided, on the page of "+list.List, page.Decided.Decisions, lists[list.List])
	}
	same("lists", got, lists)

	for ref, sender := range refs {
		list := "flood"
		if ref == victim {
			list = "junk"
		}
		found := e2e.JSONOf[httpapi.DecisionList](t, d, "/v1/decisions?ref="+ref).Decisions
		if len(found) != 1 || found[0].Sender != sender || found[0].List != list || found[0].Repeated != 0 {
			t.Errorf("%s is of %+v, want %s by %s", ref, found, sender, list)
		}
	}
	testkit.Has(t, d.Must(t, "history", "--sender", "victim@junk.example"), victim, "junk")
	page := func(method string) string {
		t.Helper()
		resp := testkit.Value(http.DefaultClient.Do(testkit.Value(http.NewRequest(method, "http://"+door+"/r/"+victim, strings.NewReader("")))(t)))(t)
		defer resp.Body.Close()
		return string(testkit.Value(io.ReadAll(resp.Body))(t))
	}
	testkit.Has(t, page(http.MethodGet), "“junk”")
	page(http.MethodPost)
	d.Must(t, "requests", "grant", victim)
	if reply := client.Rcpt("x0@bad.example", "you@here.example"); reply[0] != '5' {
		t.Errorf("another sender is let in: %q", reply)
	}
	testkit.Has(t, string(d.Fetch(t, "/v1/entries")), "victim@junk.example")
}
