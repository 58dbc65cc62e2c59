package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// A postmap that was ended, or that fails in any other way than "not found", has not said that a table is empty.
func TestTableThatCannotBeAskedIsNotEmpty(t *testing.T) {
	for _, tt := range []struct{ name, script, why string }{
		{"killed", "kill -9 $$", "killed"},
		{"of another code", "exit 2", "exit status 2"},
		{"of code 1 with a reason", "echo 'postmap: fatal: no' >&2; exit 1", "fatal: no"},
		{"that hangs", "exec sleep 600", "has not ended within"},
		{"that has none", "exit 1", ""},
		{"that warns and has none", "echo 'postmap: warning: x' >&2; exit 1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "postmap", "#!/bin/sh\n"+tt.script+"\n")
			testkit.Must(t, os.Chmod(path, 0o755))
			const main = "smtpd_sender_restrictions = check_sender_access regexp:t\n"
			said := func(context.Context, string, string, ...string) (string, []string, error) { return main, nil, nil }
			file := testkit.File(t, "main.cf", main)
			testkit.Write(t, filepath.Join(filepath.Dir(file), "t"), "/a@b/ REJECT\n")
			r := testkit.Value(readPostfix(t.Context(), file, Options{}, said, tool{path, "", 2 * time.Second}.run))(t)
			testkit.Must(t, r.Ask(t.Context(), nobodyRefuses, func(int) {}))
			f := r.Findings[0]
			if asked := f.Outcome != NotAsked; asked != (tt.why == "") || !strings.Contains(f.Now, tt.why) {
				t.Errorf("%s: %s", f.Outcome, f.Now)
			}
		})
	}
}

// What cannot be read of a compiled table is said, and a file of another type is none of it.
func TestCompiledTables(t *testing.T) {
	for _, tt := range []struct {
		kind, made, text, note string
	}{
		{"hash", "t.db", "a.test REJECT\n", "what it has beside its text is not known"},
		{"btree", "t.db", "a.test REJECT\n", "what it has beside its text is not known"},
		{"hash", "t.lmdb", "a.test REJECT\n", ""},
		{"texthash", "t.db", "a.test REJECT\n", ""},
		{"lmdb", "t.db", "a.test REJECT\n", ""},
		{"hash", "t.db", "", "what it has is not known"},
	} {
		t.Run(tt.kind+" "+tt.made, func(t *testing.T) {
			testkit.Peer(t, postmap.name)
			dir := t.TempDir()
			testkit.Write(t, filepath.Join(dir, tt.made), "torn\n")
			if tt.text != "" {
				testkit.Write(t, filepath.Join(dir, "t"), tt.text)
			}
			r := testkit.Value(Read(t, testkit.Write(t, filepath.Join(dir, "main.cf"), "smtpd_sender_restrictions = check_sender_access "+tt.kind+":$config_directory/t\n")))(t)
			all := strings.Join(r.Notes, "\n")
			for _, f := range r.Findings {
				all += "\n" + f.Now
			}
			if !strings.Contains(all, tt.note) || tt.note == "" && strings.Contains(all, "not known") {
				t.Errorf("it says\n%s", all)
			}
		})
	}
}

// Networks of one's own are counted, and many take no time.
func TestManyNetworksOfOnesOwn(t *testing.T) {
	testkit.Peer(t, postmap.name)
	for _, tt := range []struct {
		n      int
		mark   string
		tooBig bool
	}{{9_000, "", false}, {9_000, "!", false}, {20_000, "", true}} {
		var text strings.Builder
		for i := range tt.n {
			fmt.Fprintf(&text, "%s10.%d.%d.0/24 10.%d.%d.7\n", map[bool]string{true: tt.mark}[i%2 == 0], i/256, i%256, i/256, i%256)
		}
		for _, value := range []string{"$config_directory/n", "cidr:$config_directory/n"} {
			main := testkit.File(t, "main.cf", "smtpd_sender_restrictions = permit_mynetworks\nmynetworks = "+value+"\n")
			testkit.Write(t, filepath.Join(filepath.Dir(main), "n"), text.String())
			if value[0] == '$' && !tt.tooBig { // two words a line
				continue
			}
			r, err := Read(t, main)
			if tt.tooBig {
				testkit.Fails(r, err)(t, "error", ErrTooBig)
			} else if err != nil || len(r.Trusted) != map[string]int{"": 9_000, "!": 4_500}[tt.mark] {
				t.Errorf("%s: %v", value, err)
			}
		}
	}
}

// What postmap would print of many keys at once is asked for in parts.
func TestAnswersThatAreLong(t *testing.T) {
	runs := 0
	pf := &postfix{Result: &Result{}, postmap: func(_ context.Context, _, stdin string, _ ...string) (string, []string, error) {
		runs++
		keys := strings.Fields(stdin)
		if len(keys) > 2 {
			return "", nil, ErrTooBig
		}
		return strings.Join(keys, "\tREJECT\n") + "\tREJECT\n", nil, nil
	}}
	defer pf.Close()
	got := testkit.Value(pf.query(t.Context(), &table{}, strings.Fields("a b c d e")))(t)
	testkit.Equal(t, "values and runs", fmt.Sprint(len(got), runs), "5 5")
}

// SpamAssassin is asked by its own meaning: its backslashes and parentheses are underscores.
func TestMeaningOfSpamAssassin(t *testing.T) {
	for _, tt := range []struct {
		glob, address string
		want          bool
	}{
		{"a(b@bulk.test", "a_b@bulk.test", true}, {`a\b@bulk.test`, "a_b@bulk.test", true}, {"a(*@bulk.test", "a_x@bulk.test", true}, {"a.b@bulk.test", "axb@bulk.test", false},
		{"*@Bulk.test", "x@bulk.test", true}, {"*@bulk.test", "x@bulk.test.example", false}, {"a?b@bulk.test", "a+b@bulk.test", true}, {"a?b@bulk.test", "ab@bulk.test", false},
		{"*.bulk.test", "x@y.bulk.test", true}, {"*.bulk.test", "x@bulk.test", false}, {"a+b@bulk.test", "aab@bulk.test", false}, {"bulk.test", "x@bulk.test", false},
	} {
		if got := SpamAssassinGlob(tt.glob)(tt.address); got != tt.want {
			t.Errorf("%s of %s: %t", tt.glob, tt.address, got)
		}
	}
	r := testkit.Value(SpamAssassin(t.Context(), testkit.File(t, "local.cf", "blocklist_from a(b@bulk.test x*(y@bulk.test\n"), Options{}))(t)
	testkit.Equal(t, "the list", strings.Contains(string(r.Lists[0].Text), "a_b@bulk.test") && strings.Contains(string(r.Lists[0].Text), "_y"), true)
}
