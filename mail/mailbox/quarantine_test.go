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
	q := testkit.Value(OpenQuarantine(dir, "mx.here.example", Use{most, 1000}, quiet()))(t)
	return q, dir
}

// held returns the contents of the files in a folder.
func held(t *testing.T, dir, folder string) (contents []string) {
	t.Helper()
	entries := testkit.Value(os.ReadDir(filepath.Join(dir, folder)))(t)
	for _, e := range entries {
		b := testkit.Read(t, filepath.Join(dir, folder, e.Name()))
		contents = append(contents, string(b))
	}
	return contents
}

func put(t *testing.T, q *Quarantine, text string) *Copy {
	t.Helper()
	c := testkit.Value(q.Begin())(t)
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
	testkit.Must(t, c.Commit())
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
				testkit.Must(t, c.Commit())
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
	testkit.Must(t, err)
	if _, err := c.Write(bytes.Repeat([]byte("x"), 101)); !errors.Is(err, ErrFull) {
		t.Errorf("Write beyond the bound: %v, want %v", err, ErrFull)
	}
	if err := c.Withdraw(); err != nil {
		t.Error(err)
	}
	testkit.Must(t, put(t, q, string(bytes.Repeat([]byte("x"), 100))).Commit())
	again, err := OpenQuarantine(dir, "mx.here.example", Use{100, 1000}, quiet())
	testkit.Must(t, err)
	c, err = again.Begin()
	testkit.Must(t, err)
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
		testkit.Must(t, c.Commit())
		testkit.Must(t, os.RemoveAll(filepath.Join(dir, "new")))
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "new"), 0o700))
		if err := q.reserve(Use{Octets: 1}); !errors.Is(err, ErrFull) {
			t.Errorf("at once: %v, want %v", err, ErrFull)
		}
		<-time.After(recount)
		if err := q.reserve(Use{Octets: 1}); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

func TestCommitFailsWhereTheFolderIsGone(t *testing.T) {
	q, dir := openQuarantine(t, 1000)
	c := put(t, q, "a message")
	testkit.Must(t, os.Remove(filepath.Join(dir, "new")))
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

// TestUse holds that messages are counted, bounded by their number too, and seen when others remove them.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "aside")
		most := Use{1000, 2}
		q := testkit.Value(OpenQuarantine(dir, "mx.here.example", most, quiet()))(t)
		first, second := put(t, q, "12345"), put(t, q, "123")
		if got := q.Use(); got != (Use{8, 2}) || got.Share(most) != 1 || q.Most() != most {
			t.Errorf("two messages on their way: %+v", got)
		}
		if _, err := q.Begin(); !errors.Is(err, ErrFull) {
			t.Errorf("a third: %v, want %v", err, ErrFull)
		}
		if err := second.Withdraw(); err != nil {
			t.Error(err)
		}
		if err := first.Commit(); err != nil {
			t.Error(err)
		}
		if got := q.Use(); got != (Use{5, 1}) || got.Share(most) != 0.5 {
			t.Errorf("one left: %+v", got)
		}
		for _, text := range held(t, dir, "new") {
			if text != "12345" {
				t.Errorf("there is %q", text)
			}
		}
		testkit.Must(t, os.RemoveAll(filepath.Join(dir, "new")))
		if got := q.Use(); got != (Use{5, 1}) {
			t.Errorf("at once after it was removed: %+v", got)
		}
		time.Sleep(recount)
		if got := q.Use(); got != (Use{}) {
			t.Errorf("a minute after it was removed: %+v", got)
		}
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "new"), 0o700))
		testkit.Write(t, filepath.Join(dir, "new", "1.x"), "12")
		q.Recount()
		if got := q.Use(); got != (Use{2, 1}) {
			t.Errorf("after Recount: %+v", got)
		}
	})
}
