package mailbox

import (
	"bytes"
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
	testkit.Value(c.Write([]byte(text)))(t)
	return c
}

func TestCopyIsInNewAfterCommitOnly(t *testing.T) {
	q, dir := openQuarantine(t, 1000)
	c := put(t, q, "a message")
	testkit.EqualSlices(t, "before Commit new/ holds", held(t, dir, "new"), nil)
	testkit.Must(t, c.Commit())
	if got := held(t, dir, "new"); len(got) != 1 || got[0] != "a message" {
		t.Errorf("after Commit new/ holds %q", got)
	}
	testkit.EqualSlices(t, "after Commit tmp/ holds", held(t, dir, "tmp"), nil)
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
				testkit.IsError(t, "Withdraw", c.Withdraw(), nil)
			}
			if got := append(held(t, dir, "new"), held(t, dir, "tmp")...); len(got) != 0 {
				t.Errorf("after Withdraw, committed %v: %q", committed, got)
			}
		}
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	q, dir := openQuarantine(t, 100)
	c := testkit.Value(q.Begin())(t)
	testkit.Fails(c.Write(bytes.Repeat([]byte("x"), 101)))(t, "Write beyond the bound", ErrFull)
	testkit.Should(t, c.Withdraw())
	testkit.Must(t, put(t, q, string(bytes.Repeat([]byte("x"), 100))).Commit())
	again := testkit.Value(OpenQuarantine(dir, "mx.here.example", Use{100, 1000}, quiet()))(t)
	c = testkit.Value(again.Begin())(t)
	defer c.Withdraw()
	testkit.Fails(c.Write([]byte("x")))(t, "Write into what an earlier process has filled", ErrFull)
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
		testkit.IsError(t, "at once", q.reserve(Use{Octets: 1}), ErrFull)
		<-time.After(recount)
		testkit.IsError(t, "a minute later", q.reserve(Use{Octets: 1}), nil)
	})
}

func TestCommitFailsWhereTheFolderIsGone(t *testing.T) {
	q, dir := openQuarantine(t, 1000)
	c := put(t, q, "a message")
	testkit.Must(t, os.Remove(filepath.Join(dir, "new")))
	if err := c.Commit(); err == nil {
		t.Error("Commit into a folder that is gone: no error")
	}
	testkit.Should(t, c.Withdraw())
	testkit.EqualSlices(t, "tmp/ holds", held(t, dir, "tmp"), nil)
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
		testkit.Fails(q.Begin())(t, "a third", ErrFull)
		testkit.Should(t, second.Withdraw())
		testkit.Should(t, first.Commit())
		if got := q.Use(); got != (Use{5, 1}) || got.Share(most) != 0.5 {
			t.Errorf("one left: %+v", got)
		}
		for _, text := range held(t, dir, "new") {
			testkit.Equal(t, "there", text, "12345")
		}
		testkit.Must(t, os.RemoveAll(filepath.Join(dir, "new")))
		testkit.Equal(t, "at once after it was removed", q.Use(), Use{5, 1})
		time.Sleep(recount)
		testkit.Equal(t, "a minute after it was removed", q.Use(), Use{})
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "new"), 0o700))
		testkit.Write(t, filepath.Join(dir, "new", "1.x"), "12")
		q.Recount()
		testkit.Equal(t, "after Recount", q.Use(), Use{2, 1})
	})
}
