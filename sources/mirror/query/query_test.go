package query

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestTimed: the time alone changes the rows of some queries, and no log tells of it.
func TestTimed(t *testing.T) {
	for query, want := range map[string]string{
		"select entry from t where valid_until > now()":                                  "now",
		"select entry from t where valid_until > NOW ( )":                                "now",
		"select entry from t where valid_until >= CURRENT_DATE":                          "current_date",
		"select entry from t where ends > current_timestamp(3)":                          "current_timestamp",
		"select entry from t where ends > localtimestamp":                                "localtimestamp",
		"select entry from t where ends > unix_timestamp()":                              "unix_timestamp()",
		"select entry from t where ends > datetime('now')":                               "'now'",
		"select entry from t where ends > strftime('%s', 'now')":                         "'now'",
		"select entry from t where ends > datetime()":                                    "datetime()",
		"select entry from t where ends > 'now'::timestamptz":                            "'now'",
		"select entry from t where ends > date 'today'":                                  "'today'",
		"select entry from t where made > 'yesterday'::date":                             "'yesterday'",
		"select entry from t where ends < timestamp with time zone 'Tomorrow 08:00'":     "'tomorrow 08:00'",
		"select entry from t where made >= 'today'":                                      "'today'",
		"select entry from t where made between 'yesterday' and made":                    "'yesterday'",
		"select entry from t where ends between made and 'tomorrow'":                     "'tomorrow'",
		"select entry from t where ends > cast('tomorrow' as timestamptz)":               "'tomorrow'",
		"select entry from t where ends > date(coalesce(made, 'now'))":                   "'now'",
		"select entry from t where ends > date_trunc('day', 'now')":                      "'now'",
		"select entry from t where state in ('now', 'later')":                            "",
		"select entry from t where state in ('later', 'tomorrow')":                       "",
		"select entry from t where coalesce(state, 'now') <> 'today'":                    "",
		"select entry from t where state = any(array['now', 'today'])":                   "",
		"select entry, replace(state, 'now', 'then') as reason from t":                   "",
		"select entry, coalesce(ends, sysdate()) as expires from t":                      "sysdate",
		"select entry from t where random() < 0.5":                                       "random",
		"select entry from t where age(made) < interval '1 day'":                         "age",
		"select entry from t where made > clock_timestamp() - interval '1 day'":          "clock_timestamp",
		"select entry, ends as expires from t":                                           "",
		"select entry, unix_timestamp(ends) as expires from t":                           "",
		"select entry from t where ends > '2030-01-01' -- and not now()":                 "",
		"select entry, now as reason from t where state = 'now'":                         "",
		"select t.now, t.current_date as reason, entry from t":                           "",
		"select entry, date(made) as reason, datetime(ends) as expires, time from \"x\"": "",
		"select entry from t where sometime(made)":                                       "",
	} {
		testkit.Equal(t, query, Timed(query), want)
		err := Followed(query, "abuse")
		if _, unlogged := errors.AsType[*mirror.Unlogged](err); unlogged != (want != "") || unlogged && !strings.Contains(err.Error(), "hint: select the end of a row as expires") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestForms: what triggers log of a query, or a sentence why they cannot. Nothing is guessed.
func TestForms(t *testing.T) {
	for query, want := range map[string]string{
		"select entry from senders":                                                                        "senders, senders, entry, ",
		"select entry, action from mail.senders where not deleted;":                                        "mail.senders, senders, entry, ",
		"select id, lower(address) entry from t":                                                           "t, t, lower(address), ",
		"select address entry from t":                                                                      "t, t, address, ",
		"select address \"entry\" from t order by id":                                                      "t, t, address, ",
		"select app.t.address as entry from app.t":                                                         "app.t, t, t.address, ",
		"select lower(app.t.address) entry, t.box owner from app.t":                                        "app.t, t, lower(t.address), t.box",
		"SELECT T.address AS Entry FROM t":                                                                 "t, t, t.address, ",
		"select s.id, lower(s.address) as entry, 'a, b' as reason\nfrom senders as s where s.ends > now()": "senders, s, lower(s.address), ",
		`select coalesce(a, '@' || b) AS "entry" from "My Senders" x`:                                      "\"My Senders\", x, coalesce(a, '@' || b), ",
		"select lower(mailbox) as owner, b.address as entry from blocks b":                                 "blocks, b, b.address, lower(mailbox)",
		"select cast(address as text) as entry from t":                                                     "t, t, cast(address as text), ",
		"select cast(address as text) entry from t":                                                        "t, t, cast(address as text), ",
		"select address::text entry from t":                                                                "t, t, address::text, ",
		"select entry::text from t":                                                                        "t, t, entry::text, ",
		"select t.entry collate \"C\" from t":                                                              "t, t, t.entry collate \"C\", ",
		"select case when local is null then domain else local || '@' || domain end entry from t":          "t, t, case when local is null then domain else local || '@' || domain end, ",
		"select * from t": "t, t, entry, owner",
		"select t.*, lower(address) as entry from t":                                              "t, t, lower(address), owner",
		"select distinct lower(address) as entry from t":                                          "t, t, lower(address), ",
		"select public.clean(t.address) as entry from t":                                          "t, t, public.clean(t.address), ",
		"select trim(both ' ' from address) as entry, extract(epoch from ends) as expires from t": "t, t, trim(both ' ' from address), ",
		"select substring(address from 2 for 5) as entry from t":                                  "t, t, substring(address from 2 for 5), ",
		"select address as entry -- the sender\nfrom t /* of theirs */ where a ~ '\\.'":           "t, t, address, ",
		"select a as \"from\", b entry from t":                                                    "t, t, b, ",
		"select 'it''s from where' as reason, address as entry from t":                            "t, t, address, ",
		"select (address) entry from t":                                                           "t, t, (address), ",
		"select entry from a join b using (id)":                                                   "the query has join",
		"select entry from a natural join b":                                                      "the query has natural",
		"select entry from a, b":                                                                  "the query has , behind the table",
		"select entry from a union select entry from b":                                           "the query has union",
		"select entry from t where id in (select id from u)":                                      "the query reads more than one table",
		"select (select address from u where u.id = t.id) as entry from t":                        "the query reads more than one table",
		"select entry from (select 1) x":                                                          "the query reads more than one table",
		"with x as (select 1) select entry from x":                                                "the query does not begin with select",
		"values ('a')":                                            "the query does not begin with select",
		"select address from t":                                   "the query selects no column named entry",
		"select lower(entry) from t":                              "the query selects no column named entry",
		"select a as entry, b as entry from t":                    "the query has two columns entry",
		"select max(address) as entry from t":                     "the query has max()",
		"select address as entry from t group by address":         "the query has group",
		"select first_value(a) over (order by b) as entry from t": "the query has over",
		"select distinct on (a) a as entry from t":                "the query has distinct on",
		"select entry from t limit 10":                            "the query has limit",
		"select entry from t for update":                          "the query has for",
		"select entry from only t":                                "the query does not read a table by its name",
		"select entry from generate_series(1, 2) as entry":        "the query has ( behind the table",
		"select entry from t as x (entry)":                        "the query has ( behind the table",
		"select entry from t tablesample system (1)":              "the query has tablesample",
		"select other.address as entry from t":                    "the query names other.address, which is not the table that it reads",
		"select app.t.address as entry from b.t":                  "the query names app.t.address, which is not the table that it reads",
		"select t.address as entry from t as s":                   "the query names t.address, which is not the table that it reads",
		"select entry from t; drop table t":                       "the query is more than one statement",
		"select 'a as entry from t":                               "the query does not close '",
		`select 'a\'b' as reason, address as entry from t`:        "the query has a backslash before a quote",
		"select $$a$$ as entry from t":                            "the query has a $",
		"select (entry from t":                                    "the query does not close a bracket",
		"select entry) from t":                                    "the query closes a bracket",
		"select entry":                                            "the query has no from",
		"select address as entry /*! from u */ from t":            "the query has a comment",
		"select a, , address as entry from t":                     "the query has nothing between two commas",
	} {
		f, err := FormOf(query)
		got := fmt.Sprintf("%s, %s, %s, %s", f.Table, f.Alias, f.Entry, f.Owner)
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), ";")
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%s\n\thave %s\n\twant %s", query, got, want)
		}
	}
}

