// Package correspondents remembers the people that the users of this server write to. Mail from them is mail that somebody here
// waits for: a list that would refuse them is looked at before it serves (package reload), and answers, decisions and
// logs say so.
//
// Addresses are never kept. What is kept are hashes by a secret key that stands beside them (SipHash-2-4), each with the last day: of
// the address, of its local-part at any domain, and of its domain and the names above it, since entries of lists are for
// those. Whoever has the file alone learns nothing; who has the key too can ask about addresses that he knows already.
package correspondents

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"

	"blockd/internal/durable"
	"blockd/lists"
	"blockd/mail/addr"
)

// Most is how many addresses a Set has at most. With all that is kept of them they take 20 MB of memory.
const Most = 1_000_000

// Settings of a Set.
type Settings struct {
	Path string        // of its file; that of the key has this name with KeySuffix
	Keep time.Duration // how long an address is remembered after the last mail to it; whole days
	Own  []string      // domains whose addresses, and those below, are users of this server

	most int // 0 = Most
}

// Set is a set of correspondents with its file. All methods may be used from any goroutine. A nil Set has none.
//
// A flood must not push out who is written to for real. When there is no room left, an address of one day gives way, and
// never one of today or of several days; and newcomers of one day take at most a quarter of the room.
type Set struct {
	settings Settings
	secret   [2]uint64 // of the hash
	learned  atomic.Uint64
	excused  atomic.Uint64
	refused  atomic.Uint64 // newcomers without room
	failures atomic.Uint64 // of saving

	mu        sync.RWMutex
	table     table
	day       int   // of newcomers
	newcomers int   // that others have made room for
	changed   []key // since it was last saved; removed ones too
	all       bool  // changed is not all of it

	saving   sync.Mutex        // held while the file is read or written; guards what follows
	lock     *durable.LockFile // nil: another process has the file, or may have it
	yielded  bool
	appended int // records in the file
}

// The day 1 is the 1st of January 2020, so that 45 years fit into a state.
const dayOne = 18262 // by Unix time, in days

const hoursADay = 24

func dayOf(t time.Time) int {
	return min(max(int(t.Unix()/(hoursADay*60*60))-dayOne+1, 1), mostDay)
}

func dateOf(day int) time.Time {
	return time.Unix(int64(day+dayOne-1)*hoursADay*60*60, 0).UTC()
}

func (s *Set) keepDays() int { return max(1, int(s.settings.Keep/(hoursADay*time.Hour))) }

// hash is the key of a text. It does not allocate for texts that a key of package addr can have.
func (s *Set) hash(text string) key {
	var room [256]byte
	return key(siphash.Hash(s.secret[0], s.secret[1], append(room[:0], text...)) >> (64 - partBits - tagBits))
}

// Learn notes that sender, a user of this server, has written to recipient on the day of at. It reports whether that is a
// correspondent: an address at a domain of its own, and at none of the sender's or of Settings.Own.
// Mail of the null sender is an answer by a program, so nobody has written to its recipient.
func (s *Set) Learn(sender, recipient addr.Addr, at time.Time) bool {
	if s == nil || sender.Null() || sender.Domain() == recipient.Domain() || !s.mayBe(recipient) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learn(recipient, min(dayOf(at), dayOf(time.Now())))
	s.learned.Add(1)
	return true
}

// mayBe reports whether an address is one that a list can name, and none of ours.
func (s *Set) mayBe(a addr.Addr) bool {
	if _, ok := a.Key(); !ok || strings.HasPrefix(a.Domain(), "[") {
		return false
	}
	return !s.own(a.Domain())
}

func (s *Set) own(domain string) bool {
	for _, own := range s.settings.Own {
		if rest, ok := strings.CutSuffix(domain, own); ok && (rest == "" || strings.HasSuffix(rest, ".")) {
			return true
		}
	}
	return false
}

// learn notes an address. The caller holds mu.
func (s *Set) learn(a addr.Addr, day int) {
	if s.day < day {
		s.day, s.newcomers = day, 0
	}
	if dayOf(time.Now())-day >= s.keepDays() {
		return
	}
	var room [addr.MaxKeys]addr.Key
	keys := a.Keys(room[:0])
	known := s.table.get(s.hash(a.String())) != 0
	if !s.note(keys[0].Text, isAddress, day, false) {
		s.refused.Add(1)
		return
	}
	for i, k := range keys[1:] {
		what := isName
		if i > 1 {
			what = isAbove
		}
		s.note(k.Text, what, day, !known)
	}
}

// note marks one text. It reports whether there is room for it.
func (s *Set) note(text string, what, day int, more bool) bool {
	k := s.hash(text)
	was := s.table.get(k)
	if was == 0 && !s.makeRoom(k, what) {
		return false
	}
	is := was.mark(day) | state(what)<<whatShift
	if more {
		is = is.more()
	}
	if is != was {
		s.table.put(k, is)
		s.touched(k)
	}
	return true
}

