// Package spool keeps copies of messages for as long as it takes to decide about
// them. However many there are, they take a bounded part of memory; the rest is in
// files without a name, of which nothing is left when a Copy is closed or the process
// ends.
package spool

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// block is the unit of memory. A piece of message data is as large, and most
// messages are not larger: a copy of 4 KiB wastes 28 KiB for some milliseconds.
const block = 32 << 10

// The defaults of Settings.
const (
	defaultMemory  = 32 << 20
	defaultPerCopy = 1 << 20
)

// Settings of a Store. A zero field takes the default named beside it.
type Settings struct {
	Dir     string // of the files; the system's for temporary ones
	Memory  int64  // 32 MiB: of all copies together, in octets
	PerCopy int64  // 1 MiB: of one; a larger one is in a file, the whole of it
}

// Store lends room to Copies. It is safe for concurrent use; Settings do not change
// after New.
type Store struct {
	settings Settings
	used     atomic.Int64 // octets of memory, lent
	blocks   sync.Pool    // of *[block]byte
}

// New returns a Store.
func New(s Settings) *Store {
	s.Dir = cmp.Or(s.Dir, os.TempDir())
	s.Memory = cmp.Or(s.Memory, defaultMemory)
	s.PerCopy = cmp.Or(s.PerCopy, defaultPerCopy)
	return &Store{settings: s, blocks: sync.Pool{New: func() any { return new([block]byte) }}}
}

// Used is the memory that is lent now, in octets.
func (s *Store) Used() int64 { return s.used.Load() }

// borrow returns a block, nil if there is none.
func (s *Store) borrow() *[block]byte {
	if s.used.Add(block) > s.settings.Memory {
		s.used.Add(-block)
		return nil
	}
	return s.blocks.Get().(*[block]byte)
}

func (s *Store) giveBack(b *[block]byte) {
	s.blocks.Put(b)
	s.used.Add(-block)
}

// ErrTooBig is the error of a Write beyond the bound of its Copy.
var ErrTooBig = errors.New("larger than a copy may be")

// Copy is one message's. It is for one goroutine. After an error of Write it is to
// be closed.
type Copy struct {
	store  *Store
	most   int64
	size   int64
	blocks []*[block]byte // all of it, unless there is a file
	file   *os.File
}

// Copy begins a copy of at most most octets. It takes nothing before the first Write.
func (s *Store) Copy(most int64) *Copy { return &Copy{store: s, most: most} }

// Size is how much was written, in octets.
func (c *Copy) Size() int64 { return c.size }

// Write adds p. The error is ErrTooBig, before anything of p is written, or that of the file.
func (c *Copy) Write(p []byte) (int, error) {
	if int64(len(p)) > c.most-c.size {
		return 0, ErrTooBig
	}
	written := 0
	for c.file == nil && written < len(p) {
		at := int(c.size % block)
		if at == 0 && !c.grow() {
			if err := c.spill(); err != nil {
				return written, err
			}
			break
		}
		n := copy(c.blocks[len(c.blocks)-1][at:], p[written:])
		written += n
		c.size += int64(n)
	}
	if written == len(p) {
		return written, nil
	}
	n, err := c.file.Write(p[written:])
	c.size += int64(n)
	if err != nil {
		err = fmt.Errorf("copy of a message: %w", err)
	}
	return written + n, err
}

// grow adds a block, if there may be one more.
func (c *Copy) grow() bool {
	if c.size+block > c.store.settings.PerCopy {
		return false
	}
	b := c.store.borrow()
	if b == nil {
		return false
	}
	c.blocks = append(c.blocks, b)
	return true
}

// spill moves what is in memory to a file: those who come next need the room.
func (c *Copy) spill() error {
	f, err := nameless(c.store.settings.Dir)
	if err != nil {
		return fmt.Errorf("copy of a message: %w", err)
	}
	c.file = f
	if _, err := io.Copy(f, c.memory()); err != nil {
		return fmt.Errorf("copy of a message: %w", err)
	}
	c.release()
	return nil
}

func (c *Copy) release() {
	for _, b := range c.blocks {
		c.store.giveBack(b)
	}
	c.blocks = nil
}

// Reader returns a reader of the whole copy from its start. It holds until the next
// Write or Close.
func (c *Copy) Reader() io.Reader {
	if c.file != nil {
		return io.NewSectionReader(c.file, 0, c.size)
	}
	return c.memory()
}

func (c *Copy) memory() io.Reader {
	parts := make([]io.Reader, len(c.blocks))
	for i, b := range c.blocks {
		parts[i] = bytes.NewReader(b[:min(block, c.size-int64(i)*block)])
	}
	return io.MultiReader(parts...)
}

// Close gives the room back. A second time it does nothing.
func (c *Copy) Close() {
	c.release()
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
	c.size, c.most = 0, 0
}

// nameless opens a file that has no name, or loses it at once where none such can be made.
func nameless(dir string) (*os.File, error) {
	if f, err := withoutName(dir); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, "message-*.tmp")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
