package mailbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

func openQuarantine(t *testing.T, most int64) (*Quarantine, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "aside")
	q, err := OpenQuarantine(dir, "mx.here.example", most, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return q, dir
}

// held returns the contents of the files in a folder.
func held(t *testing.T, dir, folder string) (contents []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b := testkit.Read(t, filepath.Join(dir, folder, e.Name()))
		contents = append(contents, string(b))
	}
	return contents
}

func put(t *testing.T, q *Quarantine, text string) *Copy {
	t.Helper()
	c, err := q.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCopyIsInNewAfterCommitOnly(t *testing.T) {
	q, dir := openQuarantine(t, 1000)
	c := put(t, q, "a message")
	if got := held(t, dir, "new"); len(got) != 0 {
		t.Errorf("before Commit new/ holds %q", got)
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := held(t, dir, "new"); len(got) != 1 || got[0] != "a message" {
		t.Errorf("after Commit new/ holds %q", got)
	}
	if got := held(t, dir, "tmp"); len(got) != 0 {
		t.Errorf("after Commit tmp/ holds %q", got)
	}
}

func TestWithdrawRemovesBeforeAndAfterCommit(t *testing.T) {
	for _, committed := range []bool{false, true} {
		q, dir := openQuarantine(t, 10)
		for range 5 { // its octets are given back each time
			c := put(t, q, "a message")
			if committed {
				if err := c.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := c.Withdraw(); err != nil {
					t.Errorf("Withdraw: %v", err)
				}
			}
			if got := append(held(t, dir, "new"), held(t, dir, "tmp")...); len(got) != 0 {
				t.Errorf("after Withdraw, committed %v: %q", committed, got)
			}
		}
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	q, dir := openQuarantine(t, 100)
	c, err := q.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(bytes.Repeat([]byte("x"), 101)); !errors.Is(err, ErrFull) {
		t.Errorf("Write beyond the bound: %v, want %v", err, ErrFull)
	}
	if err := c.Withdraw(); err != nil {
		t.Error(err)
	}
	if err := put(t, q, string(bytes.Repeat([]byte("x"), 100))).Commit(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenQuarantine(dir, "mx.here.example", 100, quiet())
	if err != nil {
		t.Fatal(err)
	}
	c, err = again.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Withdraw()
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Errorf("Write into what an earlier process has filled: %v, want %v", err, ErrFull)
	}
}

// TestDeletedMailMakesRoom within a minute, and not at the cost of a look at the
// disk for each message.
func TestDeletedMailMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, dir := openQuarantine(t, 100)
		c := put(t, q, string(bytes.Repeat([]byte("x"), 100)))
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := q.reserve(1); !errors.Is(err, ErrFull) {
			t.Errorf("at once: %v, want %v", err, ErrFull)
		}
		<-time.After(recount)
		if err := q.reserve(1); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

func TestCommitFailsWhereTheFolderIsGone(t *testing.T) {
	q, dir := openQuarantine(t, 1000)
	c := put(t, q, "a message")
	if err := os.Remove(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(); err == nil {
		t.Error("Commit into a folder that is gone: no error")
	}
	if err := c.Withdraw(); err != nil {
		t.Error(err)
	}
	if got := held(t, dir, "tmp"); len(got) != 0 {
		t.Errorf("tmp/ holds %q", got)
	}
}
