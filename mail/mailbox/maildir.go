package mailbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"blockd/internal/durable"
)

// staleAfter is the age at which a file in tmp/ is nobody's any more; the
// number is that of the Maildir convention (maildir(5)).
const staleAfter = 36 * time.Hour

// maildir is the folder on disk. It is safe for concurrent use, also together
// with other programs that deliver into the same folder.
type maildir struct {
	dir    string
	host   string // as it may stand in a file name
	unique string // of this maildir value: process and random number
	seq    atomic.Uint64

	// create opens a new file; tests put a full disk in its place.
	create func(path string) (*os.File, error)
}

// maxHost is how much of the host's name a file name shows: that may have 255
// octets on common file systems, of which what goes before takes up to 70.
const maxHost = 64

// openMaildir makes the folders, removes stale files and proves that a message
// could be written: an operator should learn of it at the start.
func openMaildir(dir, host string, log *slog.Logger) (*maildir, error) {
	m := &maildir{
		dir:    dir,
		host:   strings.NewReplacer("/", `\057`, ":", `\072`).Replace(host[:min(len(host), maxHost)]),
		unique: fmt.Sprintf("P%dR%s", os.Getpid(), rand.Text()[:8]),
		create: func(path string) (*os.File, error) {
			return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		},
	}
	for _, sub := range [...]string{"tmp", "new", "cur"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if err := m.removeStale(time.Now().Add(-staleAfter), log); err != nil {
		return nil, err
	}
	d, err := m.begin()
	if err != nil {
		return nil, err
	}
	d.abort()
	// The names of new folders must survive a crash as the messages in them do.
	return m, errors.Join(durable.SyncFolder(dir), durable.SyncFolder(filepath.Dir(dir)))
}

// removeStale removes the files in tmp/ that were not touched since before.
func (m *maildir) removeStale(before time.Time, log *slog.Logger) error {
	tmp := filepath.Join(m.dir, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			continue // gone meanwhile, or in use
		}
		if err := os.Remove(filepath.Join(tmp, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		log.Info("stale delivery removed", slog.String("file", e.Name()))
	}
	return nil
}

// delivery is one message on its way into the Maildir: begin, write to file,
// sync, commit. abort undoes it, and does nothing after commit.
type delivery struct {
	maildir *maildir
	id      string // the file's name, but for the host
	path    string // in tmp/; "" when there is nothing to abort
	file    *os.File
}

// begin creates the file in tmp/. Its name follows the Maildir convention: time,
// then what makes it unique on this host, then the host.
func (m *maildir) begin() (*delivery, error) {
	now := time.Now()
	id := fmt.Sprintf("%d.M%06d%sQ%d", now.Unix(), now.Nanosecond()/1000, m.unique, m.seq.Add(1))
	path := filepath.Join(m.dir, "tmp", id+"."+m.host)
	file, err := m.create(path)
	if err != nil {
		return nil, err
	}
	return &delivery{maildir: m, id: id, path: path, file: file}, nil
}

// sync brings the content to the disk. No write may follow.
func (d *delivery) sync() error {
	return errors.Join(d.file.Sync(), d.file.Close())
}

// commit moves the file into new/, where readers look. Once it has returned nil,
// a crash does not undo it.
func (d *delivery) commit() error {
	folder := filepath.Join(d.maildir.dir, "new")
	path := filepath.Join(folder, filepath.Base(d.path))
	if err := os.Rename(d.path, path); err != nil {
		return err
	}
	if err := durable.SyncFolder(folder); err != nil {
		// The client will be told to come again: take the message back, unless
		// a reader was faster.
		d.path = path
		return err
	}
	d.path = ""
	return nil
}

// abort removes the file.
func (d *delivery) abort() {
	if d.path == "" {
		return
	}
	d.file.Close() // twice after sync
	os.Remove(d.path)
	d.path = ""
}
