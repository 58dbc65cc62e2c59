package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// A second import replaces no file without keeping it.
func TestImportKeepsWhatItReplaces(t *testing.T) {
	testkit.Peer(t, "postconf")
	dir, hourAgo := t.TempDir(), time.Now().Add(-time.Hour)
	out := filepath.Join(dir, "out")
	main := filepath.Join(dir, "main.cf")
	run := func(table string, flags ...string) (int, string) {
		for name, text := range map[string]string{"main.cf": "smtpd_sender_restrictions = check_sender_access hash:" + dir + "/t\n", "t": table} {
			// Postfix waits for a file that was written just now.
			testkit.Must(t, os.Chtimes(testkit.Write(t, filepath.Join(dir, name), text), hourAgo, hourAgo))
		}
		code, _, errs := blockd(t, "", append([]string{"import", "--from-postfix", main, "-o", out}, flags...)...)
		return code, errs
	}
	testkit.MustGot(run("bulk.example REJECT one\n"))(t, "run", 0, "…")
	testkit.Got(run("bulk.example REJECT two\n"))(t, "a second time", 2, "…config.toml is there already; --force replaces it, and keeps it as config.toml.old…")
	run("bulk.example REJECT two\n", "--force")
	run("bulk.example REJECT three\n", "--force")
	for file, want := range map[string]string{"t.access": "three", "t.access.old": "one", "t.access.old.2": "two"} {
		if text, err := os.ReadFile(filepath.Join(out, "lists", file)); err != nil || !strings.Contains(string(text), "REJECT "+want+"\n") {
			t.Errorf("%s: %q, %v, want the text %q", file, text, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "config.toml.old")); err == nil {
		t.Error("config.toml is the same each time, and was kept")
	}
	if code, stdout, errs := blockd(t, "", "config", "--check", "-c", filepath.Join(out, "config.toml")); code != 0 || strings.Contains(stdout, "warning:") {
		t.Errorf("config --check: %d\n%s%s", code, stdout, errs)
	}
}

var updateImports = flag.Bool("update-imports", false, "write what import says of testdata/migration/examples")

// What an import says of each example, with the other programs asked: the whole report, and how it ends.
func TestImportsOfExamples(t *testing.T) {
	folder := filepath.Join(testkit.Root(t), "testdata/migration/examples")
	for _, example := range testkit.Value(os.ReadDir(folder))(t) {
		t.Run(example.Name(), func(t *testing.T) {
			dir := t.TempDir()
			testkit.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(folder, example.Name()))))
			t.Chdir(dir)
			var args []string
			for _, kind := range []struct{ file, flag, peer string }{{"main.cf", "--from-postfix", "postmap"}, {"multimap.conf", "--from-rspamd", "rspamd"}, {"local.d/multimap.conf", "--from-rspamd", "rspamd"},
				{"local.cf", "--from-spamassassin", ""}, {"portal.csv", "--csv", ""}, {"amavis.sql", "--amavis", ""}, {"userpref.sql", "--spamassassin-sql", ""}, {"home", "--user-prefs", ""}, {"sieve", "--sieve", ""},
				{"settings.conf", "--rspamd-settings", "rspamadm"}} {
				if exists(kind.file) {
					if kind.peer != "" {
						testkit.Peer(t, kind.peer)
					}
					hourAgo := time.Now().Add(-time.Hour) // Postfix waits for a file that was written just now
					testkit.Must(t, os.Chtimes(kind.file, hourAgo, hourAgo))
					args = []string{"import", kind.flag, kind.file, "--domain", "here.example", "-o", "out"}
				}
			}
			code, out, errs := blockd(t, "", args...)
			got := fmt.Sprintf("%s%sends with %d\n", strings.ReplaceAll(out, dir+"/", ""), errs, code)
			want := filepath.Join(folder, example.Name(), "want")
			if *updateImports {
				testkit.Write(t, want, got)
			}
			testkit.Equal(t, "the report", got, string(testkit.Read(t, want)))
			if code, stdout, errs := blockd(t, "", "config", "--check", "-c", "out/config.toml"); code != 0 {
				t.Errorf("config --check: %d\n%s%s", code, stdout, errs)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
