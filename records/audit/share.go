package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"

	"blockd/internal/durable"
	"blockd/internal/share"
)

// A journal that is full makes room by taking out lines of those who have the most of it, their oldest first, until
// all of these have about the same. So somebody who changes things without end pushes out what he has done himself,
// and nobody else's lines. In place of lines that go stands a gap, so that the chain goes on, and Verify tells how
// many went, and whose.

// gap stands for lines that have gone. Only the oldest ones of somebody go: before it there are none of his.
type gap struct {
	Gone     map[string]int64 `json:"gone"` // how many, by who was authenticated
	Previous string           `json:"previous"`
	Hash     string           `json:"hash"` // of the last one
}

const (
	gapHead  = `{"gone":`
	mostGone = 100 // names of a gap: it is no longer than a line
)

// gapOf reads a line without its end, if it is a gap.
func gapOf(text []byte) (g gap, is bool) {
	is = bytes.HasPrefix(text, []byte(gapHead)) && json.Unmarshal(text, &g) == nil
	return g, is
}

// holdings are the octets that each has in a file, by who was authenticated, and its size. Gaps have the rest.
type holdings struct {
	size int64
	of   map[string]int64
}

// held reads the holdings of a file, unless they are known from the last time.
func (l *Log) held(number int) (h holdings, err error) {
	info, err := os.Stat(l.file(number))
	if err != nil {
		return h, err
	}
	if known, is := l.holds[number]; is && known.size == info.Size() {
		return known, nil
	}
	text, err := os.ReadFile(l.file(number))
	if err != nil {
		return h, err
	}
	h = holdings{int64(len(text)), map[string]int64{}}
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(gapHead)) {
			h.of[whoseLine(line)] += int64(len(line))
		}
	}
	if l.holds == nil {
		l.holds = map[int]holdings{}
	}
	l.holds[number] = h
	return h, nil
}

// whoseLine is who was authenticated, of a line of whatever version; "" of one that is damaged.
func whoseLine(line []byte) string {
	for _, name := range []string{`,"who":`, `,"by":`} { // within a text a quote has a backslash before it
		if _, text, found := bytes.Cut(line, []byte(name)); found {
			var value string
			if json.NewDecoder(bytes.NewReader(text)).Decode(&value) != nil {
				return ""
			}
			return WhoOf(value)
		}
	}
	return ""
}

// share makes room in the older files, so that all have most octets. The caller holds the lock.
func (l *Log) share(files []int, most int64) error {
	have, lines, total := map[string]int64{}, int64(0), int64(0)
	for _, number := range files {
		h, err := l.held(number)
		if err != nil {
			return err
		}
		total += h.size
		for who, n := range h.of {
			have[who] += n
			lines += n
		}
	}
	if total <= most {
		return nil
	}
	level := share.Level(maps.Values(have), most-most/8-(total-lines)) // an eighth is for what comes next
	surplus := map[string]int64{}
	for who, n := range have {
		if n > level {
			surplus[who] = n - level
		}
	}
	first := true // no line is left before
	for _, number := range files {
		left, err := l.thin(number, first, surplus)
		if err != nil {
			return err
		}
		first = first && !left
	}
	return nil
}

// thin takes the oldest lines of those with a surplus out of a file. The first file need not begin with a gap, and
// goes if nothing else is left of it: then left is false.
func (l *Log) thin(number int, first bool, surplus map[string]int64) (left bool, err error) {
	has, wanted := l.holds[number].of, false
	for who := range has {
		wanted = wanted || surplus[who] > 0
	}
	if !wanted && !(first && len(has) == 0) {
		return true, nil
	}
	text, err := os.ReadFile(l.file(number))
	if err != nil {
		return true, err
	}
	t := thinned{first: first}
	for line := range bytes.Lines(text) {
		body := bytes.TrimSuffix(line, []byte("\n"))
		if g, is := gapOf(body); is {
			t.leaveOut(g)
			continue
		}
		if who := whoseLine(line); surplus[who] > 0 {
			if whole, err := parse(body); err == nil { // what is damaged stays, for Verify
				surplus[who] -= int64(len(line))
				t.leaveOut(gap{map[string]int64{who: 1}, whole.Previous, whole.Hash})
				continue
			}
		}
		t.close()
		t.text = append(t.text, line...)
	}
	t.close()
	delete(l.holds, number)
	if len(t.text) == 0 {
		return false, errors.Join(os.Remove(l.file(number)), durable.SyncFolder(l.settings.Folder))
	}
	return true, rewrite(l.file(number), t.text)
}

// thinned is what is left of a file.
type thinned struct {
	first bool
	text  []byte
	open  *gap // that goes on
}

// leaveOut makes a gap longer, or begins one.
func (t *thinned) leaveOut(g gap) {
	if t.open != nil && (t.open.Hash != g.Previous || len(t.open.Gone) >= mostGone) {
		t.close()
	}
	if t.open == nil {
		t.open = &gap{Gone: map[string]int64{}, Previous: g.Previous}
	}
	t.open.Hash = g.Hash
	for who, n := range g.Gone {
		t.open.Gone[who] += n
	}
}

// close ends a gap.
func (t *thinned) close() {
	if t.open != nil && !(t.first && len(t.text) == 0) {
		line, _ := json.Marshal(t.open) // texts and numbers
		t.text = append(append(t.text, line...), '\n')
	}
	t.open = nil
}

// rewrite puts text in place of a file, which stays as old as it is.
func rewrite(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	d, err := durable.Create(path, 0o640)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := d.Write(text); err != nil {
		return err
	}
	if err := errors.Join(os.Chtimes(d.Name(), info.ModTime(), info.ModTime()), d.Sync()); err != nil {
		return err
	}
	return d.Commit()
}
