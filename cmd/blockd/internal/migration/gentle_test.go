package migration_test

import (
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// listsOf are the texts of the lists that an import makes of files, without comments.
func listsOf(t *testing.T, main string, files map[string]string) (lists, config string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	r := testkit.Value(migration.Read(t, filepath.Join(dir, main)))(t)
	for _, l := range r.Lists {
		for line := range strings.Lines(string(l.Text)) {
			if line[0] != '#' && line[0] != '\n' {
				lists += line
			}
		}
	}
	return lists, string(r.Config("lists"))
}

// Where Postfix answers 4xx in place of a refusal, its mail is not lost, and neither is
// it here.
func TestWhatPostfixDefersIsNotRefused(t *testing.T) {
	for _, tt := range []struct{ name, setting, table, want string }{
		{"REJECT by access_map_reject_code", "access_map_reject_code = 450", "a.test REJECT no\n", "a.test 450 4.7.1 no\n"},
		{"a code of the entry's own stays", "access_map_reject_code = 450", "a.test 550 5.7.1 no\n", "a.test 550 5.7.1 no\n"},
		{"soft_bounce", "soft_bounce = yes", "a.test REJECT no\nb.test 550 5.7.1 no\nc.test 521 no\n", "a.test 454 4.7.1 no\nb.test 450 4.7.1 no\nc.test 421 4.7.1 no\n"},
		{"a refusal as usual", "soft_bounce = no", "a.test REJECT\n", "a.test REJECT\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := listsOf(t, "main.cf", map[string]string{
				"main.cf": "smtpd_sender_restrictions = check_sender_access hash:$config_directory/t\n" + tt.setting + "\n", "t": tt.table})
			testkit.Equal(t, "lists", got, tt.want)
		})
	}
}

// What takes an exception back under a condition that does not hold, or that nobody can
// judge, leaves it; the other way round a block goes.
func TestTakenBackUnderACondition(t *testing.T) {
	const both = "welcomelist_from a@b.test\nblocklist_from *@c.test\n"
	undo := "unwelcomelist_from a@b.test\nunblocklist_from *@c.test\n"
	for _, tt := range []struct{ name, text, want string }{
		{"without a condition", both + undo, ""},
		{"a condition that holds", both + "if (version >= 3.1)\n" + undo + "endif\n", ""},
		{"one that does not", both + "if (version < 3.1)\n" + undo + "endif\n", "!a@b.test\n=c.test\n"},
		{"one that nobody can judge", both + "ifplugin X\n" + undo + "endif\n", "!a@b.test\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := listsOf(t, "local.cf", map[string]string{"local.cf": tt.text})
			testkit.Equal(t, "lists", got, tt.want)
		})
	}
}

// An administrator who has taken the points away has nobody refused by that list.
func TestBlocklistThatScoresLittleIsOnlyLogged(t *testing.T) {
	for _, score := range []string{"score USER_IN_BLACKLIST 0\n", "score USER_IN_BLOCKLIST 0 0 0 1.5\n"} {
		lists, config := listsOf(t, "local.cf", map[string]string{"local.cf": "blocklist_from *@c.test\n" + score})
		testkit.Got(lists, config)(t, score, "…c.test…", `…mode = "shadow"…`)
	}
	for _, score := range []string{"score USER_IN_BLOCKLIST 20\n", "score USER_IN_BLACKLIST 0\nscore USER_IN_BLACKLIST 100 100 100 100\n", "score OTHER 0\n"} {
		if _, config := listsOf(t, "local.cf", map[string]string{"local.cf": "blocklist_from *@c.test\n" + score}); strings.Contains(config, "shadow") {
			t.Errorf("%s: in shadow mode:\n%s", score, config)
		}
	}
}

// A table that this machine's Postfix cannot open, or that is torn, is asked by its text; one without a text is not
// asked.
func TestTablesThatCannotBeOpened(t *testing.T) {
	for _, tt := range []struct {
		name, kind, made, text, note string
		asked                        int
	}{
		{"a type that is not installed", "sdbm", "t.pag", "a.test REJECT\n", "its text is asked in its place", 3},
		{"a torn one", "hash", "t.db", "a.test REJECT\n", "its text is asked in its place", 3},
		{"patterns that are not installed", "nosuch", "", "", "is not asked for", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.made != "" {
				testkit.Write(t, filepath.Join(dir, tt.made), "no database\n")
			}
			testkit.Write(t, filepath.Join(dir, "t"), tt.text)
			r := testkit.Value(migration.Read(t, testkit.Write(t, filepath.Join(dir, "main.cf"), "smtpd_sender_restrictions = check_sender_access "+tt.kind+":$config_directory/t\n")))(t)
			testkit.Must(t, r.Ask(t.Context(), r.There, func(int) {}))
			testkit.Got(r.Asked, r.Alike, strings.Join(r.Notes, "\n"))(t, "the asking", tt.asked, tt.asked, "…"+tt.note+"…")
		})
	}
}
