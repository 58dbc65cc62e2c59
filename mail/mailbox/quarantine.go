package mailbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Quarantine is a Maildir of bounded size, for mail that is set aside instead of
// delivered. Somebody looks through it and deletes; nothing here ever does. It is
// safe for concurrent use.
type Quarantine struct {
	maildir *maildir
	most    Use

	mu      sync.Mutex
	used    Use       // whole files and those being written
	counted time.Time // when used was last taken from the disk
}

// Use is how much is in a Quarantine, or may be: the sum of all files in octets, and how many they are.
type Use struct {
	Octets   int64
	Messages int
}

// Share is how full a Quarantine is, from 0 to 1 and above, by what is fuller.
func (u Use) Share(most Use) float64 {
	return max(float64(u.Octets)/float64(max(most.Octets, 1)), float64(u.Messages)/float64(max(most.Messages, 1)))
}

// recount is how long a full Quarantine goes by the last count: to look at a
// hundred thousand files takes half a second, which mail must not ask for each
// time.
const recount = time.Minute

// ErrFull reports a Quarantine that has no room for more. Room is made by deleting
// or moving files.
var ErrFull = errors.New("quarantine is full")

// OpenQuarantine makes the folders and proves that they can be written. hostname
// stands in file names; most bounds all messages together.
func OpenQuarantine(dir, hostname string, most Use, log *slog.Logger) (*Quarantine, error) {
	m, err := openMaildir(dir, hostname, log)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	q := &Quarantine{maildir: m, most: most}
	q.count()
	return q, nil
}

// count takes used from the disk. The caller holds mu.
func (q *Quarantine) count() { q.used, q.counted = q.onDisk(), time.Now() }

// onDisk is how much is there. What cannot be read counts nothing.
func (q *Quarantine) onDisk() (u Use) {
	for _, folder := range [...]string{"tmp", "new", "cur"} {
		entries, err := os.ReadDir(filepath.Join(q.maildir.dir, folder))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				u.Octets += info.Size()
				u.Messages++
			}
		}
	}
	return u
}

// Use is how much is in it. What others have added or removed counts from a minute later on.
func (q *Quarantine) Use() Use {
	q.mu.Lock()
	before, due := q.used, time.Since(q.counted) >= recount
	if due {
		q.counted = time.Now()
	}
	q.mu.Unlock()
	if !due {
		return before
	}
	there := q.onDisk() // while mail goes on: what came meanwhile may count twice until the next time
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used = Use{there.Octets + q.used.Octets - before.Octets, there.Messages + q.used.Messages - before.Messages}
	return q.used
}

// Recount has the next Use look at the disk: something was removed.
func (q *Quarantine) Recount() {
	q.mu.Lock()
	q.counted = time.Time{}
	q.mu.Unlock()
}

// Most is how much may be in it.
func (q *Quarantine) Most() Use { return q.most }

// reserve takes some of what is left.
func (q *Quarantine) reserve(u Use) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := func() bool {
		return q.used.Octets+u.Octets > q.most.Octets || q.used.Messages+u.Messages > q.most.Messages
	}
	if full() && time.Since(q.counted) >= recount {
		q.count() // somebody may have deleted
	}
	if full() {
		return ErrFull
	}
	q.used.Octets += u.Octets
	q.used.Messages += u.Messages
	return nil
}

// giveBack undoes reserve.
func (q *Quarantine) giveBack(u Use) {
	q.mu.Lock()
	q.used.Octets -= u.Octets
	q.used.Messages -= u.Messages
	q.mu.Unlock()
}

// Copy is one message on its way into a Quarantine: Begin, Write, Commit. Withdraw
// undoes it, at any time and also after Commit. It is for one goroutine.
type Copy struct {
	quarantine *Quarantine
	delivery   *delivery
	out        *bufio.Writer
	size       int64
	final      string // path in new/; "" before Commit
}

// Begin starts a copy. Its size counts from the first Write on.
func (q *Quarantine) Begin() (*Copy, error) {
	if err := q.reserve(Use{Messages: 1}); err != nil {
		return nil, err
	}
	d, err := q.maildir.begin()
	if err != nil {
		q.giveBack(Use{Messages: 1})
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	return &Copy{quarantine: q, delivery: d, out: bufio.NewWriterSize(d.file, 16<<10)}, nil
}

// Write adds to the message. An error is the disk's, or ErrFull.
func (c *Copy) Write(p []byte) (int, error) {
	if err := c.quarantine.reserve(Use{Octets: int64(len(p))}); err != nil {
		return 0, err
	}
	c.size += int64(len(p))
	n, err := c.out.Write(p)
	if err != nil {
		err = fmt.Errorf("quarantine: %w", err)
	}
	return n, err
}

// Commit brings the message to the disk and into new/. Once it has returned nil, a
// crash does not undo it.
func (c *Copy) Commit() error {
	err := c.out.Flush()
	if err == nil {
		err = c.delivery.sync()
	}
	final := filepath.Join(c.quarantine.maildir.dir, "new", filepath.Base(c.delivery.path))
	if err == nil {
		err = c.delivery.commit()
	}
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	c.final = final
	return nil
}

// ID names the message, as its file's name begins.
func (c *Copy) ID() string { return c.delivery.id }

// Withdraw removes the message, whether or not it was committed. A second call
// does nothing. A file that somebody has moved meanwhile stays.
func (c *Copy) Withdraw() error {
	if c.delivery.path == "" && c.final == "" {
		return nil
	}
	c.delivery.abort()
	var err error
	if c.final != "" {
		err = os.Remove(c.final)
		c.final = ""
	}
	c.quarantine.giveBack(Use{c.size, 1})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("quarantine: %w", err)
	}
	return nil
}
