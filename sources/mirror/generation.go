package mirror

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"blockd/internal/durable"
	"blockd/lists"
)

// bufferSize is of each file that is read or written: 4 MiB for the 64 files of a full read.
const bufferSize = 64 << 10

// flush puts the changes that wait into the files that they touch. The other files stay what they are.
func (m *Mirror) flush() error {
	if len(m.pending.lines) == 0 {
		return nil
	}
	state := m.state
	state.Mark = m.mark
	g := m.begin(state)
	defer g.discard()
	if err := g.make(); err != nil {
		return err
	}
	for n, c := range m.pending.byFile() {
		var err error
		if c == nil {
			err = g.link(n)
		} else {
			err = g.rewrite(n, c)
		}
		if err != nil {
			return err
		}
	}
	return g.publish()
}

// generation is a generation that is being made.
type generation struct {
	*Mirror
	number  uint64
	folder  string
	state   State
	changed bool // a file has other entries
	public  bool
}

func (m *Mirror) begin(s State) *generation {
	return &generation{Mirror: m, number: m.number + 1, folder: filepath.Join(m.folder, name(m.number+1)), state: s}
}

// make makes the folder.
func (g *generation) make() error {
	if err := g.step("make the folder"); err != nil {
		return err
	}
	if err := os.RemoveAll(g.folder); err != nil { // of an attempt that failed
		return err
	}
	return durable.MakeFolder(g.folder)
}

// discard removes a generation that did not come into force.
func (g *generation) discard() {
	if !g.public {
		os.RemoveAll(g.folder)
	}
}

// fileName is the name of a file of entries.
func fileName(n int) string { return fmt.Sprintf("%02x.ent", n) }

func (g *generation) path(n int) string { return filepath.Join(g.folder, fileName(n)) }

// target is what the link at path leads to if this generation writes the file.
func (g *generation) target(n int) string {
	return filepath.Join("..", filesName, fileOfGeneration(n, g.number))
}

// fileOfGeneration is the name of the file n that a generation has written.
func fileOfGeneration(n int, number uint64) string { return fmt.Sprintf("%02x-%010d", n, number) }

// isFile reports whether a name is one of fileOfGeneration.
func isFile(name string) bool {
	var n int
	var number uint64
	_, err := fmt.Sscanf(name, "%02x-%d", &n, &number)
	return err == nil && name == fileOfGeneration(n, number)
}

// old is the path of a file of the generation in force.
func (g *generation) old(n int) string {
	return filepath.Join(g.Mirror.folder, name(g.Mirror.number), fileName(n))
}

// output is a file that is being written.
type output struct {
	f *os.File
	w *bufio.Writer
}

func (g *generation) create(n int) (*output, error) {
	if err := g.step("write " + fileName(n)); err != nil {
		return nil, err
	}
	path := filepath.Join(g.folder, g.target(n))
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // of an attempt that failed
		return nil, err
	}
	if err := os.Symlink(g.target(n), g.path(n)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, err
	}
	o := &output{f, bufio.NewWriterSize(f, bufferSize)}
	o.w.WriteString(lists.EntriesHead + "\n")
	return o, nil
}

// close ends a file, which is safe on the disk then.
func (o *output) close() error {
	return errors.Join(o.w.Flush(), o.f.Sync(), o.f.Close())
}

// closeAll ends files, all at once: the disk takes one sync of many in the time of a few.
func closeAll(all []*output) error {
	var group errgroup.Group
	for _, o := range all {
		if o != nil {
			group.Go(o.close)
		}
	}
	return group.Wait()
}

// keepEqual puts the old files in place of new ones that hold the same, and what differs in the others into differ,
// unless that is nil.
func (g *generation) keepEqual(ctx context.Context, differ map[string]bool) error {
	if g.Mirror.number == 0 {
		g.changed = true
		return nil
	}
	for n := range files {
		same, err := sameContent(g.path(n), g.old(n))
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !same {
			g.changed = true
			if differ != nil {
				compare(g.old(n), g.path(n), differ)
			}
			continue
		}
		if err := errors.Join(os.Remove(filepath.Join(g.folder, g.target(n))), os.Remove(g.path(n)), g.link(n)); err != nil {
			return err
		}
	}
	return nil
}

// maxDiffer bounds what compare notes.
const maxDiffer = 100_000

// compare notes the keys and scopes of the lines that are in one of two files of entries. Of a damaged file it notes
// what it can read.
func compare(a, b string, differ map[string]bool) {
	olds, stopOlds := iter.Pull(linesOf(a))
	defer stopOlds()
	news, stopNews := iter.Pull(linesOf(b))
	defer stopNews()
	old, hasOld := olds()
	fresh, hasFresh := news()
	for (hasOld || hasFresh) && len(differ) < maxDiffer {
		order := bytes.Compare(old, fresh)
		switch {
		case hasOld && hasFresh && order == 0:
			old, hasOld = olds()
			fresh, hasFresh = news()
		case hasOld && (!hasFresh || order < 0):
			differ[keyScope(old)] = true
			old, hasOld = olds()
		default:
			differ[keyScope(fresh)] = true
			fresh, hasFresh = news()
		}
	}
}