// makeRoom has another key give way to k if there is no room for it.
func (s *Set) makeRoom(k key, what int) bool {
	most := s.most()
	full := s.table.full(k)
	if !full && (what != isAddress || s.table.sum[isAddress] < most) {
		return true
	}
	if s.newcomers >= most/4 {
		return false
	}
	victim, found := s.table.yielding(k, s.day, func(other state) bool { return full || other.what() == isAddress })
	if !found {
		return false
	}
	s.newcomers++
	s.table.remove(victim)
	s.touched(victim)
	return true
}

func (s *Set) most() int {
	if s.settings.most > 0 {
		return s.settings.most
	}
	return Most
}

// touched notes that a key is to be written.
func (s *Set) touched(k key) {
	if len(s.changed) >= mostChanged {
		s.changed, s.all = nil, true
	}
	if !s.all {
		s.changed = append(s.changed, k)
	}
}

// state returns what is known of a text; 0: nothing, or it is too old.
func (s *Set) state(text string) state {
	if s == nil || text == "" {
		return 0
	}
	k := s.hash(text)
	s.mu.RLock()
	is := s.table.get(k)
	s.mu.RUnlock()
	if is == 0 || dayOf(time.Now())-is.day() >= s.keepDays() {
		return 0
	}
	return is
}

// Has reports whether users of this server write to this very address. It does not allocate.
func (s *Set) Has(a addr.Addr) bool {
	if s == nil {
		return false
	}
	key, ok := a.Key()
	return ok && s.state(key.Text) != 0
}

// Last is the day on which users of this server last wrote to an address, at 00:00 UTC; zero: they do not.
func (s *Set) Last(a addr.Addr) time.Time {
	if key, ok := a.Key(); ok {
		if is := s.state(key.Text); is != 0 {
			return dateOf(is.day())
		}
	}
	return time.Time{}
}

// Covered is about how many correspondents an entry of a list covers, by what it names: an address, a local-part, a
// domain or its parents. Entries for patterns and networks tell no hash, and cover none as far as Covered knows.
func (s *Set) Covered(kind lists.Kind, scope lists.Scope, name string) int {
	is := s.state(name)
	switch {
	case is == 0:
	case kind == lists.Addr && scope != lists.Local:
		return 1
	case kind == lists.Addr,
		kind == lists.Domain && scope == lists.Exact && is.what()&isName != 0,
		kind == lists.Domain && scope == lists.Sub && is.what()&isAbove != 0,
		kind == lists.Domain && scope == lists.Tree:
		return is.about()
	}
	return 0
}

// Known reports whether a name of an entry may be that of a correspondent, their domain or local-part: for a walk over
// millions of entries, of which Covered then looks at a few. It does not allocate.
func (s *Set) Known(name []byte) bool {
	k := key(siphash.Hash(s.secret[0], s.secret[1], name) >> (64 - partBits - tagBits))
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.get(k) != 0
}

// Len is the number of addresses.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.sum[isAddress]
}

// Forget takes an address out of the set, with its local-part and the names of its domain: what is known of these by others
// there is learned again with the next mail. It reports whether the address was there. The file is written at once; an error is that of the disk, and
// then the next save writes it.
func (s *Set) Forget(a addr.Addr) (had bool, err error) {
	if s == nil {
		return false, nil
	}
	var room [addr.MaxKeys]addr.Key
	s.mu.Lock()
	for i, k := range a.Keys(room[:0]) {
		gone := s.table.remove(s.hash(k.Text))
		had = had || gone && i == 0
	}
	s.changed, s.all = nil, true // so that the old records go
	s.mu.Unlock()
	return had, s.Save()
}

// Pseudonym is a keyed hash of an address, for a journal that must not name it: the same each time, as long as the key is.
func (s *Set) Pseudonym(a addr.Addr) string {
	if s == nil {
		return "unknown"
	}
	return fmt.Sprintf("%014x", uint64(s.hash("forget "+a.String())))
}

// age forgets what has not been written to for too long.
func (s *Set) age() {
	today := dayOf(time.Now())
	for number := range parts {
		var old []key
		s.mu.Lock()
		s.table.each(number, func(k key, is state) bool {
			if today-is.day() >= s.keepDays() {
				old = append(old, k)
			}
			return true
		})
		for _, k := range old {
			s.table.remove(k)
			s.touched(k)
		}
		s.mu.Unlock()
	}
}

// Excused counts a correspondent whom a list would have refused, and proof has not.
func (s *Set) Excused() {
	if s != nil {
		s.excused.Add(1)
	}
}
