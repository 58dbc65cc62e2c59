package session

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"blockd/internal/durable"
	"blockd/internal/stamp"
)

// Settings of a Set.
type Settings struct {
	Path string        // of the file; "" = sessions end with the process
	Idle time.Duration // a session ends after so long without a request
	Max  time.Duration // and so long after it was made
}

const (
	maxFile  = 4 << 20 // octets; what Most sessions of persons with long names take
	maxLine  = 64 << 10
	patience = 2 * time.Second // another process writes some 500 kB
)

// Set is all sessions. It is safe for concurrent use, and several processes may have the same file.
type Set struct {
	settings Settings

	mu    sync.Mutex
	stamp fs.FileInfo // of the file as it was read or written last; nil: there was none
	told  bool        // that the file cannot be read at the moment
	all   map[string]*entry
	ended map[string]bool // sessions that the file may still have, because it could not be written
}

type entry struct {
	Session
	unsaved bool // the file has never had it
}

// Open reads the sessions of a file. After an error the Set has none, and can be used: then everybody signs in again.
func Open(s Settings) (*Set, error) {
	set := &Set{settings: s, all: map[string]*entry{}, ended: map[string]bool{}}
	_, err := set.read()
	return set, err
}

// Begin makes a session of those rights, and returns the secret for the browser, and the sessions that ended for it. After an error the session is there,
// but the file has not got it: it ends with the process.
func (s *Set) Begin(now time.Time, rights Session) (secret string, crowded []Session, err error) {
	secret, id := newSecret()
	rights.ID, rights.Made, rights.Used = id, now, now
	err = s.change(patience, func() {
		s.prune(now)
		crowded = s.makeRoom(rights.holder())
		s.all[id] = &entry{rights, true}
	})
	return secret, crowded, err
}

// Find returns the session with a secret, if it has not ended. An error is about the file, which could not be read again.
func (s *Set) Find(now time.Time, secret string) (found Session, ok bool, err error) {
	id := idOf(secret) // the map is searched for a hash, so that the time tells nothing about a secret
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.read()
	e := s.all[id]
	if e == nil || s.over(e, now) {
		return Session{}, false, err
	}
	return e.Session, true, err
}

// Use notes that a session has had a request. The file learns of it after a sixteenth of Idle, or after another one if another process holds it
// just then: no request waits for that.
func (s *Set) Use(now time.Time, id string) error {
	s.mu.Lock()
	e := s.all[id]
	late := e != nil && now.Sub(e.Used) >= s.settings.Idle/16
	s.mu.Unlock()
	if !late {
		return nil
	}
	err := s.change(0, func() {
		if e := s.all[id]; e != nil && e.Used.Before(now) {
			e.Used = now
		}
	})
	if errors.Is(err, errHeld) {
		return nil
	}
	return err
}

// errHeld is the error of a change while another process changes the file.
var errHeld = errors.New("another process holds the file of sessions")

// End ends the sessions of which which is true, and returns them. After an error they have ended. The file says so too, unless nothing at all can be
// written there: then they would be there again after a restart.
func (s *Set) End(now time.Time, which func(Session) bool) (ended []Session, err error) {
	err = s.change(patience, func() {
		s.prune(now)
		for id, e := range s.all {
			if which(e.Session) {
				ended = append(ended, e.Session)
				s.drop(id)
			}
		}
	})
	return ended, err
}

// Forget ends the sessions of people whose subject, name or owner is accepted, and returns how many they were. Its error is that of End.
func (s *Set) Forget(now time.Time, about func(text string) bool) (int, error) {
	ended, err := s.End(now, func(one Session) bool {
		p := one.Person
		return p != nil && (about(p.Subject) || about(p.Name) || slices.ContainsFunc(p.Owners, about))
	})
	return len(ended), err
}

// All are the sessions that have not ended, the newest first.
func (s *Set) All(now time.Time) []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read() // what cannot be read is told of where it matters
	all := []Session{}
	for _, e := range s.all {
		if !s.over(e, now) {
			all = append(all, e.Session)
		}
	}
	slices.SortFunc(all, func(a, b Session) int { return b.Made.Compare(a.Made) })
	return all
}

// Until is when a session ends at the latest, and if it is not used.
func (s *Set) Until(of Session) (latest, unused time.Time) {
	latest = of.Made.Add(s.settings.Max)
	if unused = of.Used.Add(s.settings.Idle); unused.After(latest) {
		unused = latest
	}
	return latest, unused
}

// over reports whether a session has ended by itself. A session from the future has too: the clock was set back, and nobody knows its age.
func (s *Set) over(e *entry, now time.Time) bool {
	return now.Sub(e.Made) >= s.settings.Max || now.Sub(e.Used) >= s.settings.Idle || e.Made.Sub(now) > time.Hour
}

func (s *Set) prune(now time.Time) {
	for id, e := range s.all {
		if s.over(e, now) {
			s.drop(id)
		}
	}
}

