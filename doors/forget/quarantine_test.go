package forget

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/records/quarantine"
)

// blockd forget --quarantine removes messages that the person has sent, and messages to the person alone. A message that has other recipients too stays
// for these, and the answer says how many did.
func TestQuarantineOfOthersStays(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tmp", "new", "cur"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	for i, m := range []struct{ from, to string }{
		{"x@bulk.example", "anna@here.example"},
		{"x@bulk.example", "anna@here.example bob@here.example"},
		{"anna@here.example", "bob@here.example carl@here.example"},
		{"x@bulk.example", "bob@here.example"},
		{"x@bulk.example", "Anna@HERE.example anna@here.example"},
	} {
		text := "Return-Path: <" + m.from + ">\r\n"
		for _, to := range strings.Fields(m.to) {
			text += "Delivered-To: " + to + "\r\n"
		}
		testkit.Write(t, filepath.Join(dir, "new", fmt.Sprintf("170000000%d.M%d.host", i, i)), text+"X-Blockd: list=bad ref=r\r\nReceived: from x\r\nSubject: s\r\n\r\nhello\r\n")
	}
	a := testkit.Value(addr.Parse("anna@here.example"))(t)
	places := &Places{Quarantine: quarantine.Folder(dir), Index: filepath.Join(t.TempDir(), "index")}
	f := testkit.Value(places.Forget(t.Context(), a, Wish{Quarantine: true}))(t)
	left := testkit.Value(quarantine.Folder(dir).List(t.Context(), quarantine.Query{Limit: 10}))(t)
	var ids []string
	for _, m := range left.Messages {
		ids = append(ids, m.ID)
		if slices.Contains(m.Recipients, "anna@here.example") {
			t.Errorf("%s is still for her: %v", m.ID, m.Recipients)
		}
	}
	slices.Sort(ids)
	if f.Quarantined != 3 || !slices.Equal(ids, []string{"1700000001.M1.host", "1700000003.M3.host"}) || !strings.Contains(fmt.Sprint(f.Remains), "messages that others get too") {
		t.Errorf("%d went, %v are left; %+v", f.Quarantined, ids, f.Remains)
	}
}
