package history

import (
	"bytes"
	"errors"
)

// OpenFollowing opens a history that another process has and will yield: as if this one had yielded it. Nothing may be added
// before Resume.
func OpenFollowing(s Settings) (*Log, error) {
	l, err := newLog(s)
	if err == nil {
		l.relay = func([]byte) error { return ErrLocked }
	}
	return l, err
}

// Yield lets another process open the history. What was decided before is in the files; what is decided from here on is
// given to relay, in whole lines for that process's AddLines, by the goroutine of Run or Flush. After an error of relay this
// process writes them, if the other one has left the folder; else the error counts like one of the disk. Yield once, and then Close or Resume. A nil Log has nothing to yield.
func (l *Log) Yield(relay func(lines []byte) error) error {
	if l == nil {
		return nil
	}
	err := l.Flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.lock == nil {
		return nil
	}
	if l.file != nil {
		l.finish()
	}
	err = errors.Join(err, l.lock.Close())
	l.lock, l.relay = nil, relay
	return err
}

// Resume takes the history back after Yield; ErrLocked while another process has it.
func (l *Log) Resume() error {
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.takeBack()
}

// takeBack is Resume for one that holds writing.
func (l *Log) takeBack() error {
	if l.relay == nil {
		return nil
	}
	held, err := lockOf(l.settings.Folder)
	if err != nil {
		return err
	}
	l.lock, l.relay = held, nil
	return l.resume()
}

// AddLines adds decisions of another process that has yielded the history to this one. A damaged line is left out, and
// counted like one that could not be written.
func (l *Log) AddLines(lines []byte) {
	if l == nil {
		return
	}
	for line := range bytes.Lines(lines) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		var r Record
		if !summed(line) || parseLine(string(line[sumSize:]), &r) != nil {
			l.failed.Add(1)
			continue
		}
		l.Add(r)
	}
}
