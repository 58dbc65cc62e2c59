package postgres

import (
	"strings"
	"testing"
	"time"

	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// TestWatermark: changed rows are found by a column, and rows of the overlap are told once.
func TestWatermark(t *testing.T) {
	for _, tt := range []struct{ name, column, now string }{
		{"timestamp with a zone", "timestamptz", "now()"},
		{"timestamp without one", "timestamp", "localtimestamp"},
		{"Unix seconds", "bigint", "extract(epoch from now())::bigint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, o := database(t, "", Options{Changes: query.None})
			shared.Exec(t, name, "alter table senders add deleted boolean, add changed "+tt.column+" default "+tt.now)
			o.Query, o.Changes, o.Watermark, o.Overlap = "select entry, action, changed, deleted from senders", query.Watermark, "changed", time.Minute
			s := open(t, o)
			shared.Exec(t, name, open(t, o).DDL())
			mark := mirrortest.WantRows(t, s)
			for _, step := range []struct {
				sql  string
				want []string
			}{
				{"insert into senders (entry, action) values ('a.example', 'block'), ('a.example', 'allow')", []string{"a.example block allow"}},
				{"insert into senders (entry, action, changed) values ('late.example', 'block', (select max(changed) from senders) - " + map[bool]string{true: "30", false: "interval '30 seconds'"}[tt.column == "bigint"] + ")", []string{"late.example block"}},
				{"select", nil},
				{"update senders set deleted = true, changed = " + tt.now + " where action = 'allow'", []string{"a.example block"}},
				{"update senders set deleted = true, changed = " + tt.now + " where entry like 'a%'", []string{"a.example"}},
				{"insert into senders (entry, changed) values ('never.example', null)", nil},
				{"delete from senders where entry = 'late.example'", nil}, // only a full read tells
			} {
				shared.Exec(t, name, step.sql)
				mark = mirrortest.WantChanges(t, s, mark, step.want...)
			}
			if found, _ := mirrortest.Rows(t, s); len(found) != 1 || found[0].Entry != "never.example" {
				t.Errorf("a full read: %+v", found)
			}
			if got, again := mirrortest.Changes(t, open(t, o), mark); len(got) == 0 || again == mark {
				t.Errorf("another process knows of no poll before: %q", got)
			}
		})
	}
}

func TestWatermarkThatIsNone(t *testing.T) {
	_, o := database(t, "", Options{Changes: query.None})
	o.Changes, o.Watermark = query.Watermark, "action"
	mirrortest.WantFaultOf(t, open(t, o), mirror.ClassSchema, "") // a text
	o.Watermark = "updated_at"
	mirrortest.WantFaultOf(t, open(t, o), mirror.ClassSchema, "select it too")
	o.Changes, o.Watermark = query.None, ""
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	mirrortest.WantTooOld(t, "without any way to find changes", s, mark)
}

// TestRowFromTheFuture does not hide rows that are changed before that time.
func TestRowFromTheFuture(t *testing.T) {
	name, o := database(t, "", Options{Changes: query.None})
	shared.Exec(t, name, "alter table senders add changed timestamptz default now(); insert into senders (entry, changed) values ('future.example', '2999-01-01')")
	o.Query, o.Changes, o.Watermark, o.Overlap = "select entry, changed from senders", query.Watermark, "changed", time.Minute
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	_, mark = mirrortest.Changes(t, s, mark)
	shared.Exec(t, name, "insert into senders (entry) values ('now.example')")
	mirrortest.WantChanges(t, s, mark, "now.example ")
}

func TestPlan(t *testing.T) {
	name, o := database(t, "", Options{Notify: "channel"})
	shared.Exec(t, name, "insert into senders (entry) select i || '.example' from generate_series(1, 20000) as i; analyze senders")
	s := open(t, o)
	for _, tt := range []struct {
		sql  string
		want []string
	}{
		{"select", []string{"server: PostgreSQL 1", "as reader, no TLS", "COPY in one snapshot; about 20000 rows", "the log, of which 20001 rows", "by an index", "hints: NOTIFY on the channel channel"}},
		{"drop index senders_entry_idx; delete from blockd_log", []string{"reading the whole table", "the log has no row of the list"}},
	} {
		shared.Exec(t, name, tt.sql)
		text, err := s.Plan(t.Context())
		for _, want := range tt.want {
			if err != nil || !strings.Contains(text, want) {
				t.Errorf("%s: %v, no %q in\n%s", tt.sql, err, want, text)
			}
		}
	}
}
