package junk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"blockd/internal/durable"
)

// The bounds of a Box. With all of them its file has some 20 MB, and so much memory is taken.
const (
	mostVoices = 100_000
	mostLine   = 4 << 10
	mostFile   = 64 << 20
	mostBy     = 200
	keptFor    = 90 * 24 * time.Hour // a decision, in which nothing new was said
	patience   = 5 * time.Second     // with another process that writes
	tidyFrom   = 1000                // lines of which most say nothing any more
)

// ErrBusy is wrapped by the error of a change for which another process has held the file for too long.
var ErrBusy = errors.New("another process holds the proposals")

// Settings of a Box.
type Settings struct {
	Path    string        // of its file; beside it is one for the lock
	Agree   int           // so many users make a proposal, 1 or more
	Domains int           // of so many domains
	Keep    time.Duration // how long a voice counts
}

// Box has what users say of senders, in a file of a line for each word. Several processes may share it: a daemon, the one that takes over
// from it, and commands. All methods may be used from any goroutine.
type Box struct {
	settings Settings

	mu     sync.Mutex
	file   *os.File // that was read; it stays open, so that no other file gets its inode
	read   int64    // octets of it
	lines  int      // of it
	bad    int      // lines that cannot be read
	voices int
	all    map[string]*opinion // by entry
}

