package program

import (
	"net/http"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
)

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
