package policy_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// Messages are asked for where an entry may need one, by the lists that serve now.
func TestNeedsOfMessages(t *testing.T) {
	p := newPost(t)
	auth := rule.Auth{Resolver: p.resolver}
	plain, author := []list{block("bad", "x.example"), allow("exempt", "x.example")}, []list{block("bad", "x.example"), allow("exempt", "welcomelist_auth *@x.example")}
	for _, tt := range []struct {
		name    string
		lists   []list
		require verdict.Proof
		auth    rule.Auth
		want    bool
	}{
		{"no list needs proof", plain, 0, auth, false},
		{"SPF", plain, verdict.SPFProof, auth, false},
		{"a signature", plain, verdict.SPFProof | verdict.DKIMProof, auth, true},
		{"allow-if-auth", author, 0, auth, true},
		{"nobody to ask", author, verdict.DKIMProof, rule.Auth{}, false},
	} {
		c, _ := checker(t, build(t, tt.lists...), requiring(tt.require, tt.auth))
		testkit.Equal(t, tt.name, c.Needs().Message, tt.want)
	}
}

// What doors want to know of the configuration is told without a generation, too.
func TestNeedsWithoutAGeneration(t *testing.T) {
	set := policy.Settings{Auth: rule.Auth{Resolver: newPost(t).resolver}, Lists: map[string]rule.List{"bulk": {OnMatch: rule.Tag}}}
	c := policy.New(func() *index.Index { return nil }, set, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if n := c.Needs(); !n.Marks || n.Message {
		t.Errorf("%+v", n)
	}
}

// An exempt recipient has its mail without proof, so none is looked for.
func TestExemptRecipientNeedsNoProof(t *testing.T) {
	p := newPost(t)
	set := requiring(verdict.SPFProof|verdict.DKIMProof, rule.Auth{Resolver: p.resolver})
	set.RecipientsExempt = []string{"postmaster"}
	c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")), set)
	v := askSender(c, "a@x.example")
	if c.Awaits(v, "postmaster@here.example") || !c.Awaits(v, "bob@here.example") {
		t.Error("Awaits: want false for postmaster and true for bob")
	}
	if v = c.ProveOrigin(t.Context(), v, "postmaster@here.example", policy.Origin{}); v.Evidence.Tried != 0 || p.Count() != 0 {
		t.Errorf("looked for %s with %d queries", v.Evidence.Tried, p.Count())
	}
}

func TestToldRemembersTenASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []history.Record
		c, _ := checker(t, build(t, block("spam", "*.bulk.example\n")), policy.Settings{Decided: func(r history.Record) { records = append(records, r) }})
		told := c.Told("dns")
		v := askDomain(c, "a.bulk.example")
		for range 25 {
			told.Listed(&v)
		}
		time.Sleep(time.Second)
		for range 25 {
			told.Listed(&v)
		}
		testkit.MustEqual(t, "records of two seconds", len(records), 20)
		r := records[0]
		if r.Door != "dns" || r.Outcome != "listed" || r.Sender != "a.bulk.example" || r.List != "spam" || r.Line != 1 || r.Ref != "" {
			t.Errorf("record: %+v", r)
		}
	})
}

func TestQuestionAboutSomeLists(t *testing.T) {
	c, _ := checker(t, build(t, block("spam", "bulk.example\n"), block("ads", "ads.example\n"), allow("good", "good@bulk.example\n")), policy.Settings{})
	var b policy.Batch
	for _, row := range []struct {
		text  string
		lists map[string]bool
		want  string
	}{
		{"a@bulk.example", nil, "blocked"},
		{"a@bulk.example", map[string]bool{"spam": true}, "blocked"},
		{"a@bulk.example", map[string]bool{"ads": true}, "clear"},
		{"a@bulk.example", map[string]bool{}, "clear"},
		{"good@bulk.example", map[string]bool{"spam": true}, "blocked"},
		{"good@bulk.example", map[string]bool{"spam": true, "good": true}, "allowed"},
		{"a@ads.example", map[string]bool{"ads": true, "spam": true}, "blocked"},
	} {
		q := policy.Question{Text: row.text, Lists: row.lists}
		if v := c.Ask(q); string(v.Kind) != row.want {
			t.Errorf("Ask(%+v) = %s, want %s", q, v.Kind, row.want)
		}
		if v := c.AskAll(&b, []policy.Question{q})[0]; string(v.Kind) != row.want {
			t.Errorf("AskAll(%+v) = %s, want %s", q, v.Kind, row.want)
		}
	}
}

