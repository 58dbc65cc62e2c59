package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"blockd/sources/mirror/query"
)

// placeholder stands for a table that is not known, where nothing but a right to read it is needed.
const placeholder = "YOUR_TABLE"

// literal is a text in SQL.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// DDL is what the database needs, as statements for psql: the log, the triggers that fill it, and a role that reads.
// It may be executed twice. Of the URL it holds the name of the role alone. The error says why triggers cannot log
// the query.
//
// A statement of the application never fails for a trigger: what fails within one is caught, and noted as "read
// everything".
func (s *Source) DDL() (string, error) {
	o := s.options
	f, err := query.FormOf(o.Query)
	if err == nil && o.PerRecipient && f.Owner == "" {
		err = errors.New("the query selects no column named owner; the triggers of this list want it")
	}
	if err != nil && o.Changes == query.Log {
		return "", err
	}
	table := cmp.Or(f.Table, placeholder)
	var b strings.Builder
	fmt.Fprintf(&b, "-- What blockd needs to follow the list %s. Execute it as the owner of the tables.\nset client_encoding = 'UTF8';\n", strings.Join(strings.Fields(o.List), " "))
	role, usage := quoted(cmp.Or(s.config.User, "blockd")), ""
	if schema, _, has := strings.Cut(table, "."); has {
		usage = fmt.Sprintf("grant usage on schema %s to %s;\n", schema, role)
	}
	fmt.Fprintf(&b, `
-- A role that reads and nothing else. If it does not exist yet:
--   create role %s login password '…';
%sgrant select on %s to %s;
`, role, usage, table, role)
	if o.Changes != query.Log {
		if o.Changes == query.Watermark {
			fmt.Fprintf(&b, "\n-- Changed rows are found by this index.\ncreate index if not exists blockd_watermark on %s (%s);\n", table, quoted(o.Watermark))
		}
		return b.String(), nil
	}
	fmt.Fprintf(&b, `
-- What follows is made as a whole, or not at all.
begin;

-- The log: which entries have changed. It is one table for all lists.
create table if not exists blockd_log (
  rev   bigint generated always as identity primary key,
  xid   xid8   not null default pg_current_xact_id(),
  list  text   not null,
  entry text   not null,           -- as the query gives it; '' = anything may have changed
  owner text   not null default '',
  gone  boolean not null,
  at    timestamptz not null default clock_timestamp());
create index if not exists blockd_log_list_rev on blockd_log (list, rev);
create index if not exists blockd_log_list_xid on blockd_log (list, xid);
grant select on blockd_log to %s;
`, role)
	name, list, notify := identifier("blockd", "log", o.List), literal(o.List), ""
	if o.Notify != "" {
		notify = "\n  perform pg_notify(" + literal(o.Notify) + ", '');"
		b.WriteString("\n-- Programs that use PREPARE TRANSACTION cannot write to a table whose changes are notified: leave the key notify out then.\n")
	}
	columns, values, selected, there := "entry", "changed.entry", "("+f.Entry+")::text as entry", "changed.entry <> ''"
	if o.PerRecipient {
		columns, values = columns+", owner", values+", changed.owner"
		selected, there = selected+", ("+f.Owner+")::text as owner", there+" and changed.owner <> ''"
	}
	fmt.Fprintf(&b, `
-- This fails, and with it everything, if a row has no such entry.
do $blockd$ begin
  perform %[4]s from %[1]s as %[5]s limit 0;
end $blockd$;

-- Each statement that changes %[1]s writes its entries into the log, old and new ones, in the same transaction. It runs
-- with the rights of its creator, so programs that write to the table need no right on the log. Whatever fails here (a
-- column has another name, the log was dropped) does not fail the statement: blockd is told to read everything.
create or replace function %[2]s() returns trigger language plpgsql
security definer set search_path from current as $blockd$
begin
  if tg_op = 'TRUNCATE' then
    insert into blockd_log (list, entry, gone) values (%[3]s, '', true);
  end if;
  if tg_op in ('DELETE', 'UPDATE') then
    insert into blockd_log (list, %[7]s, gone)
    select %[3]s, %[8]s, true from (select distinct %[4]s from blockd_old as %[5]s) as changed where %[9]s;
  end if;
  if tg_op in ('INSERT', 'UPDATE') then
    insert into blockd_log (list, %[7]s, gone)
    select %[3]s, %[8]s, false from (select distinct %[4]s from blockd_new as %[5]s) as changed where %[9]s;
  end if;%[6]s
  return null;
exception when others then
  raise log 'blockd cannot log changes of the list %%: %%', %[3]s, sqlerrm;
  begin
    insert into blockd_log (list, entry, gone) values (%[3]s, '', true);%[10]s
  exception when others then
    null; -- there is no log
  end;
  return null;
end $blockd$;
`, table, name, list, selected, f.Alias, notify, columns, values, there, strings.ReplaceAll(notify, "\n", "\n  "))
	b.WriteString("do $blockd$\ndeclare one regclass;\nbegin\n" +
		"  for one in with recursive tables(id) as (select " + literal(table) + "::regclass::oid union select inhrelid from pg_inherits join tables on inhparent = id)\n" +
		"    select id::regclass from tables join pg_class on oid = id where relkind in ('r', 'p') loop\n")
	for _, event := range []struct{ when, rows string }{
		{"insert", " referencing new table as blockd_new"},
		{"update", " referencing old table as blockd_old new table as blockd_new"},
		{"delete", " referencing old table as blockd_old"},
		{"truncate", ""},
	} {
		trigger := identifier("blockd", event.when, o.List)
		fmt.Fprintf(&b, "    execute format(%s, one);\n", literal(fmt.Sprintf("create or replace trigger %s after %s on %%s%s for each statement execute function %s()",
			strings.ReplaceAll(trigger, "%", "%%"), event.when, event.rows, strings.ReplaceAll(name, "%", "%%"))))
		fmt.Fprintf(&b, "    execute format(%s, one);\n", literal("alter table %s enable always trigger "+strings.ReplaceAll(trigger, "%", "%%")))
	}
	b.WriteString("  end loop;\nend $blockd$;\n")
	fmt.Fprintf(&b, `
-- The log never lacks a row of the list, so that blockd can tell an empty log from one that was emptied.
insert into blockd_log (list, entry, gone)
select %[1]s, '', true where not exists (select from blockd_log where list = %[1]s);
commit;

-- Once a day: what is older than any transaction and any time that blockd may be down. The newest row of each list stays. A blockd
-- that was away for longer reads everything again.
--   delete from blockd_log as old where at < now() - interval '7 days'
--     and exists (select from blockd_log as newer where newer.list = old.list and newer.rev > old.rev);

-- To remove all this again:
--   drop function if exists %[2]s() cascade;
--   delete from blockd_log where list = %[1]s;
-- and with the last list: drop table blockd_log;
`, list, name)
	return b.String(), nil
}

// identifier is a quoted name, within the 63 octets that PostgreSQL has for one.
func identifier(parts ...string) string {
	name := strings.Join(parts, "_")
	return quoted(strings.ToValidUTF8(name[:min(len(name), 63)], ""))
}
