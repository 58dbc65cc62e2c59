package build

import "os"

// writeBehind brings a file to the disk while it is written, so that the sync at
// the end, which must wait for the disk, has little left to wait for.
type writeBehind struct {
	ends chan int64
	done chan struct{}
}

// newWriteback begins at offset from of f. end it before f is closed.
func newWriteback(f *os.File, from int64) *writeBehind {
	b := &writeBehind{ends: make(chan int64, 1), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for end := range b.ends {
			if end-from >= writeback {
				startWriting(f, from, end-from)
				from = end
			}
		}
	}()
	return b
}

// wrote says that the file is written up to about end. It never waits: what is not
// said now is said by the next one.
func (b *writeBehind) wrote(end int64) {
	select {
	case b.ends <- end:
	default:
	}
}

func (b *writeBehind) end() {
	close(b.ends)
	<-b.done
}
