package postgres

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"blockd/sources/mirror/query"
)

// placeholder stands where DDL cannot know the name of a table.
const placeholder = "YOUR_TABLE"

// simple is a query whose rows are those of one table: what it selects, the table, its alias, and the rest.
var simple = regexp.MustCompile(`(?is)^\s*select\s+(.+?)\s+from\s+((?:[\w$]+|"[^"]+")(?:\.(?:[\w$]+|"[^"]+"))?)(?:\s+(?:as\s+)?([\w$]+))?\s*(?:where\b(.*))?$`)

// joined are words of a query whose rows are more, or others, than those of one table.
var joined = regexp.MustCompile(`(?i)\b(join|union|intersect|except|group|having|limit|offset|lateral)\b`)

// source is the part of the query that the triggers repeat: a table, and what of its row are the entry and its owner.
func source(q string) (table, alias, entry, owner string) {
	table, alias, entry, owner = placeholder, "t", "entry", "owner"
	m := simple.FindStringSubmatch(q)
	if m == nil || joined.MatchString(q) || strings.EqualFold(m[3], "where") {
		return table, alias, entry, owner
	}
	table, alias = m[2], cmp.Or(m[3], lastName(m[2]))
	for _, item := range items(m[1]) {
		expression, name := item, lastName(item)
		if i := strings.LastIndex(strings.ToLower(item), " as "); i >= 0 {
			expression, name = strings.TrimSpace(item[:i]), strings.TrimSpace(item[i+len(" as "):])
		}
		switch strings.ToLower(strings.Trim(name, `"`)) {
		case "entry":
			entry = expression
		case "owner":
			owner = expression
		}
	}
	return table, alias, entry, owner
}

// lastName is the last part of a name with dots.
func lastName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// items are the items of a select, between commas that are not in brackets or quotes.
func items(text string) (all []string) {
	depth, from := 0, 0
	var quote byte
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			all, from = append(all, strings.TrimSpace(text[from:i])), i+1
		}
	}
	return append(all, strings.TrimSpace(text[from:]))
}

// literal is a text in SQL.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// DDL is what the database needs, as statements for psql: the log, the triggers that fill it, and a role that reads.
// It may be executed twice. Of the URL it holds the name of the role alone.
func (s *Source) DDL() string {
	o := s.options
	table, alias, entry, owner := source(o.Query)
	var b strings.Builder
	fmt.Fprintf(&b, "-- What blockd needs to follow the list %s. Execute it as the owner of the tables.\n", strings.Join(strings.Fields(o.List), " "))
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
		return b.String()
	}
	fmt.Fprintf(&b, `
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
	}
	columns, values, selected, there := "entry", "changed.entry", "("+entry+")::text as entry", "changed.entry <> ''"
	if o.PerRecipient {
		columns, values = columns+", owner", values+", changed.owner"
		selected, there = selected+", ("+owner+")::text as owner", there+" and changed.owner <> ''"
	}
	if table == placeholder {
		b.WriteString("\n-- The query reads more than one table, or blockd cannot tell which. Put the name of each table that it reads for " + placeholder + ",\n-- and for \"" + entry + "\" what of a row of it is the entry.")
		if o.PerRecipient {
			b.WriteString(" \"" + owner + "\" is whose it is.")
		}
	}
	fmt.Fprintf(&b, `
-- Each statement that changes %[1]s writes its entries into the log, old and new ones, in the same transaction. It runs
-- with the rights of its creator, so programs that write to the table need no right on the log.
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
end $blockd$;
`, table, name, list, selected, alias, notify, columns, values, there)
	for _, event := range []struct{ suffix, when, rows string }{
		{"insert", "insert", " referencing new table as blockd_new"},
		{"update", "update", " referencing old table as blockd_old new table as blockd_new"},
		{"delete", "delete", " referencing old table as blockd_old"},
		{"truncate", "truncate", ""},
	} {
		fmt.Fprintf(&b, "create or replace trigger %s after %s on %s%s\n  for each statement execute function %s();\n",
			identifier("blockd", event.suffix, o.List), event.when, table, event.rows, name)
	}
	fmt.Fprintf(&b, `
-- The log never lacks a row of the list, so that blockd can tell an empty log from one that was emptied.
insert into blockd_log (list, entry, gone)
select %[1]s, '', true where not exists (select from blockd_log where list = %[1]s);

-- Once a day: what is older than any transaction and any time that blockd may be down. The newest row of each list stays. A blockd
-- that was away for longer reads everything again.
--   delete from blockd_log as old where at < now() - interval '7 days'
--     and exists (select from blockd_log as newer where newer.list = old.list and newer.rev > old.rev);
`, list)
	return b.String()
}

// identifier is a quoted name, within the 63 octets that PostgreSQL has for one.
func identifier(parts ...string) string {
	name := strings.Join(parts, "_")
	return quoted(strings.ToValidUTF8(name[:min(len(name), 63)], ""))
}
