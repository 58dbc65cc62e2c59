package shared

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"blockd/index/live"
	"blockd/internal/durable"
	"blockd/internal/stamp"
	"blockd/lists"
)

// Lost is a change that the engine had acknowledged, and no longer has. Gone of its row says that it was a removal.
type Lost struct {
	Row live.Row  `json:"row"`
	At  time.Time `json:"at"` // when it was noticed
}

// losses are the changes that were lost, in a file to which lines are appended: an engine that was emptied has lost as many
// as there were entries. Memory has the place of each line alone.
type losses struct {
	mu   sync.Mutex
	path string
	at   map[[16]byte]int64 // where the line of an entry begins, by print
	from int64              // no loss that counts is before it
	size int64              // of the file
	all  int                // lines of the file
	seen fs.FileInfo        // of the file when it was read; nil = there was none
}

// lossLine is a line of the file. Settled says that the loss of what Row is about does not count any more.
type lossLine struct {
	Lost
	Settled bool `json:"settled,omitempty"`
}

// lossHead is what of a line says about what it is.
type lossHead struct {
	Row struct {
		Owner string `json:"owner"`
		Entry string `json:"entry"`
		Scope string `json:"scope"`
	} `json:"row"`
	Settled bool `json:"settled"`
}

// maxLossLine bounds a line: no row that a Set takes is nearly as long.
const maxLossLine = 64 << 10

// read reads the file, if it is another one than when it was read before: of a million losses it has 170 MB. What a crash has left of a last line is cut
// off with the next change.
func (l *losses) read(folder string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.seen
	l.path, l.seen = filepath.Join(folder, "lost"), nil
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		l.at, l.from, l.size, l.all = map[[16]byte]int64{}, 0, 0, 0
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if l.seen, err = f.Stat(); err != nil {
		return err
	}
	if stamp.Same(was, l.seen) {
		return nil
	}
	l.at, l.from, l.size, l.all = map[[16]byte]int64{}, 0, 0, 0
	in := bufio.NewReaderSize(f, maxLossLine)
	for {
		text, err := in.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		var head lossHead
		if err == nil {
			err = json.Unmarshal(text, &head)
		}
		if err != nil {
			l.seen = nil
			return fmt.Errorf("%s: octet %d: %w", l.path, l.size, err)
		}
		l.took(&live.Row{Owner: head.Row.Owner, Entry: head.Row.Entry, Scope: head.Row.Scope}, head.Settled, l.size)
		l.size += int64(len(text))
	}
}

// took notes the line at a place of the file. The caller holds mu.
func (l *losses) took(about *live.Row, settled bool, at int64) {
	l.all++
	if settled {
		delete(l.at, print(about))
	} else {
		l.at[print(about)] = at
	}
}

func (l *losses) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