// linesOf are the lines of a file of entries, each until the next one.
func linesOf(path string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		eachLine(path, func(line []byte) error {
			if !yield(line) {
				return io.EOF
			}
			return nil
		})
	}
}

// sameContent compares two files. One that is not there is another one.
func sameContent(a, b string) (bool, error) {
	f, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer f.Close()
	o, err := os.Open(b)
	if err != nil {
		return false, nil
	}
	defer o.Close()
	var one, other [bufferSize]byte
	for {
		n, errA := io.ReadFull(f, one[:])
		m, errB := io.ReadFull(o, other[:])
		switch {
		case !bytes.Equal(one[:n], other[:m]):
			return false, nil
		case errA != nil || errB != nil:
			return isEnd(errA) && isEnd(errB), nil
		}
	}
}

func isEnd(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

// link takes a file of the generation in force over.
func (g *generation) link(n int) error {
	if err := g.step("link " + fileName(n)); err != nil {
		return err
	}
	target, err := os.Readlink(g.old(n))
	if err != nil {
		return err
	}
	return os.Symlink(target, g.path(n))
}

// rewrite writes a file of the generation in force with what has changed in it.
func (g *generation) rewrite(n int, c *change) error {
	o, err := g.create(n)
	if err != nil {
		return err
	}
	g.changed = true
	g.state.Lines[n] = 0
	add := func(line []byte) error {
		g.state.Lines[n]++
		_, err := o.w.Write(line)
		return err
	}
	err = eachLine(g.old(n), func(line []byte) error {
		for len(c.come) > 0 && c.come[0] < string(line) {
			if err := add([]byte(c.come[0])); err != nil {
				return err
			}
			c.come = c.come[1:]
		}
		if c.gone[keyScope(line)] {
			return nil
		}
		return add(line)
	})
	for _, line := range c.come {
		if err == nil {
			err = add([]byte(line))
		}
	}
	return errors.Join(err, o.close())
}

// errDamaged reports a file that this package has not written so.
var errDamaged = errors.New("the file is damaged; a full read writes it anew")

// eachLine gives the lines of a file of entries to use, each with its end. They are whole and in order.
func eachLine(path string, use func([]byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, bufferSize)
	var last []byte
	for number := 0; ; number++ {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 && number > 0 {
			return nil
		}
		id := lists.EntryLineID(line)
		switch {
		case err != nil && err != io.EOF && err != bufio.ErrBufferFull:
			return err
		case err != nil, number == 0 && string(line) != lists.EntriesHead+"\n", number > 0 && bytes.Compare(id, last) <= 0:
			return fmt.Errorf("%s:%d: %w", path, number+1, errDamaged)
		case number == 0:
			continue
		}
		last = append(last[:0], id...)
		if err := use(line); err != nil {
			return err
		}
	}
}

// publish makes the generation the one in force: first everything that belongs to it is safe on the disk, then one
// rename of the link says so. What is in memory follows.
func (g *generation) publish() error {
	if err := g.step("make the journal"); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(g.folder, journalName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	if err := g.replace(f); err != nil {
		if !g.public {
			f.Close()
			return err
		}
		g.adopt(f)
		return err
	}
	g.adopt(f)
	return nil
}

// replace writes the state and renames the link.
func (g *generation) replace(journal *os.File) error {
	if err := errors.Join(g.step("write the state"), journal.Sync(), durable.SyncFolder(filepath.Join(g.Mirror.folder, filesName))); err != nil {
		return err
	}
	if err := g.state.write(g.folder); err != nil { // which syncs the folder too
		return err
	}
	if err := errors.Join(g.step("sync the folder"), durable.SyncFolder(g.Mirror.folder)); err != nil {
		return err
	}
	link := filepath.Join(g.Mirror.folder, currentName)
	fresh := filepath.Join(g.Mirror.folder, freshName)
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := errors.Join(g.step("make the link"), os.Symlink(name(g.number), fresh)); err != nil {
		return err
	}
	if err := g.step("rename the link"); err != nil {
		return err
	}
	if err := os.Rename(fresh, link); err != nil {
		return err
	}
	g.public = true
	return errors.Join(g.step("sync the link"), durable.SyncFolder(g.Mirror.folder))
}

// adopt makes the generation the Mirror's, and removes the one before.
func (g *generation) adopt(journal *os.File) {
	m := g.Mirror
	former := m.number
	if m.journal.f != nil {
		m.journal.f.Close()
	}
	m.number, m.state, m.mark, m.damaged = g.number, g.state, g.state.Mark, false
	m.journal.f, m.journal.size, m.pending = journal, 0, pending{}
	if g.step("remove what is old") == nil {
		m.sweep(former) // what stays goes at the next start
	}
}
