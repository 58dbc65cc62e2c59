package receipt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"blockd/internal/durable"
	"blockd/records/history"
)

// The bounds of requests. A row has some 4 KB at the most, so all of them less than 10 MB.
const (
	MaxNote    = 500 // octets of what a person may add
	mostKept   = 2000
	mostADay   = 200 // of all
	mostANet   = 5   // a day, of one client's network
	mostAWide  = 20  // a day, of the network that is routed on its own (history.Network): who has one has 65,536 IPv6 /64
	mostSender = 3   // open, of one sender refused by one client's network: who writes in another's name takes none of his
	keptFor    = 90 * 24 * time.Hour
	maxLine    = 16 << 10        // bytes of a row, with all escapes of JSON
	patience   = 5 * time.Second // with another process that changes them
)

var errBusy = errors.New("another process changes the requests")

// The errors of a Store.
var (
	// ErrNoRequest reports that nobody has asked by this reference.
	ErrNoRequest = errors.New("there is no request with this reference")
	// ErrTooMany reports that a bound of a day is reached, for all or for who asks.
	ErrTooMany = errors.New("too many requests today")
	// ErrDecided reports that a request is granted or declined already.
	ErrDecided = errors.New("the request is decided already")
)

// State is what has become of a request.
type State string

// The states.
const (
	Open     State = "open"
	Granted  State = "granted"
	Declined State = "declined"
)

// Proof says whether SPF showed that the refused mail came from its sender's domain.
type Proof string

// What SPF may have shown. A request of an older program has none of these.
const (
	SPF     Proof = "spf"     // the client may send for the domain
	NoProof Proof = "none"    // anybody may have sent it
	Unknown Proof = "unknown" // DNS did not say
)

