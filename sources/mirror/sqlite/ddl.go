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

// DDL is what the database needs for changes = "log". The error says why triggers cannot log the query.
//
// SQLite catches nothing that fails within a trigger. These have nothing that a value makes fail; what their tables
// and columns are called SQLite keeps by itself when they are renamed, and refuses to drop a column that they name.
func (s *Source) DDL() (string, error) {
	t, err := s.options.Table()
	if err != nil {
		return "", err
	}
	var b, removal strings.Builder
	b.WriteString(logTable)
	for _, event := range []string{"insert", "update", "delete"} {
		fmt.Fprintf(&b, "\ncreate trigger if not exists %s_%s after %s on %s begin\n", t.Prefix, event, event, t.Name)
		if event != "insert" {
			b.WriteString(logged(t, "old.", 1))
		}
		if event != "delete" {
			b.WriteString(logged(t, "new.", 0))
		}
		b.WriteString("end;\n")
		fmt.Fprintf(&removal, "--   drop trigger if exists %s_%s;\n", t.Prefix, event)
	}
	fmt.Fprintf(&b, "\n-- To remove all this again, and before this column or blockd_log is dropped, since SQLite would then refuse changes of %s:\n"+
		"%s--   delete from blockd_log where list = %s;\n-- and with the last list: drop table blockd_log;\n", t.Name, removal.String(), t.List)
	return b.String(), nil
}

func logged(t query.Table, row string, gone int) string {
	if t.Owner == "" {
		return fmt.Sprintf("  insert into blockd_log (list, entry, gone) select %s, %s, %d where %[2]s <> '';\n", t.List, row+t.Entry, gone)
	}
	return fmt.Sprintf("  insert into blockd_log (list, entry, owner, gone) select %s, %s, %s, %d where %[2]s <> '' and %[3]s <> '';\n", t.List, row+t.Entry, row+t.Owner, gone)
}