// record is a line.
type record struct {
	Time  time.Time `json:"time"`
	Entry string    `json:"entry"`

	User string `json:"user,omitempty"`
	Kind Kind   `json:"kind,omitempty"`
	Gone bool   `json:"gone,omitempty"` // the user has taken it back

	State State      `json:"state,omitempty"`
	By    string     `json:"by,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// NewBox returns what is in a file, which need not be there.
func NewBox(s Settings) *Box { return &Box{settings: s, all: map[string]*opinion{}} }

// Say notes that a user, a mailbox, does not want a sender. What he has said before gives way: nobody counts twice.
func (b *Box) Say(entry, user string, kind Kind, now time.Time) error {
	return b.change(func() ([]record, error) {
		return []record{{Time: now.UTC().Truncate(time.Second), Entry: entry, User: user, Kind: kind}}, nil
	})
}

// Said returns when, and how, a user has called a sender unwanted; the zero time if never.
func (b *Box) Said(entry, user string) (at time.Time, kind Kind, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.follow(); err != nil {
		return at, "", err
	}
	if o := b.all[entry]; o != nil {
		at, kind = o.voices[user].at, o.voices[user].kind
	}
	return at, kind, nil
}

// Unsay takes back what a user has said of a sender.
func (b *Box) Unsay(entry, user string, now time.Time) error {
	return b.change(func() ([]record, error) {
		if o := b.all[entry]; o == nil || o.voices[user].kind == "" {
			return nil, nil
		}
		return []record{{Time: now.UTC().Truncate(time.Second), Entry: entry, User: user, Gone: true}}, nil
	})
}

// Get returns the proposal about a sender that waits. The error is ErrNoProposal, or wraps ErrDecided.
func (b *Box) Get(entry string, now time.Time) (p Proposal, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.follow(); err != nil {
		return p, err
	}
	return b.open(entry, now)
}

func (b *Box) open(entry string, now time.Time) (p Proposal, err error) {
	o, ok := b.all[entry]
	if ok {
		p, ok = o.proposal(entry, now.Add(-b.settings.Keep), b.settings.Agree, b.settings.Domains)
	}
	switch {
	case !ok:
		return p, ErrNoProposal
	case p.State != Open:
		return p, fmt.Errorf("%w: %s on %s", ErrDecided, p.State, p.Decided.Format(time.DateOnly))
	}
	return p, nil
}

// Decide notes what a person has decided about a proposal that waits. until is the end of the entry that was made; zero: it has none.
// It counts afresh from then on.
func (b *Box) Decide(entry string, to State, by string, until, now time.Time) (p Proposal, err error) {
	now = now.UTC()
	err = b.change(func() ([]record, error) {
		if p, err = b.open(entry, now); err != nil {
			return nil, err
		}
		r := record{Time: now, Entry: entry, State: to, By: strings.ToValidUTF8(by[:min(len(by), mostBy)], "")}
		p.State, p.By, p.Decided = to, r.By, &now
		if !until.IsZero() {
			end := until.UTC().Truncate(time.Second)
			r.Until, p.Until = &end, &end
		}
		return []record{r}, nil
	})
	return p, err
}

// All returns the proposals of a state, of all for "": those that wait first. damaged counts lines that cannot be read.
func (b *Box) All(state State, now time.Time) (all []Proposal, damaged int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.follow(); err != nil {
		return nil, 0, err
	}
	for entry, o := range b.all {
		if p, ok := o.proposal(entry, now.Add(-b.settings.Keep), b.settings.Agree, b.settings.Domains); ok && (state == "" || p.State == state) {
			all = append(all, p)
		}
	}
	newestFirst(all)
	return all, b.bad, nil
}

// CountOpen is how many proposals wait for a person; 0 if they cannot be read.
func (b *Box) CountOpen() int {
	all, _, _ := b.All(Open, time.Now())
	return len(all)
}

// Damaged is how many lines of the file cannot be read; 0 if the file cannot be. It makes no proposals, as All does.
func (b *Box) Damaged() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.follow() != nil {
		return 0
	}
	return b.bad
}

// Forget removes the senders and the users that are accepted, and returns how many words of them and about them it has removed.
func (b *Box) Forget(sender, user func(address string) bool) (gone int, err error) {
	err = b.change(func() ([]record, error) {
		for entry, o := range b.all {
			if sender(entry) {
				gone += max(len(o.voices), 1)
				delete(b.all, entry)
				continue
			}
			for name := range o.voices {
				if user(name) {
					delete(o.voices, name)
					gone++
				}
			}
		}
		if gone == 0 {
			return nil, nil
		}
		return nil, b.rewrite(time.Now())
	})
	return gone, err
}

// change has make write lines after what the file has, while no other process writes.
func (b *Box) change(make func() ([]record, error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	lock, err := durable.WaitLock(b.settings.Path+".lock", patience, ErrBusy)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := b.follow(); err != nil {
		return err
	}
	records, err := make()
	if err != nil || len(records) == 0 {
		return err
	}
	if err := b.append(records); err != nil {
		return err
	}
	if err := b.follow(); err != nil {
		return err
	}
	if b.lines > tidyFrom && b.lines > 2*(b.voices+len(b.all)) || b.voices > mostVoices || b.read > mostFile/2 {
		return b.rewrite(time.Now())
	}
	return nil
}

// append writes lines, and closes a last line that a crash has left without an end.
func (b *Box) append(records []record) error {
	f, err := os.OpenFile(b.settings.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var text []byte
	if info, err := f.Stat(); err != nil {
		return err
	} else if n := info.Size(); n > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, n-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = append(text, '\n')
		}
	}
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

// follow reads what the file has more than before, or all of it where it is another one. The caller holds mu.
func (b *Box) follow() error {
	f, err := os.Open(b.settings.Path)
	if errors.Is(err, fs.ErrNotExist) {
		b.become(nil)
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if b.same(info) {
		f.Close()
	} else {
		b.become(f)
	}
	if info.Size() == b.read {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(b.file, b.read, mostFile))
	if err != nil {
		return err
	}
	for {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return nil // it is being written, or a crash has cut it
		}
		b.take(text[:end])
		b.read += int64(end) + 1
		text = text[end+1:]
	}
}

// same reports whether a file is the one that was read, and goes on from there.
func (b *Box) same(info os.FileInfo) bool {
	if b.file == nil || info.Size() < b.read {
		return false
	}
	was, err := b.file.Stat()
	return err == nil && os.SameFile(was, info)
}

// become begins anew with a file of which nothing was read; nil = there is none.
func (b *Box) become(f *os.File) {
	if b.file != nil {
		b.file.Close()
	}
	b.file, b.read, b.lines, b.bad, b.voices, b.all = f, 0, 0, 0, 0, map[string]*opinion{}
}

// take takes a line.
func (b *Box) take(line []byte) {
	b.lines++
	var r record
	if len(line) > mostLine || json.Unmarshal(line, &r) != nil || r.Entry == "" || (r.User == "") == (r.State == "") {
		b.bad++
		return
	}
	o := b.all[r.Entry]
	if o == nil {
		o = &opinion{voices: map[string]voice{}}
		b.all[r.Entry] = o
	}
	before := len(o.voices)
	switch {
	case r.State != "":
		o.decided = decision{state: r.State, at: r.Time, by: r.By}
		if r.Until != nil {
			o.decided.until = *r.Until
		}
	case r.Gone:
		delete(o.voices, r.User)
	default:
		o.voices[r.User] = voice{r.Time, r.Kind}
	}
	b.voices += len(o.voices) - before
	if len(o.voices) == 0 && o.decided.state == "" {
		delete(b.all, r.Entry)
	}
}

// rewrite writes the file anew, without what does not count any more; and if there are too many voices, without the oldest tenth. The caller has
// the lock.
func (b *Box) rewrite(now time.Time) error {
	var all []record
	for entry, o := range b.all {
		if o.decided.state != "" && now.Sub(o.decided.at) < max(keptFor, b.settings.Keep) { // as long as words from before it
			r := record{Time: o.decided.at, Entry: entry, State: o.decided.state, By: o.decided.by}
			if !o.decided.until.IsZero() {
				r.Until = &o.decided.until
			}
			all = append(all, r)
		}
		for user, v := range o.voices {
			if now.Sub(v.at) < b.settings.Keep && v.at.After(o.decided.at) {
				all = append(all, record{Time: v.at, Entry: entry, User: user, Kind: v.kind})
			}
		}
	}
	slices.SortFunc(all, func(x, y record) int {
		return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.Entry, y.Entry), cmp.Compare(x.User, y.User))
	})
	if len(all) > mostVoices {
		all = all[len(all)-mostVoices*9/10:]
	}
	err := durable.Replace(b.settings.Path, 0o600, func(w io.Writer) error {
		e := json.NewEncoder(w)
		for _, r := range all {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	})
	b.become(nil) // and read it again
	if err != nil {
		return err
	}
	return b.follow()
}
