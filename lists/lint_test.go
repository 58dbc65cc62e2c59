package lists_test

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestLintComparesEntries(t *testing.T) {
	const text = "bulk.test\n" + // 1
		"Bulk.Test.\n" + // 2: the same
		".bulk.test\n" + // 3: another scope
		"!bulk.test\n" + // 4: an exception from 1
		"!bulk.test\n" + // 5: conflict comes before dup
		"bulk.test\n" + // 6
		"198.51.100.0/25\n" + // 7
		"198.51.100.9/25\n" + // 8: dup comes before host-bits
		"!a@bulk.test\n" + // 9
		"a@bulk.test\n" + // 10
		"b@bulk.test\n" // 11: nothing, whatever the line before is
	want := []string{
		"1 domain bulk.test tree block ",
		"2 domain bulk.test tree block dup same as line 1",
		"3 domain bulk.test sub block ",
		"4 domain bulk.test tree allow conflict an exception from line 1, and wins",
		"5 domain bulk.test tree allow conflict an exception from line 1, and wins",
		"6 domain bulk.test tree block conflict line 4 is an exception from it, and wins",
		"7 cidr 198.51.100.0/25 tree block ",
		"8 cidr 198.51.100.0/25 tree block dup same as line 7",
		"9 addr a@bulk.test exact allow ",
		"10 addr a@bulk.test exact block conflict line 9 is an exception from it, and wins",
		"11 addr b@bulk.test exact block ",
	}
	var got []string
	sum, keys, err := lists.Lint(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		line := fmt.Sprintf("%d %s", it.Line, show(it))
		if it.Message != "" {
			line += " " + it.Message
		} else {
			line += " "
		}
		got = append(got, line)
		return nil
	})
	if err != nil || sum.Entries != 11 || keys != 5 {
		t.Errorf("%d entries, %d keys, %v; want 11 and 5", sum.Entries, keys, err)
	}
	equal(t, got, want)
}

func TestWords(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		lists.Skip: "skip", lists.Err: "err", lists.Addr: "addr", lists.Domain: "domain", lists.IP: "ip", lists.CIDR: "cidr", lists.Kind(9): "kind(9)",
		lists.Exact: "exact", lists.Sub: "sub", lists.Tree: "tree", lists.Local: "local", lists.Scope(9): "scope(9)",
		lists.Block: "block", lists.Allow: "allow", lists.Tempfail: "tempfail", lists.Discard: "discard", lists.Action(9): "action(9)",
	} {
		if got.String() != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for text, want := range map[string]lists.Action{"": lists.Block, "block": lists.Block, "allow": lists.Allow} {
		if got, err := lists.ParseAction(text); err != nil || got != want {
			t.Errorf("ParseAction(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"Block", "tempfail", "discard", "deny"} {
		if _, err := lists.ParseAction(text); err == nil {
			t.Errorf("ParseAction(%q) succeeds", text)
		}
	}
}
