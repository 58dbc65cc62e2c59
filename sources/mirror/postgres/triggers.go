package postgres

import (
	"context"
	"strings"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// triggers is what the server says of the triggers that fill the log.
type triggers struct {
	// state tells these tables, with their files and their triggers, from any others: a table that was loaded aside
	// and renamed, a partition that was attached, a trigger that was off for a while, a column that was rewritten has
	// another one. "" = the query reads no table that could have triggers.
	state string
	lacks string // the tables that lack a trigger, and which; "" = none does
	apart string // those on other servers, whose changes no trigger here sees; "" = there is none
}

// triggersSQL gives them as the row "told", for the table and the list of a row "asked". Partitions and children
// count as the table does: a statement about one of them fires its own triggers alone. A trigger counts if it fires
// always: those that fire "at the origin" miss what replication and session_replication_role = replica write. It may
// have any name, if its function names the log and the list.
const triggersSQL = `, tables(id) as (
		select to_regclass(nullif(table_name, ''))::oid from asked
		union select inhrelid from pg_inherits join tables on inhparent = id),
	found as (
		select c.oid as id, c.relkind as kind, pg_relation_filenode(c.oid) as file,
			coalesce(string_agg(t.oid::text || ' ' || t.xmin::text, ' ' order by t.oid), '') as those,
			concat_ws(', ', case when bool_or(t.tgtype & 4 <> 0) then null else 'insert' end,
				case when bool_or(t.tgtype & 16 <> 0) then null else 'update' end,
				case when bool_or(t.tgtype & 8 <> 0) then null else 'delete' end,
				case when bool_or(t.tgtype & 32 <> 0) then null else 'truncate' end) as lacks
		from asked cross join tables join pg_class c on c.oid = id and c.relkind in ('r', 'p', 'f')
		left join (pg_trigger t join pg_proc p on p.oid = t.tgfoid) on t.tgrelid = c.oid and not t.tgisinternal and t.tgenabled = 'A'
			and strpos(p.prosrc, 'blockd_log') > 0 and (strpos(p.prosrc, list) > 0 or strpos(encode(t.tgargs, 'escape'), list) > 0)
		group by c.oid),
	told as (select coalesce(hashtextextended(string_agg(concat_ws(' ', id, file, those), ',' order by id), 0)::text, '') as state,
		coalesce(left(string_agg(id::regclass || ' (' || lacks || ')', ', ' order by id) filter (where lacks <> ''), 200), '') as lacks,
		coalesce(left(string_agg(id::regclass::text, ', ' order by id) filter (where kind = 'f'), 200), '') as apart
		from found) `

// triggers asks for them.
func (s *Source) triggers(ctx context.Context) (now triggers, err error) {
	if s.options.Changes != query.Log {
		return now, nil
	}
	const sql = "with recursive asked(table_name, list) as (select $1::text, $2::text)" + triggersSQL + "select state, lacks, apart from told"
	_, err = rows(ctx, s.conn, sql, []string{s.table, inText(s.options.List)}, 3, func(v []string) error {
		now = triggers{v[0], v[1], v[2]}
		return nil
	})
	return now, err
}

// inText is a text as it stands between the quotes of literal.
func inText(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(literal(text), " E"), "'"), "'")
}

// judge says what a poll makes of the triggers that it has found. read is the state of the last Fingerprint; "" = none
// was asked for.
func (now triggers) judge(read string, o *Options) error {
	switch {
	case now.apart != "":
		return &mirror.Unlogged{Why: "what changes on another server fires no trigger here, and " + now.apart + " is there",
			Hint: "follow the tables where they are by a list of their own, or take changes = \"watermark\" or \"none\" for list " + o.List}
	case now.lacks != "":
		return &mirror.Unlogged{Why: "no trigger logs each change of " + now.lacks, Hint: "blockd source ddl " + o.List + " prints what is missing"}
	case read != "" && now.state != read:
		return mirror.TooOld("its table or triggers are others than were read")
	}
	return nil
}
