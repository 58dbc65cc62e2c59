package filter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A file NAME.rbd holds the answers of BF.SCANDUMP, for BF.LOADCHUNK, one after another:
// iterator (8 octets) and length (4), both with the lowest octet first, and the data.

const chunkHead = 12

func writeChunk(w io.Writer, iterator uint64, data []byte) error {
	head := binary.LittleEndian.AppendUint64(nil, iterator)
	if _, err := w.Write(binary.LittleEndian.AppendUint32(head, uint32(len(data)))); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// nextChunk cuts the first chunk off.
func nextChunk(all []byte) (iterator uint64, data, rest []byte, err error) {
	if len(all) < chunkHead {
		return 0, nil, nil, fmt.Errorf("ends within the head of a chunk")
	}
	iterator, size := binary.LittleEndian.Uint64(all), binary.LittleEndian.Uint32(all[8:])
	all = all[chunkHead:]
	if uint64(size) > uint64(len(all)) {
		return 0, nil, nil, fmt.Errorf("ends within the chunk %d: %d octets of %d", iterator, len(all), size)
	}
	return iterator, all[:size:size], all[size:], nil
}

var chunkName = regexp.MustCompile(`^(.+)-([0-9]+)\.chunk$`)

// joinChunks reads the files NAME-ITERATOR.chunk of a folder into the form of a .rbd.
// Without a name there must be one NAME only.
func joinChunks(folder, name string) ([]byte, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	type chunk struct {
		iterator uint64
		file     string
	}
	chunks := map[string][]chunk{}
	for _, e := range entries {
		m := chunkName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if iterator, err := strconv.ParseUint(m[2], 10, 64); err == nil {
			chunks[m[1]] = append(chunks[m[1]], chunk{iterator, e.Name()})
		}
	}
	var names []string
	for n := range chunks {
		names = append(names, n)
	}
	slices.Sort(names)
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("%s has the chunks of several filters; name one, such as %s", folder, filepath.Join(folder, names[0]))
	}
	if len(chunks[name]) == 0 {
		return nil, fmt.Errorf("%s has no files NAME-ITERATOR.chunk", strings.TrimSuffix(folder+"/"+name, "/"))
	}
	slices.SortFunc(chunks[name], func(a, b chunk) int {
		if a.iterator < b.iterator {
			return -1
		}
		return 1
	})
	var all bytes.Buffer
	for _, c := range chunks[name] {
		data, err := readFile(filepath.Join(folder, c.file))
		if err != nil {
			return nil, err
		}
		if err := writeChunk(&all, c.iterator, data); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}
