package policy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"blockd/policy"
	"blockd/records/history"
)

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
		if len(records) != 20 {
			t.Fatalf("%d records of two seconds, want 20", len(records))
		}
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
