package query

import "testing"

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
