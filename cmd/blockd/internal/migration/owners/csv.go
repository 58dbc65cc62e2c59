package owners

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
)

// The names that the header of a CSV may have for each column; all but the action's and the reason's must be there.
var csvColumns = [...][]string{
	{"owner", "recipient", "mailbox", "username", "user", "account", "rcpt", "to"},
	{"entry", "sender", "address", "from", "value", "email", "pattern"},
	{"action", "list", "type", "kind", "preference", "wb", "option"},
	{"reason", "why", "note", "comment", "description"},
}

// csvActions are the words for what an entry asks for.
var csvActions = map[lists.Action][]string{
	lists.Block: {"", "block", "b", "black", "blacklist", "blocklist", "blacklist_from", "blocklist_from", "deny", "reject", "refuse", "discard", "drop", "spam", "n"},
	lists.Allow: {"allow", "a", "w", "y", "white", "whitelist", "allowlist", "welcomelist", "whitelist_from", "welcomelist_from", "accept", "permit", "pass", "ok", "ham"},
}

// CSV imports a file of comma, semicolon or tab separated values with a header, such as a portal exports.
func CSV(ctx context.Context, path string, o Options) (*migration.Result, error) {
	r := begin("a portal", path, o)
	data, err := r.load(path)
	if err != nil {
		return nil, err
	}
	if data, err = lists.Text(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	head, _, _ := bytes.Cut(data, []byte("\n"))
	in := csv.NewReader(bytes.NewReader(data))
	in.FieldsPerRecord, in.ReuseRecord, in.TrimLeadingSpace = -1, true, true
	for _, c := range ";\t" {
		if bytes.ContainsRune(head, c) && !bytes.ContainsRune(head, ',') {
			in.Comma = c
		}
	}
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: no header: %w", path, err)
	}
	var at [len(csvColumns)]int
	for i, names := range csvColumns {
		at[i] = slices.IndexFunc(header, func(h string) bool { return slices.Contains(names, strings.ToLower(strings.TrimSpace(h))) })
	}
	if at[0] < 0 || at[1] < 0 {
		return nil, fmt.Errorf(`%s:1: want a header with the columns owner and entry, such as "owner,entry,action,reason"`, path)
	}
	for ctx.Err() == nil {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return r.end()
		}
		line, _ := in.FieldPos(0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := r.record(migration.Place{File: path, Line: line}, at, record); err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// record takes one record.
func (r *reading) record(place migration.Place, at [len(csvColumns)]int, record []string) error {
	cell := func(i int) string {
		if at[i] < 0 || at[i] >= len(record) {
			return ""
		}
		return strings.TrimSpace(record[at[i]])
	}
	owner, entry, word := cell(0), cell(1), strings.ToLower(cell(2))
	f, err := r.find(place, strings.TrimSpace(owner+": "+word+" "+entry), "")
	if err != nil {
		return err
	}
	action, known := lists.Block, false
	for a, words := range csvActions {
		if slices.Contains(words, word) {
			action, known = a, true
		}
	}
	if bare, ok := strings.CutPrefix(entry, "!"); ok && word == "" {
		entry, action = bare, lists.Allow
	}
	f.Meant = action.String() + " " + original.Shown(entry) + " for " + original.Shown(owner)
	it, err := lists.ParseEntry(entry, lists.Settings{Action: action})
	switch e, is := errors.AsType[*lists.EntryError](err); {
	case !known:
		f.Meant = ""
		f.Lose("%q is neither block nor allow", original.Shown(word))
	case is:
		f.Lose("%s: %s", e.Class, e.Message)
	case err != nil:
		f.Lose("%s", original.Shown(err.Error()))
	default:
		r.means(meaning{Finding: f, text: entry, is: asEntry, fate: fateOf(action), weight: strings.Count(strings.TrimPrefix(owner, "@"), "@")}, owner, false)
		r.add(f, owner, it, cell(3))
	}
	return nil
}