func (s *Set) drop(id string) {
	if e := s.all[id]; !e.unsaved && s.settings.Path != "" {
		s.ended[id] = true
	}
	delete(s.all, id)
}

// makeRoom ends sessions until there is room for one more of a holder: the holder's own if that has PerHolder, and else one of those who have the
// most, so that many sessions of few do not end those of others.
func (s *Set) makeRoom(holder string) (crowded []Session) {
	own := map[string]int{}
	for _, e := range s.all {
		own[e.holder()]++
	}
	for own[holder] >= PerHolder || len(s.all) >= Most {
		of := func(e *entry) bool { return e.holder() == holder }
		if own[holder] < PerHolder {
			most := 0
			for _, n := range own {
				most = max(most, n)
			}
			of = func(e *entry) bool { return own[e.holder()] == most }
		}
		var oldest *entry
		for _, e := range s.all {
			if of(e) && (oldest == nil || e.Used.Before(oldest.Used)) {
				oldest = e
			}
		}
		crowded = append(crowded, oldest.Session)
		own[oldest.holder()]--
		s.drop(oldest.ID)
	}
	return crowded
}

// change makes a change of what the file has now, and writes the file. Nobody who looks for a session waits for the disk, or for another process, which
// is waited for so long.
func (s *Set) change(patience time.Duration, make func()) error {
	if s.settings.Path == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		make()
		return nil
	}
	lock, err := durable.WaitLock(s.settings.Path+".lock", patience, errHeld)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		make()
		return err
	}
	defer lock.Close() // until then nobody else changes the file
	s.mu.Lock()
	readable, damaged := s.read() // what is damaged is written anew
	make()
	text, written := s.text()
	ended := slices.Collect(maps.Keys(s.ended))
	s.mu.Unlock()
	if !readable {
		return errors.Join(damaged, strike(s.settings.Path, ended))
	}
	if err := durable.WriteFile(s.settings.Path, text, 0o600); err != nil {
		return errors.Join(err, strike(s.settings.Path, ended))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range written {
		if e := s.all[id]; e != nil {
			e.unsaved = false
		}
	}
	for _, id := range ended {
		delete(s.ended, id)
	}
	s.stamp, _ = os.Stat(s.settings.Path) // unknown: it is read once more
	return damaged
}

// text is what the file is to have, and the sessions in it.
func (s *Set) text() (text []byte, written []string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for id, session := range s.all {
		e.Encode(session.Session) // texts and times: it cannot fail
		written = append(written, id)
	}
	return b.Bytes(), written
}

// struck stands in the file in place of the ID of a session that has ended.
var struck = strings.Repeat("-", 2*sha256.Size)

// strike overwrites the IDs of sessions that have ended where they stand in a file that cannot be written anew: a full disk has no room
// for another file, and takes this.
func strike(path string, ended []string) error {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || len(ended) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	for _, id := range ended {
		if at := bytes.Index(text, []byte(`{"id":"`+id+`"`)); at >= 0 && err == nil {
			_, err = f.WriteAt([]byte(struck), int64(at+len(`{"id":"`)))
		}
	}
	return errors.Join(err, f.Sync())
}

// read reads the file again if another process has changed it; otherwise it costs one stat. From a damaged file no session is taken.
// A file that is there and cannot be opened, as when the process has no free descriptor, makes readable false: the sessions in memory
// stay, and only the first such failure is returned. Any other error is returned once for each content of the file.
func (s *Set) read() (readable bool, err error) {
	if s.settings.Path == "" {
		return true, nil
	}
	now, err := os.Stat(s.settings.Path)
	if err != nil {
		now = nil
	}
	if stamp.Same(now, s.stamp) {
		return true, nil
	}
	var found []Session
	if now != nil {
		found, err = load(s.settings.Path)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if fault := (*fs.PathError)(nil); now != nil && errors.As(err, &fault) {
		told := s.told
		if s.told = true; told {
			err = nil
		}
		return false, err
	}
	s.stamp, s.told = now, false
	if err != nil {
		found = nil
	}
	all := map[string]*entry{}
	for _, session := range found {
		if !s.ended[session.ID] {
			all[session.ID] = &entry{Session: session}
		}
	}
	for id, e := range s.all {
		if there := all[id]; there != nil && there.Used.Before(e.Used) {
			there.Used = e.Used
		} else if there == nil && e.unsaved {
			all[id] = e
		}
	}
	s.all = all
	return true, err
}

// load reads a file, a session a line. A missing one has none.
func load(path string) (all []Session, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxFile+1))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		var session Session
		if err := json.Unmarshal(lines.Bytes(), &session); err != nil || len(session.ID) != len(idOf("")) || (session.Token == "") == (session.Person == nil) {
			return nil, fmt.Errorf("%s:%d: no session of blockd", path, n)
		}
		if session.ID == struck {
			continue
		}
		if all = append(all, session); len(all) > Most {
			return nil, fmt.Errorf("%s: more than %d sessions", path, Most)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
