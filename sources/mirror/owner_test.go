package mirror

import (
	"fmt"
	"testing"

	"blockd/lists"
)

// TestRowsWithOwners: a row has an owner where its list is per recipient, and nowhere else.
func TestRowsWithOwners(t *testing.T) {
	own, everybodys := lists.Settings{PerRecipient: true}, lists.Settings{}
	for _, c := range []struct {
		row      Row
		settings lists.Settings
		line     string
		class    lists.Class
	}{
		{Row{Owner: "Anna@Here.example", Entry: "bulk.example", ID: "7"}, own, "anna@here.example bulk.example\tb\tt\t\t7\t", ""},
		{Row{Owner: "here.example", Entry: "=com", Action: "allow"}, own, "here.example com\ta\tx\t\t\t", ""},
		{Row{Owner: "anna@here.example", Entry: "recipient:anna+shop@here.example"}, own, "anna@here.example recipient:anna+shop@here.example\tb\tx\t\t\t", ""},
		{Row{Entry: "bulk.example"}, own, "", lists.Owner},
		{Row{Owner: "nobody", Entry: "a b"}, own, "", lists.Syntax},
		{Row{Owner: "anna@", Entry: "bulk.example"}, own, "", lists.Owner},
		{Row{Owner: "anna@here.example", Entry: "192.0.2.1"}, own, "", lists.Unsupported},
		{Row{Owner: "anna@here.example", Entry: "bulk.example", Action: "tempfail"}, own, "", lists.UnsupportedAction},
		{Row{Owner: "anna@here.example", Entry: "bulk.example"}, everybodys, "", lists.Owner},
	} {
		line, refused := Say(c.row, c.settings)
		class := lists.Class("")
		if refused != nil {
			class = refused.Class
		}
		if line != c.line || class != c.class {
			t.Errorf("%+v: %q, %q, want %q, %q", c.row, line, class, c.line, c.class)
		}
	}
}

// TestEntriesOfAnOwnerAreInOneFile: so that they can be counted there.
func TestEntriesOfAnOwnerAreInOneFile(t *testing.T) {
	found := map[int]bool{}
	for i := range 100 {
		found[fileOf(fmt.Appendf(nil, "anna@here.example sender-%d@bulk.example", i))] = true
	}
	if len(found) != 1 {
		t.Errorf("in %d files", len(found))
	}
}
