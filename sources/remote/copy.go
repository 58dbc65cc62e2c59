package remote

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"blockd/internal/durable"
)

// HiddenFolder holds drafts and receipts, in the folder of the copy. No glob of
// lists takes a name that begins with a dot, and a watch of the copy's folder
// is not woken by every piece of a download.
const HiddenFolder = ".fetch"

// receipt records what is known about a copy, in a file of its own. It counts
// only for the exact content and settings that it was written for. So neither
// a torn receipt, nor one of another daemon, nor an edited copy can
// make a server say "not modified" about content that it has never sent.
type receipt struct {
	Source       string    `json:"source"` // hash of the settings; the URL may hold a password
	SHA256       string    `json:"sha256"` // of the copy
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"last_modified,omitempty"`
	Stored       time.Time `json:"stored"`   // when the server last sent the whole file
	Checked      time.Time `json:"checked"`  // when it was last asked with success
	Modified     time.Time `json:"modified"` // of the copy, as the file system has it
}

// key stands for the settings that a copy depends on. The copy has not been checked
// against a checksum that is new in the settings.
func (s Source) key() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s.URL+"\n"+s.Checksum+"\n"+s.Signature)))
}

func (s *source) newReceipt(h http.Header, sum string, now time.Time) receipt {
	return receipt{
		Source: s.key(), SHA256: sum, Stored: now,
		ETag: validator(h.Get("ETag")), LastModified: validator(h.Get("Last-Modified")),
	}
}

// maxValidator bounds an ETag; those of the common servers have 20 to 70 octets.
const maxValidator = 1 << 10

// validator is text if it can be sent back in a header field, else "".
func validator(text string) string {
	if len(text) > maxValidator || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return text
}

// dateTrust is how long blockd relies on a Last-Modified. A server that puts back an
// older file, for example the one before it was poisoned, may answer a date with "not
// modified" for ever: RFC 9110, section 13.1.3, asks for a newer file, not for another.
// An ETag does not have this fault.
const dateTrust = 24 * time.Hour

// conditions are the fields of RFC 9110, section 13.1, that ask for the file only
// if it is another one; nil if there is nothing to compare with.
func (r receipt) conditions(now time.Time) http.Header {
	if age := now.Sub(r.Stored); r.ETag == "" && (age < 0 || age > dateTrust) {
		return nil
	}
	h := http.Header{}
	if r.ETag != "" {
		h.Set("If-None-Match", r.ETag)
	}
	if r.LastModified != "" {
		h.Set("If-Modified-Since", r.LastModified)
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

// recall hashes the copy and returns its receipt. sum is "" if there is no copy,
// or one too large to be ours; the receipt is zero unless it belongs to this very
// copy and to these settings.
func (s *source) recall() (sum string, r receipt, err error) {
	file, size, err := openRegular(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", receipt{}, nil
	}
	if err != nil {
		return "", receipt{}, err
	}
	defer file.Close()
	if size > s.MaxBytes {
		return "", receipt{}, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", receipt{}, err
	}
	sum = hex.EncodeToString(hash.Sum(nil))
	if r = readReceipt(s.Path); r.Source != s.key() || r.SHA256 != sum {
		r = receipt{}
	}
	return sum, r, nil
}

// readReceipt returns the zero receipt for a file that is no receipt.
func readReceipt(path string) (r receipt) {
	file, size, err := openRegular(receiptPath(path))
	if err != nil {
		return r
	}
	defer file.Close()
	const most = 16 << 10 // two validators, each octet escaped
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil || size > most || json.Unmarshal(text, &r) != nil {
		return receipt{}
	}
	r.ETag, r.LastModified = validator(r.ETag), validator(r.LastModified)
	return r
}

// Checked is when the server last gave or confirmed the copy at Path, as
// far as can be told without reading it. It is zero if there is no copy, or if the
// copy's time shows that another program has put it there since.
func (s Source) Checked() time.Time {
	info, err := os.Stat(s.Path)
	if err != nil {
		return time.Time{}
	}
	r := readReceipt(s.Path)
	if r.Source != s.key() || !r.Modified.Equal(info.ModTime()) {
		return time.Time{}
	}
	return r.Checked
}

// remember writes the receipt.
func (s *source) remember(r receipt) error {
	info, err := os.Stat(s.Path)
	if err != nil {
		return err
	}
	r.Modified = info.ModTime()
	d, err := newDraft(s.Path)
	if err != nil {
		return err
	}
	defer d.discard()
	if err := json.NewEncoder(d.file).Encode(r); err != nil {
		return err
	}
	return d.publish(receiptPath(s.Path))
}

func receiptPath(path string) string {
	return filepath.Join(filepath.Dir(path), HiddenFolder, filepath.Base(path)+".json")
}

// openRegular opens path, if it is a regular file or leads to one, without ever
// waiting for a FIFO's other end.
func openRegular(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// draft is a file that may become a copy, or a receipt.
type draft struct {
	file *os.File
	size int64
	sum  string // SHA-256 in lower case hex
}

// draftMark ends the name of a draft.
const draftMark = ".part"

// newDraft opens a draft for path, whose folder it makes if need be. The name is
// unique. The mode is 0644 less the umask, as of any download, in a folder
// that only this user may enter.
func newDraft(path string) (*draft, error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	folder = filepath.Join(folder, HiddenFolder)
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, rand.Text()+draftMark), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &draft{file: file}, nil
}

// publish renames the draft to path when it is safe on the disk.
func (d *draft) publish(path string) error { return durable.Rename(d.file, path) }

// discard ends the draft, and removes it unless it was published.
func (d *draft) discard() {
	d.file.Close()
	os.Remove(d.file.Name())
}

// staleAge is the age of an abandoned draft. A draft that is being written
// is never left alone for longer than silence.
const staleAge = time.Hour

// removeStale removes the drafts that a crash has left in the folder of path.
func removeStale(path string) {
	folder := filepath.Join(filepath.Dir(path), HiddenFolder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // it is not there yet
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), draftMark) && time.Since(info.ModTime()) > staleAge {
			os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}
