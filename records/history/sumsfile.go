package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/internal/durable"
)

const (
	// sumsSuffix ends the name of a segment's sums, after its number, and seedName is the file of their seed.
	sumsSuffix = ".sums"
	seedName   = "sums.seed"

	// maxSumsHead bounds what is read of a file before its groups.
	maxSumsHead = 4 << 20
)

func sumsPath(folder string, number uint64) string {
	return strings.TrimSuffix(segmentPath(folder, number), suffix) + sumsSuffix
}

// errSums reports a file that cannot be used: its segment is read in its place.
var errSums = errors.New("no sums of this segment")

// seedOf reads the folder's random seed, by which names are hashed. If there is none, it writes one where makes is set, and fails else.
// Whoever sends mail does not know it, and so cannot choose names with equal hashes.
func seedOf(folder string, makes bool) (uint64, error) {
	path := filepath.Join(folder, seedName)
	text, err := os.ReadFile(path)
	switch {
	case err == nil && len(text) == 8:
		return binary.LittleEndian.Uint64(text), nil
	case !makes:
		return 0, errSums
	}
	text = make([]byte, 8)
	rand.Read(text) // it never fails
	if err := durable.WriteFile(path, text, 0o600); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(text), nil
}

// sumsFile are sums on disk, of which the head is in memory.
type sumsFile struct {
	sums
	file   *os.File
	groups [6]sumsPart // rows
	grams  sumsPart
}

// sumsPart is where a part of the file stands, and its checksum.
type sumsPart struct {
	offset int64
	hash   uint64
}

// openSums opens the sums of a segment as it is.
func openSums(folder string, s segment) (*sumsFile, error) {
	f, err := os.Open(sumsPath(folder, s.number))
	if err != nil {
		return nil, err
	}
	o := &sumsFile{file: f}
	if err := o.read(s); err != nil {
		f.Close()
		return nil, err
	}
	return o, nil
}

func (o *sumsFile) read(s segment) error {
	start := len(sumsHeadText) + binary.Size(o.head) + 4
	text := make([]byte, start)
	if _, err := io.ReadFull(io.NewSectionReader(o.file, 0, int64(start)), text); err != nil || !bytes.HasPrefix(text, []byte(sumsHeadText)) {
		return errSums
	}
	binary.Read(bytes.NewReader(text[len(sumsHeadText):]), binary.LittleEndian, &o.head) // it is long enough
	length := binary.LittleEndian.Uint32(text[start-4:])
	if o.head.Number != s.number || o.head.Size != s.size || o.head.Written != s.written.UnixNano() || length > maxSumsHead || o.head.Facets > mostFacets ||
		o.head.Grams < 8 || o.head.Grams > mostGrams {
		return errSums
	}
	text = append(text, make([]byte, length+8+8*7)...)
	if _, err := io.ReadFull(io.NewSectionReader(o.file, int64(start), int64(len(text)-start)), text[start:]); err != nil {
		return errSums
	}
	end := start + int(length)
	if xxh3.Hash(text[:end]) != binary.LittleEndian.Uint64(text[end:]) {
		return errSums
	}
	facets := text[start:end]
	for range o.head.Facets {
		var f facet
		for _, to := range []*string{&f.door, &f.outcome, &f.verdict, &f.list} {
			n, size := binary.Uvarint(facets)
			if size <= 0 || n > uint64(len(facets)-size) {
				return errSums
			}
			*to, facets = string(facets[size:size+int(n)]), facets[size+int(n):]
		}
		n, size := binary.Uvarint(facets)
		if size <= 0 {
			return errSums
		}
		f.decisions, facets = n, facets[size:]
		o.facets = append(o.facets, f)
	}
	at, hashes := int64(len(text)), text[end+8:]
	for i, rows := range o.head.Rows {
		o.groups[i] = sumsPart{at, binary.LittleEndian.Uint64(hashes[8*i:])}
		at += int64(rows) * sumRow
	}
	o.grams = sumsPart{at, binary.LittleEndian.Uint64(hashes[8*6:])}
	return nil
}

// sumUp writes the sums of segments that have none, the newest first, until ctx ends. It works a quarter of the time.
func (l *Log) sumUp(ctx context.Context, log *slog.Logger) {
	told := false
	for {
		err := l.sumSegments(ctx)
		if err != nil && ctx.Err() == nil && !told {
			log.Warn("counts of the history are not kept: those over weeks take longer", slog.Any("error", err))
		}
		told = err != nil
		select {
		case <-l.finished:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Log) sumSegments(ctx context.Context) error {
	l.writing.Lock()
	older, ours := append([]segment{}, l.older...), l.lock != nil
	l.writing.Unlock()
	if !ours || len(older) == 0 {
		return nil
	}
	seed, err := seedOf(l.settings.Folder, true)
	if err != nil {
		return err
	}
	var faults error // one file that cannot be summed does not keep the others from it
	for i := len(older) - 1; i >= 0; i-- {
		began := time.Now()
		made, err := l.sumSegment(older[i], seed)
		if err != nil {
			faults = errors.Join(faults, err)
			continue
		}
		if !made {
			continue
		}
		select {
		case <-time.After(3 * time.Since(began)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(faults, l.dropSums(older))
}

// sumSegment writes the sums of one segment, if they are not there.
func (l *Log) sumSegment(s segment, seed uint64) (made bool, err error) {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	s.size, s.written = info.Size(), info.ModTime()
	if o, err := openSums(l.settings.Folder, s); err == nil {
		return false, o.file.Close()
	}
	sums, err := sumOf(s, seed, -1, walker{})
	if err != nil {
		return true, err
	}
	if len(sums.facets) > mostFacets {
		sums.crowd()
	}
	if now, err := os.Stat(s.path); err != nil || now.Size() != s.size || !now.ModTime().Equal(s.written) {
		return true, nil // it has been shortened meanwhile
	}
	if err := durable.WriteFile(sumsPath(l.settings.Folder, s.number), sums.text(), 0o600); err != nil {
		return true, fmt.Errorf("sums: %w", err)
	}
	return true, nil
}

// dropSums removes sums whose segments have gone.
func (l *Log) dropSums(older []segment) error {
	files, err := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix))
	for _, path := range files {
		if _, gone := os.Stat(strings.TrimSuffix(path, sumsSuffix) + suffix); errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
