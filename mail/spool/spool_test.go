package spool_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/iotest"

	"blockd/internal/testkit"
	"blockd/mail/spool"
)

const block = 32 << 10

// TestCopyIsWhatWasWritten cuts texts of many lengths into random pieces, where all of
// it, some of it or none of it has room in memory.
func TestCopyIsWhatWasWritten(t *testing.T) {
	stores := map[string]*spool.Store{
		"in memory":             spool.New(spool.Settings{Dir: t.TempDir(), Memory: 64 << 20, PerCopy: 16 << 20}),
		"in a file behind four": spool.New(spool.Settings{Dir: t.TempDir(), Memory: 64 << 20, PerCopy: 4 * block}),
		"in a file at once":     spool.New(spool.Settings{Dir: t.TempDir(), Memory: 1}),
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for name, s := range stores {
		for _, size := range []int{0, 1, block - 1, block, block + 1, 4*block - 1, 4 * block, 4*block + 1, 300_000} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				text := make([]byte, size)
				for i := range text {
					text[i] = byte(rng.Uint32())
				}
				c := s.Copy(int64(size))
				defer c.Close()
				for rest := text; len(rest) > 0; {
					n := min(len(rest), 1+rng.IntN(2*block))
					testkit.Value(c.Write(rest[:n]))(t)
					rest = rest[n:]
				}
				testkit.Fails(c.Write([]byte{0}))(t, "an octet more", spool.ErrTooBig)
				for range 2 {
					if got, err := io.ReadAll(iotest.HalfReader(c.Reader())); err != nil || !bytes.Equal(got, text) {
						t.Errorf("read %d octets, %v; want the %d that were written", len(got), err, size)
					}
				}
			})
		}
		testkit.Equal(t, fmt.Sprintf("%s: octets are still lent", name), s.Used(), 0)
	}
}

// Whatever is written at a time, memory keeps to its bound, and nothing has a name.
func TestMemoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	const most = 10 * block
	s := spool.New(spool.Settings{Dir: dir, Memory: most, PerCopy: 3 * block})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c := s.Copy(1 << 30)
			defer c.Close()
			piece := bytes.Repeat([]byte{byte(i)}, block/2)
			for range 20 {
				testkit.Value(c.Write(piece))(t)
				if used := s.Used(); used > most+50*block { // each may be asking for one that it does not get
					t.Errorf("%d octets of memory, want at most %d", used, most)
				}
			}
			if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
				t.Errorf("there are %q", names)
			}
			if got, err := io.ReadAll(c.Reader()); err != nil || len(got) != 20*len(piece) || bytes.Count(got, piece[:1]) != len(got) {
				t.Errorf("read %d octets, %v", len(got), err)
			}
		})
	}
	all.Wait()
	testkit.Equal(t, "octets are still lent", s.Used(), 0)
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	s := spool.New(spool.Settings{Dir: filepath.Join(t.TempDir(), "none"), PerCopy: block})
	c := s.Copy(1 << 30)
	defer c.Close()
	testkit.Value(c.Write(make([]byte, block)))(t)
	testkit.Fails(c.Write([]byte{0}))(t, "Write", os.ErrNotExist)
	c.Close()
	testkit.Equal(t, "octets are still lent", s.Used(), 0)
}

func Example() {
	s := spool.New(spool.Settings{})
	c := s.Copy(10 << 20)
	defer c.Close()
	io.WriteString(c, "Subject: hello\r\n")
	io.Copy(os.Stdout, c.Reader())
	// Output: Subject: hello
}
