package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"blockd/internal/stamp"
	"blockd/sources/mirror"
)

// file is what can be seen of a database without opening it as one.
type file struct {
	info  fs.FileInfo
	ahead bool        // it is in WAL mode
	log   fs.FileInfo // of its write-ahead log; nil = there is none
}

// look judges the file. An error says why there is no database.
func look(path string) (f file, err error) {
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hold it up
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, &mirror.Error{Class: mirror.ClassUnreachable, Err: fmt.Errorf("%s does not exist; hint: the program that writes it makes it, blockd only reads", path)}
	case errors.Is(err, fs.ErrPermission):
		return f, &mirror.Error{Class: mirror.ClassAuth, Err: fmt.Errorf("%s may not be read; hint: give blockd's user or group the right to read it", path)}
	case err != nil:
		return f, &mirror.Error{Class: mirror.ClassUnreachable, Err: err}
	}
	defer in.Close()
	if f.info, err = in.Stat(); err != nil {
		return f, &mirror.Error{Class: mirror.ClassUnreachable, Err: err}
	}
	head := make([]byte, 20)
	if _, err := io.ReadFull(in, head); err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3\x00")) {
		return f, &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("%s is no SQLite database", path)}
	}
	if f.ahead = head[19] == 2; f.ahead {
		f.log, err = os.Stat(path + "-wal")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, &mirror.Error{Class: mirror.ClassAuth, Err: fmt.Errorf("%s-wal: %w", path, err)}
		}
	}
	return f, nil
}

// still reports that no program has the database open, though several could at once. It is read as it lies there, since
// opening it in WAL mode would make files beside it.
func (f file) still() bool { return f.ahead && f.log == nil }

// same reports that nothing has been written between f and now, as far as times of files tell.
func (f file) same(now file) bool {
	return f.info != nil && f.ahead == now.ahead && stamp.Same(f.info, now.info) && stamp.Same(f.log, now.log)
}

// written is when the database was written last.
func (f file) written() time.Time {
	if f.log != nil && f.log.ModTime().After(f.info.ModTime()) {
		return f.log.ModTime()
	}
	return f.info.ModTime()
}

// inode names the file among all of this machine.
func (f file) inode() string {
	if st, ok := f.info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return ""
}
