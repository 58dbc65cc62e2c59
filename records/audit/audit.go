// Package audit keeps a journal of what people and tokens have changed: who, when, what and why. A line is on disk before
// the change acts, and each has the hash of the one before it, so that a line which is altered, left out or put in
// between is found by who reads the journal again (Haber and Stornetta, How to Time-Stamp a Digital Document, 1991).
// Who has changed most gives room first, and a line tells of what has gone (share.go). What a chain cannot show is an
// end that is cut off, or a journal written anew from some line on: for these somebody else has to have noted a hash
// of it (Chain.Has).
package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"blockd/internal/durable"
)

// The actions of lines.
const (
	Start             = "start" // a daemon begins, with this version and configuration
	EntryAdd          = "entry.add"
	EntryChange       = "entry.change"
	EntryRemove       = "entry.remove"
	ListPause         = "list.pause"
	ListResume        = "list.resume"
	ListRollback      = "list.rollback"
	ListAdopt         = "list.adopt"
	ListAccept        = "list.accept" // blockd compile --accept
	ListAdd           = "list.add"    // to http.lists_file, as the next two
	ListEnforce       = "list.enforce"
	ListRemove        = "list.remove"
	ReportSend        = "report.send"
	TokenAdd          = "token.add"
	TokenRevoke       = "token.revoke"
	TokenRotate       = "token.rotate"  // another one for the same name
	SessionBegin      = "session.begin" // a browser has signed in
	SessionEnd        = "session.end"   // it was signed out; one that ends by time has no line
	RequestGrant      = "request.grant"
	RequestDecline    = "request.decline"
	ProposalAdopt     = "proposal.adopt"
	ProposalDecline   = "proposal.decline"
	ComplaintTake     = "complaint.take"
	QuarantineRelease = "quarantine.release"
	QuarantineRemove  = "quarantine.remove"
	PersonForget      = "person.forget"
	CorrespondentsAdd = "correspondents.learn"
	Configuration     = "configuration.change"
	SnapshotPublish   = "snapshot.publish"
	SnapshotHalt      = "snapshot.halt"
	FleetPin          = "fleet.pin"
	FleetUnpin        = "fleet.unpin"
	LiveOffer         = "live.offer"
	LiveDismiss       = "live.dismiss"
	Failed            = "failed" // what the line before Subject's hash says has not been done
)

// Line is one change. Texts that are longer than their bounds are cut.
type Line struct {
	Time    time.Time `json:"time"`
	By      string    `json:"by"`               // what the author calls himself, and who he is: an Author; 200 octets
	Who     string    `json:"who"`              // who was authenticated; Add takes it from By where it is ""; 200 octets
	Action  string    `json:"action"`           // one of the actions above; 64 octets
	Subject string    `json:"subject"`          // what it is about: an entry, a list, a request; 1000 octets
	Why     string    `json:"why"`              // in the person's words; 1000 octets
	Detail  string    `json:"detail,omitempty"` // for people, such as what was before; 2000 octets

	Previous string `json:"previous"` // Hash of the line before; "" of the first of all
	Hash     string `json:"hash"`     // SHA-256, in hexadecimal digits, of the line's octets before `,"hash":`
}

const (
	maxLine   = 64 << 10 // octets; the longest texts fit, with all JSON escapes
	hashField = `,"hash":"`
	tailSize  = len(hashField) + 2*sha256.Size + len(`"}`)
	patience  = 5 * time.Second // another process writes a few lines
)

// append appends the line, with its end, that goes on after previous, and returns its hash.
func (l Line) append(b []byte, previous string) ([]byte, string) {
	l.Time, l.Previous, l.Hash = l.Time.UTC().Truncate(time.Millisecond), previous, ""
	for _, text := range []struct {
		of  *string
		max int
	}{{&l.By, 200}, {&l.Who, 200}, {&l.Action, 64}, {&l.Subject, 1000}, {&l.Why, 1000}, {&l.Detail, 2000}} {
		*text.of = clip(*text.of, text.max)
	}
	var object bytes.Buffer
	e := json.NewEncoder(&object)
	e.SetEscapeHTML(false)
	e.Encode(l) // it has only texts and a time of this millennium, so this cannot fail
	part := bytes.TrimSuffix(object.Bytes(), []byte(hashField+"\"}\n"))
	sum := sha256.Sum256(part)
	hash := hex.EncodeToString(sum[:])
	return append(append(b, part...), hashField+hash+"\"}\n"...), hash
}

