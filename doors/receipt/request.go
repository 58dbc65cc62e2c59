package receipt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"blockd/internal/durable"
	"blockd/records/history"
)

// The bounds of requests. A file has less than 4 KB, so all of them less than 10 MB.
const (
	MaxNote    = 500 // octets of what a person may add
	mostKept   = 2000
	mostADay   = 200 // of all
	mostANet   = 5   // a day, of one client's network
	mostAWide  = 20  // a day, of the network that is routed on its own (history.Network): who has one has 65,536 IPv6 /64
	mostSender = 3   // open, of one sender refused by one client's network: who writes in another's name takes none of his
	keptFor    = 90 * 24 * time.Hour
)

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

// Store holds requests in a folder, a file each, so that a process that takes over and the one before it, and commands
// where no daemon runs, share them. It is safe for concurrent use.
type Store struct {
	folder string
	key    *Key

	mu sync.Mutex // one change at a time within this process
}

// NewStore returns the requests of a folder, which OpenKey has made.
func NewStore(folder string, key *Key) *Store { return &Store{folder: folder, key: key} }

const suffix = ".request"

func (s *Store) path(ref string) string { return filepath.Join(s.folder, ref+suffix) }

// Get returns the request with a reference, or ErrNoRequest.
func (s *Store) Get(ref string) (Request, error) {
	if !s.key.Made(ref) {
		return Request{}, ErrNoRequest
	}
	return s.read(s.path(ref))
}

func (s *Store) read(path string) (q Request, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return q, ErrNoRequest
	}
	if err == nil {
		err = json.Unmarshal(text, &q)
	}
	if err != nil {
		return q, fmt.Errorf("%s: %w", path, err)
	}
	return q, nil
}

// Forget removes the requests that about accepts, and returns how many they were.
func (s *Store) Forget(about func(*Request) bool) (gone int, err error) {
	all, _, err := s.All()
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range all {
		if !about(&q) {
			continue
		}
		if err := os.Remove(s.path(q.Ref)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return gone, err
		}
		gone++
	}
	if gone == 0 {
		return 0, nil
	}
	return gone, durable.SyncFolder(s.folder)
}

// All returns the requests, the newest first. A file that cannot be read is left out; damaged counts them.
func (s *Store) All() (all []Request, damaged int, err error) {
	files, err := os.ReadDir(s.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	for _, f := range files {
		ref, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			continue
		}
		switch q, err := s.read(filepath.Join(s.folder, f.Name())); {
		case err == nil && q.Ref == ref:
			all = append(all, q)
		case errors.Is(err, ErrNoRequest): // it has just gone
		default:
			damaged++
		}
	}
	slices.SortFunc(all, func(a, b Request) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Ref, b.Ref)) })
	return all, damaged, nil
}

// ask adds a request unless there is one by its reference, which it then returns. from is the network that asks.
func (s *Store) ask(q Request, from netip.Prefix, now time.Time) (there Request, made bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if there, err = s.read(s.path(q.Ref)); !errors.Is(err, ErrNoRequest) {
		return there, false, err
	}
	all, _, err := s.All()
	if err != nil {
		return q, false, err
	}
	q.From = fmt.Sprintf("%x", s.key.sum("from", from.String())[:8])
	q.Wide = fmt.Sprintf("%x", s.key.sum("wide", history.Network(from.Addr()).String())[:8])
	today, here, wide, open, kept, spare := 0, 0, 0, 0, 0, ""
	for _, other := range all {
		if now.Sub(other.Time) > keptFor {
			os.Remove(s.path(other.Ref)) // if it stays, the next one tries again
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
		if other.State != Open {
			spare = other.Ref // the oldest, at the end
		}
		if other.State == Open && other.Sender == q.Sender && other.refusedFrom() == q.refusedFrom() {
			open++
		}
	}
	if today >= mostADay || here >= mostANet || wide >= mostAWide || open >= mostSender || kept >= mostKept && spare == "" {
		return q, false, ErrTooMany
	}
	if err := s.write(q); err != nil {
		return q, false, err
	}
	if kept >= mostKept {
		os.Remove(s.path(spare)) // if it stays, the next one tries again
	}
	return q, true, nil
}

// refusedFrom is the network of the refused client; of a door that knows none it is that of who asks.
func (q *Request) refusedFrom() string {
	client, err := netip.ParseAddr(q.Client)
	if err != nil {
		return q.Wide
	}
	return history.Network(client).String()
}

func (s *Store) write(q Request) error {
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return durable.WriteFile(s.path(q.Ref), append(text, '\n'), 0o600)
}

// NoteProof adds what shows that the mail of a request was its sender's, which DNS tells later.
func (s *Store) NoteProof(ref string, p Proof) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.Get(ref)
	if err != nil || q.State != Open || q.Proof == p {
		return err
	}
	q.Proof = p
	return s.write(q)
}

// Decide grants or declines an open request. until is the end of a grant; zero: never.
func (s *Store) Decide(ref string, to State, by string, until, now time.Time) (Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.Get(ref)
	switch {
	case err != nil:
		return q, err
	case q.State != Open:
		return q, fmt.Errorf("%w: %s on %s", ErrDecided, q.State, q.Decided.Format(time.DateOnly))
	}
	at := now.UTC().Truncate(time.Second)
	q.State, q.By, q.Decided = to, by, &at
	if to == Granted && !until.IsZero() {
		end := until.UTC().Truncate(time.Second)
		q.Until = &end
	}
	return q, s.write(q)
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
