package postgres

import (
	"path/filepath"
	"regexp"
	"testing"

	"blockd/internal/testkit"
)

// TestIdlePoll: a poll at which nothing has changed is one statement. Only the first one also asks which server it is.
func TestIdlePoll(t *testing.T) {
	name, o := database(t, "", Options{})
	shared.Exec(t, name, "insert into senders (entry) values ('a.example')")
	shared.Exec(t, name, "create role counted login in role reader; alter role counted set log_statement = 'all'")
	o.DSN = shared.URL("counted", name)
	s, m := open(t, o), folder(t)
	if _, err := m.Read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	poll := func() {
		t.Helper()
		if told, err := m.Follow(t.Context(), s); err != nil || told.Changed {
			t.Fatalf("%+v, %v", told, err)
		}
	}
	poll()
	statement := regexp.MustCompile(`LOG:  (statement|execute) .*`)
	statements := func() []string {
		return statement.FindAllString(string(testkit.Read(t, filepath.Join(shared.Dir, "log"))), -1)
	}
	before := len(statements())
	if before == 0 {
		t.Fatal("the server logs no statements")
	}
	const polls = 10
	for range polls {
		poll()
	}
	if now := statements(); len(now)-before != polls {
		t.Errorf("%d polls were %d statements: %q", polls, len(now)-before, now[before:])
	}
}