// clip cuts text to max octets, at a character.
func clip(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}

// parse reads a line without its end. Its hash is that of its octets, or parse fails.
func parse(text []byte) (l Line, err error) {
	if len(text) <= tailSize {
		return l, errors.New("no line of the journal")
	}
	part, tail := text[:len(text)-tailSize], text[len(text)-tailSize:]
	sum := sha256.Sum256(part)
	if string(tail) != hashField+hex.EncodeToString(sum[:])+`"}` {
		return l, errors.New("its hash is not that of its text")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err = d.Decode(&l); err == nil && d.More() {
		err = errors.New("text behind it")
	}
	return l, err
}

// Settings are where the journal is, and how much of it is kept.
type Settings struct {
	Folder string        // of its files; the first Add makes it
	Max    int64         // octets of all files, which those who change things share. 16 files at the most are that long
	Keep   time.Duration // a file whose lines are all older goes
}

// Log is a journal that is written. It is safe for concurrent use, also by several processes. A nil Log keeps nothing.
type Log struct {
	settings Settings
	problem  atomic.Pointer[error] // of the last Add
	written  atomic.Int64          // lines

	mu     sync.Mutex
	last   end              // what this process has written last
	untidy error            // of the last prune; nil: the journal is within its bounds
	holds  map[int]holdings // of older files, by their numbers
}

// end is where a file of the journal goes on.
type end struct {
	number int
	size   int64
	hash   string // of the last line
	begun  time.Time
}

// New returns the journal of s. Nothing is read or written yet.
func New(s Settings) *Log { return &Log{settings: s} }

// Problem is why the last lines could not be written, or nil.
func (l *Log) Problem() error {
	if l == nil {
		return nil
	}
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// ErrUnwritable says that a change is not made because the journal cannot be written.
var ErrUnwritable = errors.New("not changed: the audit journal cannot be written")

// Add writes lines, all or none. When it returns without an error they are on disk. The time of a line without one is now.
// Errors wrap ErrUnwritable.
func (l *Log) Add(lines ...Line) error {
	if l == nil || len(lines) == 0 {
		return nil
	}
	err := l.add(lines)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnwritable, err)
		l.problem.Store(&err)
		return err
	}
	l.written.Add(int64(len(lines)))
	l.mu.Lock()
	problem := l.untidy
	l.mu.Unlock()
	if problem != nil {
		problem = fmt.Errorf("the audit journal is written, and cannot be kept within audit.max and audit.keep: %w", problem)
	}
	l.problem.Store(&problem)
	return nil
}

func (l *Log) add(lines []Line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := durable.MakeFolder(l.settings.Folder); err != nil {
		return err
	}
	held, err := durable.WaitLock(filepath.Join(l.settings.Folder, lockName), patience, errors.New("another process holds it"))
	if err != nil {
		return err
	}
	defer held.Close()
	at, err := l.end()
	if err != nil {
		return err
	}
	now, text := time.Now(), []byte(nil)
	for _, line := range lines {
		line.Time, line.By = cmp.Or(line.Time, now), cmp.Or(line.By, Daemon)
		line.Who = cmp.Or(line.Who, WhoOf(line.By))
		text, at.hash = line.append(text, at.hash)
	}
	if at.number == 0 || at.size+int64(len(text)) > l.settings.Max/16 || now.Sub(at.begun) > l.settings.Keep/8 {
		at.number, at.begun = at.number+1, now
		at.size = int64(len(text))
		if err = durable.WriteFile(l.file(at.number), text, 0o640); err != nil {
			return err
		}
		l.last = at
		l.untidy = l.prune(now) // the lines are on the disk: their changes are made
		return nil
	}
	f, err := os.OpenFile(l.file(at.number), os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(text, at.size)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		l.last = end{}
		return errors.Join(err, f.Truncate(at.size)) // else the next Add cuts what is unfinished, or goes on after it
	}
	at.size += int64(len(text))
	l.last = at
	return nil
}

