package kept

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/segment"
	"blockd/internal/durable"
	"blockd/internal/term"
	"blockd/lists"
)

const (
	generationsName = "generations"
	pinsName        = "pins"
	maxState        = 256 << 20
)

// ErrTorn reports a file of the folder that is not as it was written.
var ErrTorn = errors.New("the file is torn or of another kind")

// Generations are those that are known, the oldest first. Without a folder there are none.
func (s *Store) Generations() (all []Generation, err error) {
	err = readLines(filepath.Join(s.Folder, generationsName), func(line []byte) error {
		var g Generation
		if err := json.Unmarshal(line, &g); err != nil {
			return err
		}
		all = append(all, g)
		return nil
	})
	return all, err
}

func (s *Store) writeGenerations(all []Generation) error {
	return writeLines(filepath.Join(s.Folder, generationsName), len(all), func(i int) any { return all[i] })
}

// Record notes a generation that has begun to serve, with what each list has in it, and claims that of the cache. One with the
// contents of the last one is that under another name. A damaged file is begun anew. The errors cost the way back to what they name.
func (s *Store) Record(cache string, g Generation) (errs []error) {
	s.state.Lock()
	defer s.state.Unlock()
	for _, l := range g.Lists {
		for _, f := range l.Files {
			if err := s.Claim(cache, f.Segment); err != nil {
				errs = append(errs, fmt.Errorf("list %s: what %s held is not kept: %w", l.Name, f.Path, err))
			}
		}
	}
	if err := s.record(g); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (s *Store) record(g Generation) error {
	if err := cmp.Or(durable.NoTrap(s.Folder), os.MkdirAll(s.Folder, 0o700)); err != nil {
		return err
	}
	all, damage := s.Generations()
	if damage != nil && !errors.Is(damage, ErrTorn) {
		return damage
	}
	if n := len(all); n > 0 && all[n-1].sameAs(&g) {
		last := &all[n-1]
		if last.ID == g.ID || slices.Contains(last.Also, g.ID) {
			return nil
		}
		const mostNames = 20 // a generation that is compiled anew each hour stays one
		last.Also = append(last.Also, g.ID)
		last.Also = last.Also[max(0, len(last.Also)-mostNames):]
	} else {
		if n > 0 && g.Time.Before(all[n-1].Time) { // the clock was set back: the order is what counts
			g.Time = all[n-1].Time
		}
		for i := range g.Lists {
			g.Lists[i].Added, g.Lists[i].Removed = known(all, &g, i)
		}
		all = append(all, g)
	}
	if err := s.writeGenerations(all); err != nil {
		return err
	}
	if damage != nil {
		return fmt.Errorf("what served before is not known any more: %w", damage)
	}
	return nil
}

func (g *Generation) sameAs(o *Generation) bool {
	return slices.EqualFunc(g.Lists, o.Lists, func(a, b State) bool { return a.Name == b.Name && a.Files.Equal(b.Files) })
}

// known are the counts of a list that need no reading: it is as it was, or new.
func known(all []Generation, g *Generation, i int) (added, removed *int) {
	none, now := 0, &g.Lists[i]
	if now.unkept() {
		return nil, nil
	}
	if len(all) == 0 {
		return &now.Entries, &none
	}
	switch was, ok := all[len(all)-1].Of(now.Name); {
	case !ok:
		return &now.Entries, &none
	case was.Equal(now.Files):
		return &none, &none
	}
	return nil, nil
}

// Pin is a list that does not follow its file: it has this content until an operator adopts another one.
type Pin struct {
	List    string    `json:"list"`
	Content Content   `json:"content"` // none and Waits: the list has nothing yet
	Waits   bool      `json:"waits,omitempty"`
	Served  time.Time `json:"served"` // when the content began to serve
	Since   time.Time `json:"since"`  // of the pin
	How     string    `json:"how"`    // Rollback, Review or Recovered
	By      string    `json:"by,omitempty"`
	Why     string    `json:"why,omitempty"`

	Proposal *Proposal `json:"proposal,omitempty"` // what the list's files hold, if that is something else
}

// Why lists are pinned.
const (
	Rollback  = "rollback"  // an operator has taken it back
	Review    = "review"    // adopt = "review": each content is let in by an operator
	Recovered = "recovered" // the pins could not be read: whatever served stays
)

// Proposal is a content that waits to be adopted.
type Proposal struct {
	Content  Content   `json:"content"`
	Since    time.Time `json:"since"`
	First    time.Time `json:"first,omitzero"` // of those whose place it has taken, Since of the first
	Added    *int      `json:"added"`          // against what serves; nil: not counted
	Removed  *int      `json:"removed"`
	Findings []string  `json:"findings,omitempty"` // what speaks against it, a line each
	Weighed  *Weighed  `json:"weighed,omitempty"`  // nil: not yet
}

// Pins are the lists that do not follow their files, by their names. stamp changes with the file.
func (s *Store) Pins() (all []Pin, err error) {
	err = readLines(filepath.Join(s.Folder, pinsName), func(line []byte) error {
		var p Pin
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		if p.List == "" || slices.ContainsFunc(p.Content, func(f File) bool { return !isSegment(f.Segment) }) {
			return fmt.Errorf("list %q", p.List)
		}
		all = append(all, p)
		return nil
	})
	return all, err
}

// PinsStamp is what the system says of the file of pins; nil: there is none.
func (s *Store) PinsStamp() os.FileInfo {
	info, err := os.Stat(filepath.Join(s.Folder, pinsName))
	if err != nil {
		return nil
	}
	return info
}

// SetAside gives the damaged file of pins another name.
func (s *Store) SetAside() error {
	path := filepath.Join(s.Folder, pinsName)
	return os.Rename(path, path+".damaged")
}

// ErrBusy reports that another process changes the pins.
var ErrBusy = errors.New("another process changes which lists are held")

// ChangePins writes what change makes of the pins, by any process. With an error of change nothing is written.
func (s *Store) ChangePins(change func([]Pin) ([]Pin, error)) error {
	return s.locked(func(all []Pin) error {
		now, err := change(slices.Clone(all))
		if err != nil {
			return err
		}
		slices.SortFunc(now, func(a, b Pin) int { return strings.Compare(a.List, b.List) })
		return writeLines(filepath.Join(s.Folder, pinsName), len(now), func(i int) any { return now[i] })
	})
}

// locked keeps the pins as they are while use runs.
func (s *Store) locked(use func([]Pin) error) error {
	s.state.Lock()
	defer s.state.Unlock()
	if err := cmp.Or(durable.NoTrap(s.Folder), os.MkdirAll(s.Folder, 0o700)); err != nil {
		return err
	}
	lock, err := durable.WaitLock(filepath.Join(s.Folder, pinsName+".lock"), 10*time.Second, ErrBusy)
	if err != nil {
		return err
	}
	defer lock.Close()
	all, err := s.Pins()
	if err != nil {
		return err
	}
	return use(all)
}

// sumLine is the last line: the sum of all before it.
type sumLine struct {
	Sum string `json:"sum"`
}

func writeLines(path string, n int, line func(i int) any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for i := range n {
		if err := enc.Encode(line(i)); err != nil {
			return err
		}
	}
	if err := enc.Encode(sumLine{checksum(text.Bytes())}); err != nil {
		return err
	}
	return durable.WriteFile(path, text.Bytes(), 0o600)
}

func readLines(path string, use func(line []byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return err
	}
	at := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	var end sumLine
	if err := json.Unmarshal(text[at:], &end); err != nil || end.Sum != checksum(text[:at]) {
		return fmt.Errorf("%s: %w", path, ErrTorn)
	}
	for line := range bytes.Lines(text[:at]) {
		if err := use(line); err != nil {
			return fmt.Errorf("%s: %w: %w", path, ErrTorn, err)
		}
	}
	return nil
}

func checksum(text []byte) string { return fmt.Sprintf("%016x", xxh3.Hash(text)) }

// Diff tells what differs between two contents of a list, the oldest entries first: what is gone, then what has come. It
// makes them whole if need be, which takes room.
func (s *Store) Diff(ctx context.Context, from, to Content, yield func(Entry) error) error {
	was, is, err := s.openBoth(ctx, from, to)
	if err != nil {
		return err
	}
	defer closeAll(was)
	defer closeAll(is)
	return segment.Diff(ctx, was, is, func(came bool, d segment.Said, key string) error {
		files := from
		if came {
			files = to
		}
		return yield(entryOf(came, d, key, files[d.Row].Path))
	})
}

// openBoth opens contents, of which other work may then change the forms.
func (s *Store) openBoth(ctx context.Context, from, to Content) (was, is []*segment.Segment, err error) {
	defer s.urgent()()
	if err := s.unpackAll(ctx, from, to); err != nil {
		return nil, nil, err
	}
	if was, err = s.open(from); err != nil {
		return nil, nil, err
	}
	if is, err = s.open(to); err != nil {
		closeAll(was)
		return nil, nil, err
	}
	return was, is, nil
}

// Unpack makes contents whole, checked, and on disk. Those of no pin may be packed again at any time.
func (s *Store) Unpack(ctx context.Context, contents ...Content) error {
	defer s.urgent()()
	return s.unpackAll(ctx, contents...)
}

func (s *Store) unpackAll(ctx context.Context, contents ...Content) error {
	var j Job
	for _, c := range contents {
		j.Unpack = append(j.Unpack, c...)
	}
	if len(j.Unpack) == 0 {
		return nil
	}
	_, err := s.run(ctx, j)
	return err
}

// Count counts what differs between two contents.
func (s *Store) Count(ctx context.Context, from, to Content) (Count, error) {
	defer s.urgent()()
	r, err := s.run(ctx, Job{Unpack: append(slices.Clone(from), to...), Count: []Pair{{from, to}}})
	if err != nil {
		return Count{}, err
	}
	if len(r.Counts) != 1 {
		return Count{}, errors.New("nothing was counted")
	}
	if c := r.Counts[0]; c.Failed != "" {
		return c, errors.New(c.Failed)
	}
	return r.Counts[0], nil
}

// Pin makes a content one that a list is pinned to: whole and on disk, before the pins say so. change gets the pins as they are.
func (s *Store) Pin(ctx context.Context, c Content, change func([]Pin) ([]Pin, error)) error {
	defer s.urgent()()
	if err := s.unpackAll(ctx, c); err != nil {
		return err
	}
	return s.ChangePins(change)
}

// Summary is what was found in a file when it was read.
func (s *Store) Summary(f File) (lists.Summary, error) {
	if err := s.Unpack(context.Background(), Content{f}); err != nil {
		return lists.Summary{}, err
	}
	seg, err := segment.OpenFile(s.Whole(f))
	if err != nil {
		return lists.Summary{}, err
	}
	defer seg.Close()
	return seg.Summary, nil
}

// Against is all that speaks against it, a line each.
func (p *Proposal) Against() []string {
	return append(append([]string{}, p.Findings...), p.Weighed.Against()...)
}

// Waiting is since when something has waited, this content or one whose place it has taken.
func (p *Proposal) Waiting() time.Time {
	if p.First.IsZero() {
		return p.Since
	}
	return p.First
}

// Counted is what came and went, for people: "+12 -3 entries"; "1 entry" where nothing was before it, or it was not counted.
func (p *Proposal) Counted() string {
	if n := p.Content.Entries(); p.Added == nil || p.Removed == nil {
		return term.Counted(n, "entry")
	}
	return fmt.Sprintf("+%d -%d entries", *p.Added, *p.Removed)
}

// Adopt is how a generation came that an operator has let in.
const Adopt = "adopt"

// Act is what brought the content of a pin.
func (p *Pin) Act() string {
	if p.How == Review {
		return Adopt
	}
	return p.How
}