// append writes lines, which are on the disk when it returns. The caller holds mu.
func (l *losses) append(lines []lossLine) error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var text bytes.Buffer
	starts := make([]int64, len(lines))
	out := json.NewEncoder(&text)
	for i := range lines {
		starts[i] = l.size + int64(text.Len())
		if err := out.Encode(&lines[i]); err != nil {
			return err
		}
	}
	err = f.Truncate(l.size)
	if err == nil {
		_, err = f.WriteAt(text.Bytes(), l.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && l.all == 0 {
		err = durable.SyncFolder(filepath.Dir(l.path))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	for i := range lines {
		l.took(&lines[i].Row, lines[i].Settled, starts[i])
	}
	l.size += int64(text.Len())
	return l.tidy()
}

// tidy removes the file when no loss is left, and writes it anew when most of its lines do not count any more. The caller holds mu.
func (l *losses) tidy() error {
	if len(l.at) == 0 {
		l.from, l.size, l.all = 0, 0, 0
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return durable.SyncFolder(filepath.Dir(l.path))
	}
	if l.all < 10_000 || l.all < 4*len(l.at) {
		return nil
	}
	at, size := map[[16]byte]int64{}, int64(0)
	err := durable.Replace(l.path, 0o600, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		err := l.each(len(l.at), func(lost Lost, text []byte) error {
			at[print(&lost.Row)] = size
			size += int64(len(text))
			_, err := out.Write(text)
			return err
		})
		return cmp.Or(err, out.Flush())
	})
	if err == nil {
		l.at, l.from, l.size, l.all = at, 0, size, len(at)
	}
	return err
}

// each gives the first losses, in the order in which they were noticed. The caller holds mu.
func (l *losses) each(most int, give func(l Lost, text []byte) error) error {
	if len(l.at) == 0 || most <= 0 {
		return nil
	}
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	in, first := bufio.NewReaderSize(io.NewSectionReader(f, l.from, l.size-l.from), maxLossLine), true
	for at := l.from; most > 0; {
		text, err := in.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		var line lossLine
		if err == nil {
			err = json.Unmarshal(text, &line)
		}
		if err != nil {
			return fmt.Errorf("%s: octet %d: %w", l.path, at, err)
		}
		if place, lost := l.at[print(&line.Row)]; lost && place == at {
			if first {
				l.from, first = at, false
			}
			if err := give(line.Lost, text); err != nil {
				return err
			}
			most--
		}
		at += int64(len(text))
	}
	return nil
}

// lose adds changes that were lost, before what they were about is taken out of force.
func (l *losses) lose(rows []live.Row) error {
	if len(rows) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, lines := time.Now().UTC().Truncate(time.Second), make([]lossLine, len(rows))
	for i := range rows {
		lines[i] = lossLine{Lost: Lost{Row: rows[i], At: now}}
	}
	return l.append(lines)
}

// settle forgets lost changes of entries that have changed since.
func (l *losses) settle(rows []live.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) == 0 {
		return nil
	}
	var lines []lossLine
	for i := range rows {
		r := &rows[i]
		if _, lost := l.at[print(r)]; lost {
			lines = append(lines, lossLine{Lost: Lost{Row: live.Row{Owner: r.Owner, Entry: r.Entry, Scope: r.Scope}}, Settled: true})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return l.append(lines)
}

// Lost returns the first changes that the engine has lost, and nobody has offered again or dismissed: at most so many. Status says how
// many there are.
func (n *Node) Lost(most int) (all []Lost, err error) {
	if n == nil {
		return nil, nil
	}
	n.lost.mu.Lock()
	defer n.lost.mu.Unlock()
	err = n.lost.each(most, func(l Lost, _ []byte) error {
		all = append(all, l)
		return nil
	})
	return all, err
}

// Dismiss forgets what the engine has lost and what it refuses, and returns how many changes it had lost.
func (n *Node) Dismiss() (int, error) {
	n.kept.mu.Lock()
	n.kept.Refused = nil
	err := n.kept.write()
	n.kept.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n.lost.mu.Lock()
	defer n.lost.mu.Unlock()
	count := len(n.lost.at)
	clear(n.lost.at)
	return count, n.lost.tidy()
}

// offered is how many lost changes are made at a time.
const offered = 500

// Offer makes lost changes once more, in the name of by, and returns how many were made. An entry that has changed since is left as
// it is. After an error, or when ctx ends, those that were not offered wait on.
func (n *Node) Offer(ctx context.Context, by string) (made int, err error) {
	for ctx.Err() == nil {
		some, err := n.Lost(offered)
		if err != nil || len(some) == 0 {
			return made, err
		}
		count, err := n.offer(ctx, some, by)
		made += count
		if err != nil {
			return made, err
		}
		rows := make([]live.Row, len(some))
		for i := range some {
			rows[i] = some[i].Row
		}
		if err := n.lost.settle(rows); err != nil {
			return made, err
		}
	}
	return made, ctx.Err()
}

// offer offers some changes together, or, if they cannot be made together, one by one.
func (n *Node) offer(ctx context.Context, some []Lost, by string) (made int, err error) {
	var changes []live.Change
	for i := range some {
		r := &some[i].Row
		switch {
		case r.Scope == ScopeToken:
			was, err := n.RevokeToken(ctx, r.Entry, by)
			if err != nil {
				return made, err
			}
			if was {
				made++
			}
			continue
		case r.Expires != 0 && r.Expires <= n.o.Set.Now().Unix():
			continue
		}
		c := live.Change{Owner: r.Owner, Entry: r.Entry, Remove: r.Gone != 0, Why: r.Why, Author: r.By, Force: true, NeedsProof: r.Proof && r.Gone == 0}
		if r.Expires != 0 {
			c.Expires = time.Unix(r.Expires, 0)
		}
		rev := uint64(0)
		if here := n.o.Set.Get(r); here != nil {
			rev = here.Rev
		}
		c.IfRev = &rev
		if c.Remove {
			c.Why, c.Author, c.Expires = "offered again: the store had lost it", by, time.Time{}
		} else if c.Action, err = lists.ParseAction(r.Action); err != nil {
			return made, err
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return made, nil
	}
	outcomes, err := n.o.Set.Apply(changes...)
	if len(changes) > 1 && (errors.As(err, new(*live.RevisionError)) || errors.Is(err, live.ErrOwnerFull) || errors.Is(err, live.ErrInvalid)) {
		for _, l := range some {
			if l.Row.Scope == ScopeToken {
				continue
			}
			one, err := n.offer(ctx, []Lost{l}, by)
			if made += one; err != nil {
				return made, err
			}
		}
		return made, nil
	}
	switch {
	case errors.As(err, new(*live.RevisionError)):
		return made, nil // it has changed since
	case errors.Is(err, live.ErrOwnerFull) || errors.Is(err, live.ErrInvalid):
		n.o.Log.Warn("a lost change of a live entry can no longer be made", slog.String("entry", some[0].Row.String()), slog.Any("error", err))
		return made, nil
	case err != nil:
		return made, err
	}
	for _, o := range outcomes {
		if o.Changed() {
			made++
		}
	}
	return made, nil
}
