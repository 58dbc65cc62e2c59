package migration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// ReadSaid imports a configuration of which its owner's tool says the same whatever it is asked.
func ReadSaid(ctx context.Context, path, says string) (*Result, error) {
	said := func(context.Context, string, string, ...string) (string, []string, error) { return says, nil, nil }
	if filepath.Base(path) == "main.cf" {
		return readPostfix(ctx, path, Options{}, said, said)
	}
	return readRspamd(ctx, path, Options{}, said)
}

// Read imports a configuration by the installed tool of its owner, and skips the test where it
// is missing.
func Read(t testing.TB, path string) (*Result, error) {
	t.Helper()
	switch filepath.Base(path) {
	case "main.cf":
		testkit.Peer(t, postmap.name)
		return Postfix(t.Context(), old(t, path), Options{})
	case "multimap.conf":
		testkit.Peer(t, rspamadm.name)
		return Rspamd(t.Context(), path, Options{})
	}
	return SpamAssassin(t.Context(), path, Options{})
}

// old makes a file an hour old: Postfix waits for one that was written just now.
func old(t testing.TB, path string) string {
	t.Helper()
	testkit.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
	return path
}