// TestUnsettled: recipients with the same open facts share one answer to the end of a message.
func TestUnsettled(t *testing.T) {
	p := newPost(t)
	c, _ := checker(t, build(t, block("bad", "x.example"), block("worse", "a@x.example"), allow("exempt", "x.example")), policy.Settings{
		Auth: rule.Auth{Resolver: p.resolver}, RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"exempt": {Require: verdict.DKIMProof | verdict.SPFProof}, "worse": {OnMatch: rule.Tempfail}},
		Policies: []rule.Recipients{
			{Recipients: []string{"sales@"}, Lists: []string{"bad", "exempt"}},
			{Recipients: []string{"plain@"}, Lists: []string{"bad"}},
			{Recipients: []string{"free@"}},
		},
	})
	v := askSender(c, "a@x.example")
	if !c.Asks(v, "bob@here.example") || c.Asks(v, "postmaster@here.example") || c.Asks(v, "plain@here.example") {
		t.Error("Asks: want SPF to be asked for bob, and for nobody whom it cannot help")
	}
	v = c.ProveOrigin(t.Context(), v, "bob@here.example", policy.Origin{}) // of an unknown client
	if c.Asks(v, "bob@here.example") {
		t.Error("Asks: SPF was asked")
	}
	bob := c.Unsettled(v, "bob@here.example")
	if bob == (policy.Unsettled{}) || bob.Otherwise != policy.Defer {
		t.Errorf("Unsettled of bob = %+v, want one that ends in a 451", bob)
	}
	if eve := c.Unsettled(v, "eve@here.example"); eve != bob {
		t.Errorf("Unsettled of eve = %+v, and of bob %+v", eve, bob)
	}
	if sales := c.Unsettled(v, "sales@here.example"); sales == bob || sales.Otherwise != policy.Refuse {
		t.Errorf("Unsettled of sales, blocked by another entry = %+v", sales)
	}
	for _, known := range []string{"postmaster@here.example", "plain@here.example", "free@here.example"} {
		if s := c.Unsettled(v, known); s != (policy.Unsettled{}) {
			t.Errorf("Unsettled of %s = %+v, want none: the answer is known", known, s)
		}
	}
	if s := c.Unsettled(askSender(c, "a@clear.example"), "bob@here.example"); s != (policy.Unsettled{}) {
		t.Errorf("Unsettled of a clear sender = %+v", s)
	}
}

// What has begun goes on by the Settings that it began with; the next message of the same client goes by new ones.
func TestRenewedSettingsBeginWithTheNextMessage(t *testing.T) {
	c, _ := checker(t, build(t, list{name: "spam", text: "bad.example\n"}), policy.Settings{})
	tx := c.Begin(&policy.Door{Marks: true, Log: slog.New(slog.DiscardHandler)}, policy.Client{})
	mail := policy.Mail{Sender: "a@bad.example"}
	tx.Mail(mail)
	c.Renew(policy.Settings{RecipientsExempt: []string{"desk"}, Policies: []rule.Recipients{{Recipients: []string{"vip@here.example"}, Lists: []string{}}}})
	if d := tx.Recipient("desk@here.example"); !d.Refuses() {
		t.Error("an open message follows new settings", d.Outcome)
	}
	if tx.Exempts("desk@here.example") {
		t.Error("an open message has new exempt recipients")
	}
	tx.Mail(mail)
	if d := tx.Recipient("desk@here.example"); d.Refuses() {
		t.Error("the next message goes by settings of before", d.Outcome)
	}
	if !tx.Exempts("desk@here.example") {
		t.Error("the next message has the exempt recipients of before")
	}
}
