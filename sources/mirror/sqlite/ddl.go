package sqlite

import (
	"fmt"
	"strings"

	"blockd/sources/mirror/query"
)

const logTable = `-- The log of changes: blockd reads it, and triggers fill it. Numbers are given out without gaps.
-- To clean it up: delete from blockd_log where at < datetime('now', '-7 days');
create table if not exists blockd_log (
  rev   integer primary key autoincrement,
  list  text not null,
  entry not null,                -- as written: without a type, so that nothing converts it; '' = read everything
  owner text not null default '',
  gone  integer not null,
  at    text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')));
create index if not exists blockd_log_list on blockd_log (list, rev);
`

// DDL is what the database needs for changes = "log".
func (s *Source) DDL() string {
	t := s.options.Table()
	var b strings.Builder
	b.WriteString(logTable)
	if t.Guessed {
		b.WriteString("\n" + t.Words())
	}
	for _, event := range []string{"insert", "update", "delete"} {
		fmt.Fprintf(&b, "\ncreate trigger if not exists %s_%s after %s on %s begin\n", t.Prefix, event, event, t.Name)
		if event != "insert" {
			b.WriteString(logged(t, "old.", 1))
		}
		if event != "delete" {
			b.WriteString(logged(t, "new.", 0))
		}
		b.WriteString("end;\n")
	}
	return b.String()
}

func logged(t query.Table, row string, gone int) string {
	if t.Owner == "" {
		return fmt.Sprintf("  insert into blockd_log (list, entry, gone) select %s, %s, %d where %[2]s <> '';\n", t.List, row+t.Entry, gone)
	}
	return fmt.Sprintf("  insert into blockd_log (list, entry, owner, gone) select %s, %s, %s, %d where %[2]s <> '' and %[3]s <> '';\n", t.List, row+t.Entry, row+t.Owner, gone)
}
