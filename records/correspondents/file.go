package correspondents

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dchest/siphash"

	"blockd/internal/durable"
)

// KeySuffix makes of the file's name that of the file with the key, and AsideSuffix that of a file which cannot be read.
const (
	KeySuffix   = ".key"
	AsideSuffix = ".unreadable"
)

// ErrLocked is the error of Open and Resume when another process has the set.
var ErrLocked = errors.New("another process has these correspondents")

// SaveEvery bounds what a crash may lose.
const SaveEvery = time.Minute

// The file is a head of 32 octets and records of 16, all numbers big-endian: the key (8), its state (4), and the CRC-32C of these
// 12. The head is fileHead, padded with zeros to 24, and the hash of fileHead by the secret, so that records of another secret
// are not taken for ours. Of several records of a key the last one is right, and one with the state 0 takes it out. Changes
// are appended; when they have become as many as the keys, the file is written anew.
const (
	fileHead    = "blockd-correspondents 1\n"
	headSize    = 32
	recordSize  = 16
	mostChanged = 1 << 16 // keys that are remembered to be appended: half a megabyte
	slack       = 1 << 12 // appended records that are not worth a new file
	mostOctets  = 4 * parts * mostSlots * recordSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errForeign = errors.New("it is not a file of correspondents, or one of another key")

// Open takes the set at s.Path, or begins one where there is none; then nothing is written before something is learned. A file that cannot be understood is put aside under a name
// with AsideSuffix, in place of an earlier one, and an empty set begins: anew says why. So does a file with damaged
// records, which are left out. The error is ErrLocked, or one of the disk.
func Open(settings Settings) (s *Set, anew, err error) {
	s = &Set{settings: settings}
	if err := os.MkdirAll(filepath.Dir(settings.Path), 0o755); err != nil {
		return nil, nil, err
	}
	if s.lock, err = durable.Lock(settings.Path+".lock", ErrLocked); err != nil {
		return nil, nil, err
	}
	if anew, err = s.read(); err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, anew, nil
}

// Read opens the set as it is in its file, for looking things up while another process has it. It writes nothing before
// Resume.
func Read(settings Settings) (*Set, error) {
	s := &Set{settings: settings}
	_, err := s.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// Resume takes the set of Read from a process that has yielded it, as it is in the file by then: nothing else may use the set
// meanwhile. After Yield it takes the set back as it is in memory. anew is as that of Open.
func (s *Set) Resume() (anew, err error) {
	if s == nil {
		return nil, nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.lock != nil {
		return nil, nil
	}
	if s.lock, err = durable.Lock(s.settings.Path+".lock", ErrLocked); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.yielded { // memory knows more than the file
		s.all = true
		s.mu.Unlock()
		return nil, nil
	}
	s.table, s.secret = table{}, [2]uint64{}
	s.mu.Unlock()
	return s.read()
}

// Yield saves the set and lets another process take it. This one goes on from memory, and what it learns from here on is
// not saved.
func (s *Set) Yield() error {
	if s == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	err := s.save()
	s.unlock()
	s.yielded = true
	return err
}

// Close lets another process have the set. It does not save.
func (s *Set) Close() {
	if s != nil {
		s.saving.Lock()
		defer s.saving.Unlock()
		s.unlock()
	}
}

// unlock lets another process have the set. The caller holds saving.
func (s *Set) unlock() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// read is load for the process that has the lock.
func (s *Set) read() (anew, err error) {
	path := s.settings.Path
	damaged, err := s.load()
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case errors.Is(err, errForeign):
		anew = fmt.Errorf("%s: %w; it is %s now, and an empty set begins", path, err, path+AsideSuffix)
		err = errors.Join(os.Rename(path, path+AsideSuffix), ignoreMissing(os.Rename(path+KeySuffix, path+KeySuffix+AsideSuffix)))
	}
	if err != nil {
		return nil, err
	}
	if damaged > 0 {
		anew = fmt.Errorf("%s: %d damaged records are left out", path, damaged)
		s.all = true
	}
	if s.secret == [2]uint64{} {
		err = s.newSecret()
	}
	return anew, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newSecret makes a key. It is written with the first record.
func (s *Set) newSecret() error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	s.secret = [2]uint64{binary.BigEndian.Uint64(random[:8]), binary.BigEndian.Uint64(random[8:])}
	s.all = true
	return nil
}

// readSecret reads the file of the key: 32 hexadecimal digits.
func (s *Set) readSecret() error {
	f, err := os.Open(s.settings.Path + KeySuffix)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return err
	}
	if len(text) != 33 || text[32] != '\n' {
		return errForeign
	}
	var octets [16]byte
	if _, err := hex.Decode(octets[:], text[:32]); err != nil {
		return errForeign
	}
	s.secret = [2]uint64{binary.BigEndian.Uint64(octets[:8]), binary.BigEndian.Uint64(octets[8:])}
	return nil
}

func (s *Set) writeSecret() error {
	var octets [16]byte
	binary.BigEndian.PutUint64(octets[:8], s.secret[0])
	binary.BigEndian.PutUint64(octets[8:], s.secret[1])
	return durable.WriteFile(s.settings.Path+KeySuffix, []byte(hex.EncodeToString(octets[:])+"\n"), 0o600)
}

// head is that of the file of this secret.
func (s *Set) head() (head [headSize]byte) {
	copy(head[:], fileHead)
	binary.BigEndian.PutUint64(head[headSize-8:], siphash.Hash(s.secret[0], s.secret[1], []byte(fileHead)))
	return head
}

// load reads the file into the table, which is empty. A torn end, as a kill leaves it, is no damage.
func (s *Set) load() (damaged int, err error) {
	f, err := os.Open(s.settings.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostOctets {
		return 0, errForeign
	}
	if err := s.readSecret(); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: its key is missing", errForeign)
	} else if err != nil {
		return 0, err
	}
	in := bufio.NewReaderSize(f, 1<<16)
	var head [headSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || head != s.head() {
		s.secret = [2]uint64{}
		return 0, errForeign
	}
	s.appended = 0
	var record [recordSize]byte
	for torn := 0; ; {
		if _, err := io.ReadFull(in, record[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if err != io.EOF || torn > 0 {
				s.all = true // the next record must stand where a record can
			}
			return damaged, nil
		} else if err != nil {
			return damaged, err
		}
		s.appended++
		damaged, torn = damaged+torn, 0
		if crc32.Checksum(record[:12], castagnoli) != binary.BigEndian.Uint32(record[12:]) {
			torn++
			continue
		}
		s.take(key(binary.BigEndian.Uint64(record[:8])), state(binary.BigEndian.Uint32(record[8:])))
	}
}

// take puts a record into the table.
func (s *Set) take(k key, is state) {
	if k>>(partBits+tagBits) != 0 || is>>stateBits != 0 {
		return // of a later version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case is == 0:
		s.table.remove(k)
	case s.table.get(k) != 0 || !s.table.full(k):
		s.table.put(k, is)
	}
}

// Save writes what has changed since it was last saved. After an error it is tried again by the next one. It does nothing while
// another process has the set.
func (s *Set) Save() error {
	if s == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.save()
}

// save is Save for one that holds saving.
func (s *Set) save() error {
	if s.lock == nil {
		return nil
	}
	s.mu.Lock()
	changed, all, keys := s.changed, s.all, s.table.keys
	_, err := os.Stat(s.settings.Path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if len(changed) == 0 && (!all || fresh && keys == 0) {
		s.mu.Unlock()
		return nil
	}
	all = all || fresh || s.appended+len(changed) > 2*keys+slack
	s.changed, s.all = nil, false
	s.mu.Unlock()
	if all {
		err = s.rewrite()
	} else {
		err = s.extend(changed)
	}
	if err != nil {
		s.failures.Add(1)
		s.mu.Lock()
		s.changed, s.all = nil, true
		s.mu.Unlock()
	}
	return err
}

// rewrite writes all keys. What is learned meanwhile is in the file or in changed.
func (s *Set) rewrite() error {
	if err := s.writeSecret(); err != nil {
		return err
	}
	n := 0
	err := durable.Replace(s.settings.Path, 0o600, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		head := s.head()
		out.Write(head[:])
		var records []byte
		for number := range parts {
			records = records[:0]
			s.mu.RLock()
			s.table.each(number, func(k key, is state) bool {
				records = appendRecord(records, k, is)
				return true
			})
			s.mu.RUnlock()
			n += len(records) / recordSize
			if _, err := out.Write(records); err != nil {
				return err
			}
		}
		return out.Flush()
	})
	if err == nil {
		s.appended = n
	}
	return err
}

// extend appends the keys that have changed.
func (s *Set) extend(changed []key) error {
	f, err := os.OpenFile(s.settings.Path, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	records := make([]byte, 0, len(changed)*recordSize)
	s.mu.RLock()
	for _, k := range changed {
		records = appendRecord(records, k, s.table.get(k))
	}
	s.mu.RUnlock()
	if _, err := f.Write(records); err != nil {
		return err
	}
	s.appended += len(changed)
	return f.Sync()
}

func appendRecord(to []byte, k key, is state) []byte {
	at := len(to)
	to = binary.BigEndian.AppendUint64(to, uint64(k))
	to = binary.BigEndian.AppendUint32(to, uint32(is))
	return binary.BigEndian.AppendUint32(to, crc32.Checksum(to[at:], castagnoli))
}

// Run saves the set each minute until ctx ends, and then once more, and forgets once a day what is too old. It never fails: what goes wrong
// is logged, and tried again.
func (s *Set) Run(ctx context.Context, log *slog.Logger) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	aged := 0
	return durable.Keep(ctx, SaveEvery, func() error {
		if today := dayOf(time.Now()); aged != today {
			aged = today
			s.age()
		}
		return s.Save()
	}, log, "correspondents are not kept for the next start")
}
