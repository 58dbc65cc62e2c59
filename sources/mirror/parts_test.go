package mirror

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// endless gives rows until it is released.
type endless struct {
	rows    int
	full    chan<- struct{}
	release <-chan struct{}
}

func (endless) Fingerprint(context.Context) (string, error) { return "endless", nil }

func (e endless) All(ctx context.Context, yield func(Row) error) (Mark, error) {
	for i := range e.rows {
		if err := yield(Row{Entry: fmt.Sprintf("n%d.%s.example", i, strings.Repeat("x", 60))}); err != nil {
			return "", err
		}
	}
	e.full <- struct{}{}
	<-e.release
	return "0", ctx.Err()
}

func (endless) Changes(context.Context, Mark, func(Change) error) (Mark, error) { return "", ErrTooOld }
func (endless) Wait(ctx context.Context) error                                  { <-ctx.Done(); return ctx.Err() }

// TestManyReads: lists that are read at the same time hold a few files each, and not one for each of their parts.
func TestManyReads(t *testing.T) {
	open := func() int {
		t.Helper()
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system does not tell which files are open")
		}
		return len(all)
	}
	const lists, rows = 10, 40_000 // of 1 MiB are 3.5 MiB on the disk
	full, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	dir, before := t.TempDir(), open()
	for i := range lists {
		m, err := Open(Options{Folder: filepath.Join(dir, fmt.Sprint(i))})
		testkit.Must(t, err)
		defer m.Close()
		go func() {
			told, err := m.Read(t.Context(), endless{rows, full, release})
			if err == nil && told.Entries != rows {
				err = fmt.Errorf("%d entries", told.Entries)
			}
			ended <- err
		}()
	}
	for range lists {
		<-full
	}
	if n := open() - before; n > 3*lists+5 {
		t.Errorf("%d lists hold %d files", lists, n)
	}
	close(release)
	for range lists {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, "all files to be closed", func() bool { return open()-before <= 2*lists+5 })
}
