package mysql

import (
	"path/filepath"
	"testing"

	"blockd/sources/mirror"
)

// testIdlePoll: a poll at which nothing has changed is one statement. Only the first one also asks which server it is.
func testIdlePoll(t *testing.T, d *database) {
	s := d.source(t, Options{Changes: "log"})
	d.do(t, "insert into senders (id, address) values (1, 'a.example')")
	m, err := mirror.Open(mirror.Options{Folder: filepath.Join(t.TempDir(), "copy")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	poll := func() {
		t.Helper()
		if told, err := m.Follow(t.Context(), s); err != nil || told.Changed {
			t.Fatalf("%+v, %v", told, err)
		}
	}
	statements := func() (n int) {
		t.Helper()
		var name string
		if err := d.DB.QueryRow("show global status like 'Questions'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	poll()
	const polls = 10
	before := statements()
	for range polls {
		poll()
	}
	if n := statements() - 1 - before; n != polls { // 1 is our own
		t.Errorf("%d polls were %d statements", polls, n)
	}
}
