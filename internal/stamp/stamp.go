// Package stamp tells whether a file is still what it was, by what the system says of it and without reading it.
package stamp

import (
	"os"
	"time"
)

// Stamp is what the system says of a file. Two equal stamps are of the same content, if the file was not young when the
// first was taken: a file system's clock has steps.
type Stamp struct {
	Device  uint64 `json:"device"`
	Node    uint64 `json:"node"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	Written int64  `json:"written"` // Unix time in nanoseconds, as the next one
	Changed int64  `json:"changed"` // which the system alone sets, and cp -p cannot
}

// Same reports whether a file is as it was; nil is no file. A file that was rewritten in place and given its old size
// and time is another one wherever the system knows the time of its change.
func Same(was, now os.FileInfo) bool {
	if was == nil || now == nil {
		return was == nil && now == nil
	}
	a, known := Of(was)
	b, _ := Of(now)
	return os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime()) && was.Mode() == now.Mode() && (!known || a == b)
}

// Changed is when the file was changed last: by the system's own record where there is one, else by the time that it
// was written.
func Changed(info os.FileInfo) time.Time {
	if s, ok := Of(info); ok {
		return time.Unix(0, s.Changed)
	}
	return info.ModTime()
}
