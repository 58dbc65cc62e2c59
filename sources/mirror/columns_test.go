package mirror

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestColumns(t *testing.T) {
	for _, tt := range []struct{ names, values, want string }{
		{"entry", "a@b.example", "a@b.example||0||"},
		{"ID,Entry", "7,a@b.example", "a@b.example||0||7"},
		{"entry,action,expires,reason,id", "b.example,allow,1893456000,why,9", "b.example|allow|1893456000|why|9"},
		{"entry,expires", "b.example,", "b.example||0||"},
		{"entry,expires", "b.example,2030-01-01 00:00:00", "b.example||1893456000||"},
		{"entry,expires", "b.example,2030-01-01 00:00:00.5+00", "b.example||1893456000||"},
		{"entry,expires", "b.example,2030-01-01 01:00:00+01:00", "b.example||1893456000||"},
		{"entry,expires", "b.example,2030-01-01T00:00:00Z", "b.example||1893456000||"},
		{"entry,expires", "b.example,2030-01-01", "b.example||1893456000||"},
		{"entry,expires", "b.example,infinity", "b.example||0||"},
		{"entry,expires", "b.example,0000-00-00 00:00:00", "b.example||0||"},
		{"entry,expires", "b.example,soon", "b.example||-1||"},
		{"entry,id", "b.example", "b.example||0||"},
	} {
		c, err := NewColumns(strings.Split(tt.names, ","))
		if err != nil {
			t.Errorf("%s: %v", tt.names, err)
			continue
		}
		r := c.Row(strings.Split(tt.values, ","))
		testkit.Equal(t, fmt.Sprintf("%s of %s", tt.names, tt.values), sprintRow(r), tt.want)
	}
	for names, want := range map[string]string{
		"":              `schema: the query gives a column ""; want entry, and perhaps owner, action, expires, reason and id`,
		"id":            `schema: the query gives no column "entry"; name it so: select address as entry`,
		"entry,address": `schema: the query gives a column "address"; want entry, and perhaps owner, action, expires, reason and id`,
		"entry,Entry":   `schema: the query gives the column "entry" twice`,
	} {
		testkit.Got(NewColumns(strings.Split(names, ",")))(t, fmt.Sprintf("%q", names), testkit.Any, want)
	}
}

func sprintRow(r Row) string {
	return strings.Join([]string{r.Entry, r.Action, strconv.FormatInt(r.Expires, 10), r.Reason, r.ID}, "|")
}

func TestSay(t *testing.T) {
	s := lists.Settings{Action: lists.Block}
	if line, no := Say(Row{Entry: "Ann@B.Example", Reason: "why", ID: "7"}, s); no != nil || line != "ann@b.example\tb\tx\t\t7\twhy" {
		t.Errorf("an address: %q, %v", line, no)
	}
	if _, no := Say(Row{Entry: "no one", ID: "8"}, s); no == nil || no.ID != "8" {
		t.Errorf("not an entry: %v", no)
	}
	if _, no := Say(Row{Entry: "b.example", Expires: noTime}, s); no == nil || no.Message != "expires at -1, want Unix seconds" {
		t.Errorf("an end that is no time: %v", no)
	}
}

// TestAroundValues: what a loaded file leaves around a value is no part of it; within one it is refused, and so is an
// address that could be a network.
func TestAroundValues(t *testing.T) {
	s := lists.Settings{Action: lists.Block}
	for _, row := range []Row{
		{Entry: "ann@b.example\n"}, {Entry: "ann@b.example\r\n"}, {Entry: "\tann@b.example \r"}, {Entry: " ann@b.example", Action: "Block\r"}, {Entry: "Ann@b.example", Action: " BLOCK "},
	} {
		if line, no := Say(row, s); no != nil || line != "ann@b.example\tb\tx\t\t\t" {
			t.Errorf("%+v: %q, %v", row, line, no)
		}
	}
	for entry, class := range map[string]lists.Class{
		"ann@b.example\nbob@b.example": lists.Control, "b.exa\rmple": lists.Control, "198.51.100.7/24": lists.HostBits, "2001:db8::1/32": lists.HostBits,
	} {
		if line, no := Say(Row{Entry: entry}, s); no == nil || no.Class != class {
			t.Errorf("%q: %q, %v, want %s", entry, line, no, class)
		}
	}
	if line, no := Say(Row{Entry: "198.51.100.0/24\n"}, s); no != nil || line != "198.51.100.0/24\tb\tt\t\t\t" {
		t.Errorf("a network: %q, %v", line, no)
	}
	if line, no := Say(Row{Entry: "ann@b.example", Owner: "bob@here.example\r\n", Action: "allow"}, lists.Settings{PerRecipient: true}); no != nil || !strings.Contains(line, "bob@here.example") {
		t.Errorf("an owner: %q, %v", line, no)
	}
	c := testkit.Value(NewColumns([]string{"entry", "expires"}))(t)
	testkit.Equal(t, "an end with a line end", c.Row([]string{"b.example", "2030-01-01\r\n"}).Expires, 1893456000)
}

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
		testkit.Got(line, class)(t, c.row, c.line, c.class)
	}
}

// TestEntriesOfAnOwnerAreInOneFile: so that they can be counted there.
func TestEntriesOfAnOwnerAreInOneFile(t *testing.T) {
	found := map[int]bool{}
	for i := range 100 {
		found[fileOf(fmt.Appendf(nil, "anna@here.example sender-%d@bulk.example", i))] = true
	}
	testkit.Equal(t, "files", len(found), 1)
}
