package migration

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

var update = flag.Bool("update", false, "record what the installed tools say in testdata")

// recordings are the runs on file, by the program that they are of.
var recordings = map[string]struct {
	tool tool
	dir  string
}{
	"main.cf":       {postconf, "testdata/postconf-3.7.11"},
	"multimap.conf": {rspamadm, "testdata/rspamadm-3.4"},
}

// ReadRecorded imports a configuration by what the tool of its owner said of it when it was
// recorded.
func ReadRecorded(t testing.TB, path string) (*Result, error) {
	home := testkit.Value(filepath.Abs(filepath.Join(filepath.Dir(path), "..")))(t)
	r := recordings[filepath.Base(path)]
	run := func(ctx context.Context, dir string, args ...string) (string, []string, error) {
		name := filepath.Join(r.dir, args[len(args)-1])
		if r.tool == postconf {
			name = filepath.Join(r.dir, args[2])
		}
		if *update {
			out, complaints, err := r.tool.run(ctx, dir, args...)
			testkit.Must(t, err)
			text := strings.ReplaceAll(out, home, "@HOME@") + "\x00" + strings.Join(complaints, "\n")
			testkit.Write(t, name, text)
		}
		text, err := os.ReadFile(name)
		out, complaints, _ := strings.Cut(string(text), "\x00")
		return strings.ReplaceAll(out, "@HOME@", home), strings.Split(complaints, "\n"), err
	}
	return read(t.Context(), path, run)
}

// ReadSaid imports a configuration of which its owner's tool says the same whatever it is asked.
func ReadSaid(ctx context.Context, path, says string) (*Result, error) {
	return read(ctx, path, func(context.Context, string, ...string) (string, []string, error) { return says, nil, nil })
}

func read(ctx context.Context, path string, run runner) (*Result, error) {
	if filepath.Base(path) == "main.cf" {
		return readPostfix(ctx, path, Options{}, run)
	}
	return readRspamd(ctx, path, Options{}, run)
}

// Read imports a configuration by the installed tool of its owner, and skips the test where it
// is missing.
func Read(t testing.TB, path string) (*Result, error) {
	t.Helper()
	r, ok := recordings[filepath.Base(path)]
	if !ok {
		return SpamAssassin(t.Context(), path, Options{})
	}
	testkit.Peer(t, r.tool.name)
	return read(t.Context(), old(t, path), r.tool.run)
}

// old makes a file an hour old: Postfix waits for one that was written just now.
func old(t testing.TB, path string) string {
	t.Helper()
	testkit.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
	return path
}