// end finds where the journal goes on, and cuts an unfinished line, which no Add has acknowledged. The caller holds the lock.
func (l *Log) end() (end, error) {
	files, err := filesOf(l.settings.Folder)
	if err != nil {
		return end{}, err
	}
	for _, number := range slices.Backward(files) {
		at, err := l.endOf(number)
		if err != nil || at.size > 0 {
			return at, err
		}
		if err := errors.Join(os.Remove(l.file(number)), durable.SyncFolder(l.settings.Folder)); err != nil { // somebody else has emptied it
			return end{}, err
		}
	}
	return end{}, nil
}

// endOf is end for the last file. Its size is 0 where nothing of it is left.
func (l *Log) endOf(number int) (end, error) {
	at := end{number: number}
	f, err := os.OpenFile(l.file(number), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	if at.size = info.Size(); number == l.last.number && at.size == l.last.size {
		return l.last, nil
	}
	head := make([]byte, min(at.size, maxLine))
	tail := make([]byte, min(at.size, 2*maxLine))
	if _, err := f.ReadAt(head, 0); err != nil {
		return at, err
	}
	if _, err := f.ReadAt(tail, at.size-int64(len(tail))); err != nil {
		return at, err
	}
	head, _, _ = bytes.Cut(head, []byte("\n"))
	at.begun = info.ModTime()
	if first, err := parse(head); err == nil {
		at.begun = first.Time
	}
	torn := len(tail) - 1 - bytes.LastIndexByte(tail, '\n')
	switch {
	case torn == 2*maxLine: // no line is so long: Verify says so. What follows stands in another file
		at.size = l.settings.Max
	case torn > 0:
		if err := f.Truncate(at.size - int64(torn)); err != nil {
			return at, err
		}
		at.size, tail = at.size-int64(torn), tail[:len(tail)-torn]
	}
	at.hash = hashOf(bytes.TrimSuffix(tail, []byte("\n")))
	return at, nil
}

// hashOf is what the next line calls the last line of text: its hash if it is whole, and else one of its octets, so that what
// was damaged is damaged for good.
func hashOf(text []byte) string {
	text = text[bytes.LastIndexByte(text, '\n')+1:]
	if line, err := parse(text); err == nil {
		return line.Hash
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// prune removes lines of those who have the most, and the oldest files. The caller holds the lock, and has begun a
// file.
func (l *Log) prune(now time.Time) error {
	files, err := filesOf(l.settings.Folder)
	if err != nil {
		return err
	}
	shared := l.share(files[:len(files)-1], l.settings.Max/16*15) // where that fails, for want of room, whole files make some
	if files, err = filesOf(l.settings.Folder); err != nil {
		return err
	}
	var total int64
	for i, n := range slices.Backward(files) {
		info, err := os.Stat(l.file(n))
		if err != nil {
			return err
		}
		total += info.Size()
		if i == len(files)-1 || total <= l.settings.Max && now.Sub(info.ModTime()) <= l.settings.Keep {
			continue
		}
		for _, old := range files[:i+1] {
			if err := os.Remove(l.file(old)); err != nil {
				return err
			}
		}
		break
	}
	return shared
}

const (
	lockName   = "lock"
	fileEnding = ".jsonl"
)

func (l *Log) file(number int) string { return fileName(l.settings.Folder, number) }

func fileName(folder string, number int) string {
	return filepath.Join(folder, fmt.Sprintf("%08d%s", number, fileEnding))
}

// filesOf are the numbers of the files in a folder, in their order. A missing folder has none.
func filesOf(folder string) (numbers []int, err error) {
	all, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range all {
		digits, ours := strings.CutSuffix(f.Name(), fileEnding)
		if n, bad := strconv.Atoi(digits); ours && bad == nil && n > 0 && filepath.Base(fileName(folder, n)) == f.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}
