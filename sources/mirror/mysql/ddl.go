package mysql

import (
	"fmt"
	"strings"

	"blockd/sources/mirror/query"
)

const logTables = `-- The log of changes: blockd reads it, and triggers fill it.
-- Numbers come from a table of one row. A transaction that has taken one lets no other write to the list's table until it
-- ends: so numbers have the order of the commits, and no gaps.
-- To clean it up: delete from blockd_log where at < now() - interval 7 day;
set names utf8mb4;
create table if not exists blockd_log_rev (
  one tinyint not null primary key,
  rev bigint not null) engine = InnoDB;
insert ignore into blockd_log_rev values (1, 0);
create table if not exists blockd_log (
  rev   bigint not null primary key,
  list  varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
  entry varchar(1024) character set utf8mb4 collate utf8mb4_bin not null,  -- '' = read everything
  owner varchar(255) character set utf8mb4 collate utf8mb4_bin not null default '',
  gone  boolean not null,
  at    timestamp(6) not null default current_timestamp(6),
  key (list, rev)) engine = InnoDB;
`

// functions show the triggers of a table to whoever may not see them, which takes the right to make some: see
// query.Dialect. The numbers of tables change with TRUNCATE, also of a partition; they take the right PROCESS of
// whoever makes the function, and a look at all tables of the server.
const functions = `
-- What these show blockd of a table: which of its triggers write the log, and which foreign keys change its rows without them; and (if you
-- may see it) whether it was truncated or made anew.
-- A MySQL before 8.0.29 has no "if not exists" here, and says at the second list that they exist (error 1304): leave them out then.
delimiter //
create function /*M!100103 if not exists */ /*!80029 if not exists */ blockd_triggers(
  place varchar(64) character set utf8mb4 collate utf8mb4_bin, named varchar(64) character set utf8mb4 collate utf8mb4_bin,
  listed varchar(255) character set utf8mb4 collate utf8mb4_bin) returns text character set utf8mb4 collate utf8mb4_bin
  reads sql data sql security definer
begin
  declare found, more text character set utf8mb4 collate utf8mb4_bin;
  set place = coalesce(nullif(place, ''), database());
  if @@lower_case_table_names = 1 then
    set place = lower(place), named = lower(named);
  end if;
  if not exists (select 1 from information_schema.tables where table_schema = place and table_name = named and table_type = 'BASE TABLE') then
    return null;
  end if;
  select group_concat(' ', lower(event_manipulation), ' ', created order by trigger_name separator ',') into found
    from information_schema.triggers where event_object_schema = place and event_object_table = named
    and locate('blockd_log', action_statement) > 0 and locate(listed, action_statement) > 0;
  select group_concat(' cascade ', constraint_name, ' ' order by constraint_name) into more
    from information_schema.referential_constraints where constraint_schema = place and table_name = named
    and (delete_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT') or update_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT'));
  return concat(coalesce(found, ''), coalesce(more, ''));
end//
create function /*M!100103 if not exists */ /*!80029 if not exists */ blockd_tables(
  place varchar(64) character set utf8mb4 collate utf8mb4_bin, named varchar(64) character set utf8mb4 collate utf8mb4_bin)
  returns text character set utf8mb4 collate utf8mb4_bin
  reads sql data sql security definer
begin
  declare numbers text character set utf8mb4 collate utf8mb4_bin;
  declare exit handler for sqlexception return null;
  set place = coalesce(nullif(place, ''), database());
  select group_concat(table_id order by table_id) into numbers from information_schema./*M!100100 innodb_sys_tables*/ /*!80000 innodb_tables*/
    where name = concat(place, '/', named) or left(name, char_length(place) + char_length(named) + 4) = concat(place, '/', named, '#p#');
  return numbers;
end//
delimiter ;
`