// Request is one request to be let in, with the decision that it is about: the history may forget that one sooner.
type Request struct {
	Ref   string    `json:"ref"`
	State State     `json:"state"`
	Time  time.Time `json:"time"` // of the request

	List      string    `json:"list"` // "": a rule about the client's name has decided
	Refused   time.Time `json:"refused"`
	Sender    string    `json:"sender"` // "": the null sender
	Client    string    `json:"client,omitempty"`
	Recipient string    `json:"recipient,omitempty"`
	Entry     string    `json:"entry,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Repeated  int       `json:"repeated,omitempty"`
	Note      string    `json:"note,omitempty"`  // a stranger's words
	Proof     Proof     `json:"proof,omitempty"` // what showed, when the request came, that the mail was its sender's

	Decided *time.Time `json:"decided,omitempty"`
	By      string     `json:"by,omitempty"`
	Until   *time.Time `json:"until,omitempty"` // of a grant

	Helo string `json:"helo,omitempty"` // for SPF
	From string `json:"from,omitempty"` // a keyed hash of the network that has asked, for the bounds; only in the file
	Wide string `json:"wide,omitempty"` // the same of history.Network
}

// Shown is the request without what is for the bounds alone.
func (q Request) Shown() Request {
	q.From, q.Wide = "", ""
	return q
}

// newRequest is a request about a decision.
func newRequest(ref string, r *history.Record, note string, now time.Time) Request {
	q := Request{Ref: ref, State: Open, Time: now.UTC().Truncate(time.Second), List: r.List, Refused: r.Time.UTC().Truncate(time.Second), Sender: r.Sender,
		Recipient: r.Recipient, Entry: r.Entry, Reason: r.Reason, Repeated: r.Repeated, Note: oneText(note)}
	if r.Client.IsValid() {
		q.Client = r.Client.String()
	}
	if q.Helo = r.Helo; r.Source != "" {
		q.Proof = NoProof // an address of the header, of which SPF says nothing
	}
	return q
}

// oneText is a stranger's text within its bound, without what would act on a terminal or a page.
func oneText(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= MaxNote {
		return text
	}
	cut := MaxNote
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.TrimSpace(text[:cut])
}

// Store holds requests in a table of a folder, which a process that takes over and the one before it, and commands
// where no daemon runs, share. It is safe for concurrent use.
type Store struct {
	folder  string
	key     *Key
	table   *durable.Table[string, Request] // by reference
	taken   atomic.Bool                     // the files of before are in the table
	damaged atomic.Int64                    // of them, that stay where they are
}

// NewStore returns the requests of a folder, which OpenKey has made.
func NewStore(folder string, key *Key) *Store {
	return &Store{folder: folder, key: key, table: durable.NewTable(durable.TableSettings[string, Request]{
		Path: filepath.Join(folder, "requests"), Mode: 0o600, Most: mostKept, MaxLine: maxLine, Wait: patience, Busy: errBusy,
		Key: func(q Request) string { return q.Ref },
		Check: func(q Request) error {
			if q.Ref == "" {
				return ErrNoRequest
			}
			return nil
		},
		Over: func(q Request) bool { return time.Since(q.Time) > keptFor }})}
}

// suffix is that of the files of an older program, one a request. They go into the table, once.
const suffix = ".request"

// takeOver takes them. What cannot be read stays, and is counted; a row that is there already is newer.
func (s *Store) takeOver() error {
	if s.taken.Load() {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(s.folder, "*"+suffix)) // none of a folder with a bracket
	var done []string
	if len(files) > 0 {
		if err := s.table.Change(func(rows map[string]Request) (put []Request, _ []string, _ error) {
			for _, path := range files {
				var q Request
				switch _, there := rows[strings.TrimSuffix(filepath.Base(path), suffix)]; {
				case durable.Load(path, maxLine, &q) != nil || q.Ref+suffix != filepath.Base(path):
					continue
				case !there && time.Since(q.Time) <= keptFor && len(put)+len(rows) < mostKept:
					put = append(put, q)
				}
				done = append(done, path)
			}
			return put, nil, nil
		}); err != nil {
			return err
		}
	}
	for _, path := range done {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.damaged.Store(int64(len(files) - len(done)))
	s.taken.Store(true)
	return nil
}

// Get returns the request with a reference, or ErrNoRequest.
func (s *Store) Get(ref string) (q Request, err error) {
	if !s.key.Made(ref) {
		return q, ErrNoRequest
	}
	if err := s.takeOver(); err != nil {
		return q, err
	}
	there := false
	err = s.table.View(func(rows map[string]Request) { q, there = rows[ref] })
	if err == nil && !there {
		err = ErrNoRequest
	}
	return q, err
}

// Forget removes the requests that about accepts, and returns how many they were.
func (s *Store) Forget(about func(*Request) bool) (gone int, err error) {
	if err := s.takeOver(); err != nil {
		return 0, err
	}
	return s.table.Erase(func(q Request) bool { return about(&q) })
}

// All returns the requests, the newest first. damaged counts lines of the file that cannot be read.
func (s *Store) All() (all []Request, damaged int, err error) {
	if err := s.takeOver(); err != nil {
		return nil, 0, err
	}
	err = s.table.View(func(rows map[string]Request) {
		for _, q := range rows {
			if time.Since(q.Time) <= keptFor {
				all = append(all, q)
			}
		}
	})
	slices.SortFunc(all, func(a, b Request) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Ref, b.Ref)) })
	return all, s.table.Damaged() + int(s.damaged.Load()), err
}

// ask adds a request unless there is one by its reference, which it then returns. from is the network that asks.
func (s *Store) ask(q Request, from netip.Prefix, now time.Time) (is Request, made bool, err error) {
	if err := s.takeOver(); err != nil {
		return q, false, err
	}
	q.From = fmt.Sprintf("%x", s.key.sum("from", from.String())[:8])
	q.Wide = fmt.Sprintf("%x", s.key.sum("wide", history.Network(from.Addr()).String())[:8])
	is = q
	err = s.table.Change(func(rows map[string]Request) (put []Request, gone []string, err error) {
		if there, ok := rows[q.Ref]; ok {
			is = there
			return nil, nil, nil
		}
		today, here, wide, open, kept := 0, 0, 0, 0, 0
		var spare Request // the oldest that is decided
		for _, other := range rows {
			if now.Sub(other.Time) > keptFor {
				continue
			}
			kept++
			if now.Sub(other.Time).Abs() < 24*time.Hour { // one that is far in the future came while the clock was wrong
				today++
				if other.From == q.From {
					here++
				}
				if other.Wide == q.Wide {
					wide++
				}
			}
			if other.State != Open && (spare.Ref == "" || other.Time.Before(spare.Time)) {
				spare = other
			}
			if other.State == Open && other.Sender == q.Sender && other.refusedFrom() == q.refusedFrom() {
				open++
			}
		}
		if today >= mostADay || here >= mostANet || wide >= mostAWide || open >= mostSender || kept >= mostKept && spare.Ref == "" {
			return nil, nil, ErrTooMany
		}
		if kept >= mostKept {
			gone = []string{spare.Ref}
		}
		made = true
		return []Request{q}, gone, nil
	})
	return is, made && err == nil, err
}

// refusedFrom is the network of the refused client; of a door that knows none it is that of who asks.
func (q *Request) refusedFrom() string {
	client, err := netip.ParseAddr(q.Client)
	if err != nil {
		return q.Wide
	}
	return history.Network(client).String()
}

// NoteProof adds what shows that the mail of a request was its sender's, which DNS tells later.
func (s *Store) NoteProof(ref string, p Proof) error {
	_, err := s.update(ref, func(q *Request) { q.Proof = p })
	if errors.Is(err, ErrDecided) {
		return nil
	}
	return err
}

// Decide grants or declines an open request. until is the end of a grant; zero: never.
func (s *Store) Decide(ref string, to State, by string, until, now time.Time) (Request, error) {
	return s.update(ref, func(q *Request) {
		at := now.UTC().Truncate(time.Second)
		q.State, q.By, q.Decided = to, by, &at
		if to == Granted && !until.IsZero() {
			end := until.UTC().Truncate(time.Second)
			q.Until = &end
		}
	})
}

// update changes an open request. The error wraps ErrNoRequest or ErrDecided.
func (s *Store) update(ref string, change func(*Request)) (q Request, err error) {
	if _, err := s.Get(ref); err != nil {
		return q, err
	}
	err = s.table.Change(func(rows map[string]Request) ([]Request, []string, error) {
		is, there := rows[ref]
		q = is
		switch {
		case !there:
			return nil, nil, ErrNoRequest
		case is.State != Open:
			return nil, nil, fmt.Errorf("%w: %s on %s", ErrDecided, is.State, is.Decided.Format(time.DateOnly))
		}
		change(&is)
		q = is
		return []Request{is}, nil, nil
	})
	return q, err
}

// CountOpen is how many requests wait for a person; 0 if they cannot be read.
func (s *Store) CountOpen() (n int) {
	all, _, _ := s.All()
	for _, q := range all {
		if q.State == Open {
			n++
		}
	}
	return n
}
