package runs

import (
	"bytes"
	"os"
	"slices"
)

// Parts takes lines in any order, and keeps those of each part apart: in memory, and what is more in one temporary file. A part that is
// sorted by itself needs no merge of all, and another one can be sorted meanwhile.
type Parts struct {
	folder string
	size   int
	text   [][]byte // that is not in the temporary file
	more   *os.File // nil = all is in memory
	end    int64    // of more
	pieces [][]piece
}

// piece is a place in the temporary file, of whole lines of one part.
type piece struct{ from, size int64 }

// NewParts makes so many parts, with their temporary file in folder, "" = the system's. It has no name, so it goes with the
// process. size is what a part may take in memory, in octets.
func NewParts(folder string, count, size int) *Parts {
	return &Parts{folder: folder, size: size, text: make([][]byte, count), pieces: make([][]piece, count)}
}

// Add puts a line, with its end, into a part. It copies it. The error is about the disk.
func (p *Parts) Add(n int, line []byte) error {
	if size := len(p.text[n]); size > 0 && size+len(line) > p.size {
		if err := p.spill(n); err != nil {
			return err
		}
	}
	p.text[n] = append(p.text[n], line...)
	return nil
}

// spill writes what is in memory of a part into the file.
func (p *Parts) spill(n int) error {
	if p.more == nil {
		f, err := os.CreateTemp(p.folder, ".sort.*")
		if err != nil {
			return err
		}
		p.more = f
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	if _, err := p.more.WriteAt(p.text[n], p.end); err != nil {
		return err
	}
	size := int64(len(p.text[n]))
	p.pieces[n] = append(p.pieces[n], piece{p.end, size})
	p.end += size
	p.text[n] = p.text[n][:0]
	return nil
}

// Sort gives the lines of a part to a Sorter. Other goroutines may sort other parts.
func (p *Parts) Sort(n int, sorter *Sorter) error {
	add := func(text []byte) error {
		for line := range bytes.Lines(text) {
			if err := sorter.Add(line); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(p.text[n]); err != nil {
		return err
	}
	text := p.text[n]
	p.text[n] = nil
	for _, at := range p.pieces[n] {
		text = slices.Grow(text[:0], int(at.size))[:at.size]
		if _, err := p.more.ReadAt(text, at.from); err != nil {
			return err
		}
		if err := add(text); err != nil {
			return err
		}
	}
	return nil
}

// Close gives the file back.
func (p *Parts) Close() {
	if p.more != nil {
		p.more.Close()
	}
}
