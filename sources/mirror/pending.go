package mirror

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"blockd/lists"
)

const (
	// maxPending bounds the changes that wait for their files, in octets. More of them are better read as a whole: 4 MiB
	// are some 50,000 entries, and touch every file.
	maxPending = 4 << 20
	maxJournal = 4 * maxPending // with the heads of blocks, and batches about the same entries
)

// pending are changes that are in the journal and not yet in the files: by key and scope all lines that there are now.
type pending struct {
	lines map[string][]string
	size  int
}

// put takes in what the source says now of a key and scope, "KEY TAB SCOPE".
func (p *pending) put(id string, lines []string) {
	if p.lines == nil {
		p.lines = map[string][]string{}
	}
	old, known := p.lines[id]
	if !known {
		p.size += len(id)
	}
	for _, line := range old {
		p.size -= len(line)
	}
	for _, line := range lines {
		p.size += len(line)
	}
	p.lines[id] = lines
}

// entries is how many there are among the changes.
func (p *pending) entries() (n int64) {
	for _, lines := range p.lines {
		n += int64(len(lines))
	}
	return n
}

// split are the changes by their files.
func (p *pending) split() (parts [files]pending) {
	for id, lines := range p.lines {
		parts[fileOf(keyOf([]byte(id)))].put(id, lines)
	}
	return parts
}

// over gives sorted lines with the changes in the place of those that they are about.
func (p *pending) over(lines iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	if len(p.lines) == 0 {
		return lines
	}
	var come []string
	for _, lines := range p.lines {
		come = append(come, lines...)
	}
	slices.Sort(come)
	return func(yield func([]byte, error) bool) {
		for line, err := range lines {
			for ; err == nil && len(come) > 0 && come[0] < string(line); come = come[1:] {
				if !yield([]byte(come[0]), nil) {
					return
				}
			}
			if err == nil && p.has(line) {
				continue
			}
			if !yield(line, err) {
				return
			}
		}
		for _, line := range come {
			if !yield([]byte(line), nil) {
				return
			}
		}
	}
}

// has reports whether a line is about what has changed.
func (p *pending) has(line []byte) bool {
	_, ok := p.lines[keyScope(line)]
	return ok
}

// replay takes in a batch of the journal.
func (p *pending) replay(text []byte) {
	id, lines := "", []string(nil)
	for line := range strings.Lines(string(text)) {
		if next, begins := strings.CutPrefix(line, "=\t"); begins && strings.Count(next, "\t") == 1 {
			if id != "" {
				p.put(id, lines)
			}
			id, lines = strings.TrimSuffix(next, "\n"), nil
			continue
		}
		lines = append(lines, line)
	}
	if id != "" {
		p.put(id, lines)
	}
}

// keyScope is what changes of a line of entries go by: "KEY TAB SCOPE".
func keyScope(line []byte) string {
	id := lists.EntryLineID(line)
	key, rest := id[:len(id)-len("\ta\ts")], id[len(id)-1]
	return string(key) + "\t" + string(rest)
}

// fileOf is the file of a key.
func fileOf(key []byte) int { return lists.EntryShard(key) }

// keyOf is the key of a line of entries, or of a keyScope.
func keyOf(line []byte) []byte {
	key, _, _ := bytes.Cut(line, []byte("\t"))
	return key
}

// byFile are the changes by their files, each with the lines to add in order.
func (p *pending) byFile() (touched [files]*change) {
	for id, lines := range p.lines {
		n := fileOf(keyOf([]byte(id)))
		if touched[n] == nil {
			touched[n] = &change{gone: map[string]bool{}}
		}
		touched[n].gone[id] = true
		touched[n].come = append(touched[n].come, lines...)
	}
	for _, c := range touched {
		if c != nil {
			slices.Sort(c.come)
		}
	}
	return touched
}

// change is what has changed in one file.
type change struct {
	gone map[string]bool // by keyScope: the old lines go
	come []string        // sorted
}

// encode is the batch of changes as the journal has it.
func encode(ids []string, lines map[string][]string, mark Mark) []byte {
	var b bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&b, "=\t%s\n", id)
		for _, line := range lines[id] {
			b.WriteString(line)
		}
	}
	fmt.Fprintf(&b, ".\t%q\n", string(mark))
	return b.Bytes()
}