// FuzzForms: no query ends this process, and what is understood is made of the query's own text.
func FuzzForms(f *testing.F) {
	f.Add("select t.*, lower(app.t.address) entry, 'x' \"owner\" from app.t t where a in (1, 2)")
	f.Fuzz(func(t *testing.T, query string) {
		if form, err := FormOf(query); err == nil && (form.Table == "" || form.Alias == "" || form.Entry == "" || !strings.Contains(query, form.Table)) {
			t.Errorf("%q: %+v", query, form)
		}
	})
}

// TestTable: where triggers see a row at a time, they log columns alone.
func TestTable(t *testing.T) {
	for query, want := range map[string]string{
		"select entry from senders":                                         "senders entry ",
		"SELECT s.address AS entry, id FROM mail.senders AS s WHERE id > 0": "mail.senders address ",
		"select `a` as `entry` from `the senders`":                          "`the senders` `a` ",
		"select \"a\" as \"entry\" from \"senders\" where not deleted":      "\"senders\" \"a\" ",
		"select app.t.address entry from app.t":                             "app.t address ",
		"select if(a, entry, b), x as entry from t":                         "t x ",
		"select concat(local, '@', domain) as entry from senders":           "the query makes entry of an expression",
		"select lower(address) entry from t":                                "the query makes entry of an expression",
		"select (entry) from t":                                             "the query selects no column named entry",
		"select 'x' as entry from t":                                        "the query makes entry of an expression",
		"select a.entry from a join b using (id)":                           "the query has join",
	} {
		o := Options{Query: query, List: "it's"}
		got, err := o.Table()
		if text := got.Name + " " + got.Entry + " " + got.Owner; err == nil && (text != want || got.List != "'it''s'" || got.Prefix != "blockd_it_s") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", query, got, err, want)
		}
	}
	for query, want := range map[string]string{
		"select entry, owner from senders":                             "senders entry owner",
		"select s.mailbox as owner, s.address as entry from senders s": "senders address mailbox",
		"select entry, lower(mailbox) as owner from senders":           "the query makes owner of an expression",
		"select entry from senders":                                    "the query selects no column named owner",
	} {
		o := Options{Query: query, List: "users", PerRecipient: true}
		got, err := o.Table()
		if text := got.Name + " " + got.Entry + " " + got.Owner; err == nil && text != want || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", query, got, err, want)
		}
	}
}

func TestAtMost(t *testing.T) {
	clock := time.Unix(1_800_000_000, 0)
	for mark, want := range map[string]string{
		"1700000000": "1700000000", "1900000000": "1800000000", "1900000000000": "1800000000000", "1700000000000": "1700000000000",
		"17": "17", "999999999": "999999999", "180000000000000000": "180000000000000000", "-5": "-5", "block": "block", "": "",
		"2026-01-01 00:00:00": "2026-01-01 00:00:00", "2027-06-01 00:00:00.5": "2027-01-15 08:00:00",
		"2999-01-01T00:00:00Z": "2027-01-15T08:00:00Z", "2999-01-01": "2027-01-15", "2027-01-15T09:00:00+02:00": "2027-01-15T09:00:00+02:00",
	} {
		testkit.Equal(t, mark, atMost(mark, "2027-01-15 08:00:00", clock), want)
	}
}

func TestEarlier(t *testing.T) {
	for mark, want := range map[string]any{
		"1700000100":                 int64(1700000040),
		"1700000100000":              int64(1700000040000),
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
