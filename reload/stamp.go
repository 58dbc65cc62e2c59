package reload

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"blockd/internal/durable"
	"blockd/internal/stamp"
)

// stampsSuffix makes of an index file's name that of the file which has the stamps of large sources with
// the hashes of their contents. A start then reads no list that has not changed since the last look.
const stampsSuffix = ".stamps"

// stampedFrom is the size of a source, in octets, from which its stamp is kept: a smaller one is read in
// less than a millisecond.
const stampedFrom = 1 << 20

// stamped is a stamp with the hash of the content.
type stamped struct {
	stamp.Stamp
	hash [16]byte
}

// stampLine is a line of the file, or its last one, which has the sum of all before it.
type stampLine struct {
	Path string `json:"path,omitempty"`
	stamp.Stamp
	Hash string `json:"hash,omitempty"`
	Sum  string `json:"sum,omitempty"`
}

var errStampsTorn = errors.New("the file is torn or of another kind")

// readStamps reads the stamps beside the index at path. Without a file there are none.
func readStamps(path string) (map[string]stamped, error) {
	text, err := readBounded(path + stampsSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseStamps(text)
}

func parseStamps(text []byte) (map[string]stamped, error) {
	at := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	var end stampLine
	if err := json.Unmarshal(text[at:], &end); err != nil || end.Sum != checksum(text[:at]) {
		return nil, errStampsTorn
	}
	all := map[string]stamped{}
	for line := range bytes.Lines(text[:at]) {
		var l stampLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, errStampsTorn
		}
		s := stamped{Stamp: l.Stamp}
		hash, err := hex.DecodeString(l.Hash)
		if err != nil || len(hash) != len(s.hash) {
			return nil, errStampsTorn
		}
		s.hash = [16]byte(hash)
		all[l.Path] = s
	}
	return all, nil
}

func writeStamps(path string, all map[string]stamped) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		s := all[path]
		if err := enc.Encode(stampLine{Path: path, Stamp: s.Stamp, Hash: hex.EncodeToString(s.hash[:])}); err != nil {
			return err
		}
	}
	if err := enc.Encode(stampLine{Sum: checksum(text.Bytes())}); err != nil {
		return err
	}
	return durable.WriteFile(path+stampsSuffix, text.Bytes(), 0o600)
}

// keep writes the stamps of the large sources, if they are others than those of the file. One that has changed
// just before now is left out: it may change once more within a tick of the file system's clock.
func (c *fileCache) keep(path string, at time.Time) error {
	now := map[string]stamped{}
	for path, hash := range c.hashes {
		if info := c.seen[path]; info != nil && info.Size() >= stampedFrom {
			if s, ok := stamp.Of(info); ok && at.Sub(time.Unix(0, s.Changed)) > coarse {
				now[path] = stamped{s, hash}
			}
		}
	}
	if maps.Equal(now, c.kept) {
		return nil
	}
	err := writeStamps(path, now)
	if err == nil {
		c.kept = now
	}
	return err
}
