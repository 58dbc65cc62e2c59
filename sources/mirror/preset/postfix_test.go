package preset

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/sqlite"
)

// postmap asks Postfix for the keys of a table, all at once. It gives their values; a key that is not there has none.
func postmap(t *testing.T, kind, path string, keys []string) map[string]string {
	t.Helper()
	program := testkit.Peer(t, "postmap")
	folder, err := exec.Command("postconf", "-dh", "shlib_directory").Output()
	testkit.Must(t, err)
	library := filepath.Join(strings.TrimSpace(string(folder)), "postfix-"+kind+".so")
	if _, err := os.Stat(library); err != nil {
		testkit.Missing(t, "postfix-"+kind+" is not installed (make peers)")
	}
	config := t.TempDir()
	testkit.Write(t, filepath.Join(config, "main.cf"), "compatibility_level = 3.6\n")
	testkit.Write(t, filepath.Join(config, "dynamicmaps.cf"), fmt.Sprintf("%s %s dict_%s_open\n", kind, library, kind))
	cmd := exec.Command(program, "-c", config, "-q", "-", kind+":"+path)
	cmd.Stdin = strings.NewReader(strings.Join(keys, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1 || strings.Contains(string(out), "postmap:")) { // 1: some were not found
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found[key] = value
	}
	return found
}

// access is the table of a judge: keys of access(5), and what they lead to.
var access = []string{
	"create table senders (address varchar(255), action varchar(255), active integer)",
	`insert into senders values
	('promo@bulk.example', 'REJECT bulk mail', 1), ('bulk.test', '550 5.7.1 go away', 1), ('offers@', 'DEFER', 1), ('friend@bulk.test', 'OK', 1),
	('192.0.2.7', 'REJECT', 1), ('198.51.100', 'reject', 1), ('drop@bulk.example', 'DISCARD', 1), ('later@bulk.example', '450 later', 1), ('code@bulk.example', '12345', 1),
	('Caps@bulk.example', 'REJECT', 1), ('off@bulk.example', 'REJECT', 0), ('none@bulk.example', null, 1), ('empty@bulk.example', '', 1), ('dunno@bulk.example', 'DUNNO', 1),
	('hold@bulk.example', 'HOLD', 1), ('x y@bulk.example', 'REJECT', 1), ('p%q@bulk.example', 'REJECT', 1), (null, 'REJECT', 1)`,
}

// agree compares what a preset reads with what Postfix says of each key: an entry where Postfix has a value that a list
// can carry, and none anywhere else.
func agree(t *testing.T, path, kind, postfixKind string, open func(p *Preset) (mirror.Source, error)) {
	t.Helper()
	keys := []string{"promo@bulk.example", "bulk.test", "offers@", "friend@bulk.test", "192.0.2.7", "198.51.100", "drop@bulk.example", "later@bulk.example", "code@bulk.example",
		"caps@bulk.example", "off@bulk.example", "none@bulk.example", "empty@bulk.example", "dunno@bulk.example", "hold@bulk.example", "p%q@bulk.example", "other@bulk.example", "example"}
	judged := postmap(t, postfixKind, path, keys)
	p := find(t, "postfix:"+path, kind)
	s, err := open(p)
	testkit.Must(t, err)
	defer s.Close()
	ours := map[string]lists.Action{}
	_, err = p.Source(s, nil).All(t.Context(), func(row mirror.Row) error {
		if it := row.Item; it.Kind != lists.Err {
			ours[strings.TrimSuffix(it.Name(), ".0/24")] = it.Action
		}
		return nil
	})
	testkit.Must(t, err)
	want := map[string]lists.Action{"REJECT bulk mail": lists.Block, "550 5.7.1 go away": lists.Block, "DEFER": lists.Tempfail, "OK": lists.Allow, "REJECT": lists.Block, "reject": lists.Block,
		"DISCARD": lists.Discard, "450 later": lists.Tempfail, "12345": lists.Allow, "DUNNO": lists.Allow}
	for _, key := range keys {
		value, there := judged[key]
		action, has := ours[key]
		if wanted, carried := want[value]; has != (there && carried) || has && action != wanted {
			t.Errorf("%s: Postfix says %q (%v), and the list has it: %v (%v)", key, value, there, has, action)
		}
	}
	if len(judged) < 9 {
		t.Errorf("Postfix found %q", judged)
	}
}

func TestPostfixAgreesOnSQLite(t *testing.T) {
	path := database(t, access...)
	cf := testkit.File(t, "senders.cf", "dbpath = "+path+"\nquery = SELECT action FROM senders WHERE address = '%s' AND active = 1\n")
	agree(t, cf, "sqlite", "sqlite", func(p *Preset) (mirror.Source, error) {
		return sqlite.Open(sqlite.Options{DSN: p.DSN, Query: p.Query, Changes: "none", List: "senders"})
	})
}
