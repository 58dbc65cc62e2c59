package mirrortest

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
)

// Copy is a copy of a source, in a folder of its own. It is closed with the test.
type Copy struct {
	*mirror.Mirror
	Folder   string
	Source   mirror.Source
	settings lists.Settings
}

// NewCopy opens a copy. Nothing is read yet.
func NewCopy(t testing.TB, source mirror.Source, settings lists.Settings) *Copy {
	t.Helper()
	c := &Copy{Folder: filepath.Join(t.TempDir(), "copy"), Source: source, settings: settings}
	c.open(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func (c *Copy) open(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "the lock of the copy", func() bool { // a process that is being started has it for a moment
		m, err := mirror.Open(mirror.Options{Folder: c.Folder, Settings: c.settings})
		if err != nil && !errors.Is(err, mirror.ErrLocked) {
			t.Fatal(err)
		}
		c.Mirror = m
		return err == nil
	})
}

// Restart closes the copy and opens it again.
func (c *Copy) Restart(t testing.TB) {
	t.Helper()
	c.Close()
	c.open(t)
}

// Bring brings the copy up to date as a Keeper does.
func (c *Copy) Bring(ctx context.Context) (*mirror.Report, error) {
	told, err := c.Mirror.Follow(ctx, c.Source)
	if errors.Is(err, mirror.ErrTooOld) {
		return c.Mirror.Read(ctx, c.Source)
	}
	return told, err
}

// Read reads the source as a whole.
func (c *Copy) Read(t testing.TB) *mirror.Report {
	t.Helper()
	return must(t)(c.Mirror.Read(t.Context(), c.Source))
}

// Follow takes in what has changed; a full read is a fault.
func (c *Copy) Follow(t testing.TB) *mirror.Report {
	t.Helper()
	return must(t)(c.Mirror.Follow(t.Context(), c.Source))
}

// Update brings the copy up to date.
func (c *Copy) Update(t testing.TB) *mirror.Report {
	t.Helper()
	return must(t)(c.Bring(t.Context()))
}

func must(t testing.TB) func(*mirror.Report, error) *mirror.Report {
	return func(told *mirror.Report, err error) *mirror.Report {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
}

// Lines are the lines of the copy, sorted.
func (c *Copy) Lines(t testing.TB) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(mirror.Files(c.Folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for line := range strings.Lines(string(testkit.Read(t, path))) {
			if strings.Count(line, "\t") == 5 {
				all = append(all, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Want checks the keys and actions of the copy, such as "a@bulk.test b".
func (c *Copy) Want(t testing.TB, what string, want ...string) {
	t.Helper()
	got := c.Lines(t)
	for i, line := range got {
		f := strings.Split(line, "\t")
		got[i] = f[0] + " " + f[1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
