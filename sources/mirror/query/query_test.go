package query

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/mirror"
)

func TestJudge(t *testing.T) {
	tests := []struct{ name, query, changes, watermark, want string }{
		{"a log", "select entry from t", Log, "", ""},
		{"a watermark", "select entry, at from t;", Watermark, "at", ""},
		{"no query", " ;\n", None, "", "query: missing"},
		{"an octet 0", "select\x00", None, "", "query: holds"},
		{"a watermark without its column", "select entry from t", Watermark, "", "watermark: missing"},
		{"a column without a watermark", "select entry from t", Log, "at", "watermark: only"},
		{"another word", "select entry from t", "some", "", "changes: want"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Judge(tt.query, tt.changes, tt.watermark)
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("have %v, want %q", err, tt.want)
			}
		})
	}
}

func TestColumns(t *testing.T) {
	c := testkit.Value(NewColumns([]string{"Updated_At", "id", "deleted", "entry"}, "updated_at"))(t)
	row := []string{"7", "12", "t", "a@bulk.example"}
	if got := c.Row(row); got != (mirror.Row{Entry: "a@bulk.example", ID: "12"}) || c.Watermark != 0 || !c.Gone(row) {
		t.Errorf("%+v of %+v", got, c)
	}
	for _, no := range []string{"", "f", "0", "FALSE"} {
		row[2] = no
		testkit.Equal(t, fmt.Sprintf("deleted = %q is a deletion", no), c.Gone(row), false)
	}
	for _, names := range [][]string{{"entry"}, {"updated_at"}, {"entry", "updated_at", "other"}} {
		if _, err := NewColumns(names, "updated_at"); !isSchema(err) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := NewColumns([]string{"entry", "deleted"}, ""); !isSchema(err) {
		t.Errorf("a column deleted without a watermark: %v", err)
	}
}

func isSchema(err error) bool {
	e, ok := errors.AsType[*mirror.Error](err)
	return ok && e.Class == mirror.ClassSchema
}

func TestChangesHaveAllRowsOfAnEntry(t *testing.T) {
	rows := []mirror.Row{{Entry: "a", ID: "1"}, {Entry: "b", ID: "2"}, {Entry: "a", ID: "3"}}
	var got []string
	keep := func(c mirror.Change) error {
		text := c.Owner + c.Entry
		for _, r := range c.Rows {
			text += " " + r.ID
		}
		got = append(got, text)
		return nil
	}
	err := Changes([]Key{{Entry: "b"}, {Entry: "A"}, {Entry: "a"}}, rows, false, keep)
	testkit.Must(t, err)
	testkit.EqualSlices(t, "changes", got, []string{"A", "a 1 3", "b 2"})
	got = nil
	rows[0].Owner, rows[1].Owner, rows[2].Owner = "x/", "x/", "y/"
	err = Changes([]Key{{"b", "x/"}, {"a", "x/"}, {"a", "z/"}}, rows, true, keep)
	testkit.Must(t, err)
	testkit.EqualSlices(t, "changes with owners", got, []string{"z/a", "x/a 1", "x/b 2", "y/a 3"})
}

func TestSeen(t *testing.T) {
	var s Seen
	poll := func(since, next mirror.Mark, rows ...string) (fresh string) {
		s.Begin(since)
		for _, r := range rows {
			if s.New([]string{r, ""}) {
				fresh += r
			}
		}
		s.End(next)
		return fresh
	}
	for i, tt := range []struct {
		since, next mirror.Mark
		rows, want  string
	}{
		{"0", "1", "ab", "ab"},
		{"1", "2", "abc", "c"},
		{"2", "2", "abc", ""},
		{"1", "2", "abc", "abc"}, // the poll before was not taken in
		{"2", "3", "cd", "d"},
		{"3", "4", "a", "a"},
	} {
		testkit.Equal(t, fmt.Sprintf("poll %d", i), poll(tt.since, tt.next, strings.Split(tt.rows, "")...), tt.want)
	}
}

func TestTable(t *testing.T) {
	for query, want := range map[string]string{
		"select entry from senders":                                         "senders entry",
		"SELECT s.address AS entry, id FROM mail.senders AS s WHERE id > 0": "mail.senders address",
		"select id, address entry\nfrom senders s\norder by id":             "senders address",
		"select `a` as `entry` from `the senders`":                          "",
		"select \"a\" as \"entry\" from \"senders\" where not deleted":      "\"senders\" \"a\"",
		"select concat(local, '@', domain) as entry from senders":           "",
		"select a.entry from a join b using (id)":                           "",
		"select a.entry from a, b":                                          "",
		"select entry from (select entry from a) q":                         "",
		"select address from senders":                                       "",
		"select entry from a union select entry from b":                     "",
		"select entry from a where id > 0 union select entry from b":        "",
		"with a as (select 1 as entry) select entry from a":                 "",
	} {
		o := Options{Query: query, List: "it's"}
		got := o.Table()
		if text := got.Name + " " + got.Entry; !got.Guessed && text != want || got.Guessed && want != "" || got.List != "'it''s'" || got.Prefix != "blockd_it_s" {
			t.Errorf("%s: %+v, want %q", query, got, want)
		}
	}
}

func TestTableOfOwners(t *testing.T) {
	for query, want := range map[string]string{
		"select entry, owner from senders":                             "senders entry owner",
		"select s.mailbox as owner, s.address as entry from senders s": "senders address mailbox",
		"select entry, lower(mailbox) as owner from senders":           "",
		"select entry from senders":                                    "",
	} {
		o := Options{Query: query, List: "users", PerRecipient: true}
		got := o.Table()
		if text := got.Name + " " + got.Entry + " " + got.Owner; !got.Guessed && text != want || got.Guessed && (want != "" || got.Owner != "OWNER_COLUMN") {
			t.Errorf("%s: %+v, want %q", query, got, want)
		}
	}
}

func TestEarlier(t *testing.T) {
	for mark, want := range map[string]any{
		"1700000100":                 int64(1700000040),
		"2026-01-01 00:01:00":        "2026-01-01 00:00:00",
		"2026-01-01 00:01:00.123456": "2026-01-01 00:00:00",
		"2026-01-01T00:01:00Z":       "2026-01-01T00:00:00Z",
		"2026-01-01T00:01:00+02:00":  "2026-01-01T00:00:00+02:00",
		"2026-01-01":                 "2025-12-31",
		"block":                      nil,
	} {
		if got, err := earlier(mark, 60e9); got != want || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v, want %v", mark, got, err, want)
		}
	}
}