// DDL is what the database needs for changes = "log", for the client mysql or mariadb. The error says why triggers
// cannot log the query.
func (s *Source) DDL() (string, error) {
	t, err := s.options.Table()
	if err != nil {
		return "", err
	}
	var b, removal strings.Builder
	b.WriteString(logTables)
	b.WriteString(functions)
	mode := ""
	if strings.Contains(t.Name+t.Entry+t.Owner, `"`) {
		mode = "ANSI_QUOTES"
	}
	fmt.Fprintf(&b, "\n-- Triggers keep the mode in which they are made. In this one no value makes them fail. Whatever else does (a column has another\n"+
		"-- name, the log was dropped) does not fail the change that they are about: blockd is told to read everything.\n"+
		"-- What no trigger can catch: who waits for another transaction's number longer than innodb_lock_wait_timeout hears error 1205, and in a\n"+
		"-- deadlock 1213, as for a row of the table. Keep transactions that write to it short, or take changes = \"watermark\".\n"+
		"set @blockd_sql_mode = @@sql_mode, sql_mode = '%s';\ndelimiter //\n", mode)
	for _, event := range []string{"insert", "update", "delete"} {
		fmt.Fprintf(&b, "create trigger %s_%s after %s on %s for each row begin\n%s", t.Prefix, event, event, t.Name, caught(t))
		fmt.Fprintf(&removal, "--   drop trigger if exists %s%s_%s;\n", schemaOf(t.Name), t.Prefix, event)
		if event != "insert" {
			b.WriteString(logged(t, "old.", 1))
		}
		if event != "delete" {
			b.WriteString(logged(t, "new.", 0))
		}
		b.WriteString("end//\n")
	}
	b.WriteString("delimiter ;\nset sql_mode = @blockd_sql_mode;\n")
	fmt.Fprintf(&b, "\n-- TRUNCATE fires no trigger. After one:\n--   %s\n", afterTruncate(t))
	fmt.Fprintf(&b, "\n-- blockd's user needs no more than:\n--   grant select on %s to …;\n--   grant select on blockd_log to …;\n--   grant select on blockd_log_rev to …;\n--   grant execute on function blockd_triggers to …;\n--   grant execute on function blockd_tables to …;\n", t.Name)
	fmt.Fprintf(&b, "\n-- To remove all this again:\n%s--   delete from blockd_log where list = %s;\n-- and with the last list: drop table blockd_log, blockd_log_rev; drop function blockd_triggers; drop function blockd_tables;\n", removal.String(), t.List)
	return b.String(), nil
}

// schemaOf is the name of a table's database with the dot, "" if it has none.
func schemaOf(table string) string { return table[:strings.LastIndexByte(table, '.')+1] }

// caught are the handlers of a trigger. No handler catches a wait in vain for the number of another transaction
// (1205), which the server calls fatal within a trigger, nor a deadlock (1213), after which it has undone the whole
// transaction.
func caught(t query.Table) string {
	const retry = "    update blockd_log_rev set rev = last_insert_id(rev + 1);\n" +
		"    insert into blockd_log (rev, list, entry, gone) values (last_insert_id(), %s, '', 1);\n"
	return fmt.Sprintf("  declare exit handler for sqlexception begin\n"+
		"    declare exit handler for sqlexception begin end; -- there is no log\n"+retry+"  end;\n", t.List)
}

// afterTruncate are statements that tell blockd that anything may have changed.
func afterTruncate(t query.Table) string {
	return fmt.Sprintf("begin; update blockd_log_rev set rev = rev + 1; insert into blockd_log (rev, list, entry, gone) select rev, %s, '', 1 from blockd_log_rev; commit;", t.List)
}

// logged writes an entry into the log. NULL is none, and longer ones than this are none either.
func logged(t query.Table, row string, gone int) string {
	entry := text(row+t.Entry, 1024)
	is, names, values := " <> ''", "entry", entry
	if t.Owner != "" {
		owner := text(row+t.Owner, 255)
		names, values, is = "entry, owner", entry+", "+owner, is+" and "+owner+" <> ''"
	}
	return fmt.Sprintf("  if %s%s then\n"+
		"    update blockd_log_rev set rev = last_insert_id(rev + 1);\n"+
		"    insert into blockd_log (rev, list, %s, gone) values (last_insert_id(), %s, %s, %d);\n"+
		"  end if;\n", entry, is, names, t.List, values, gone)
}

// text is a column as the log has it: what is longer is no entry and no owner either.
func text(column string, most int) string {
	return fmt.Sprintf("left(convert(%s using utf8mb4), %d)", column, most)
}
