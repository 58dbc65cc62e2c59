package live

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"blockd/index"
	"blockd/internal/durable"
	"blockd/lists"
)

// fold is a list file of all entries up to a number.
type fold struct {
	number uint64   // the number of its record
	hash   [16]byte // the file's hash, as the index records it
	upTo   uint64
}

// keptFolds is how many are remembered: a build may still read the one before the last, and the
// index on disk may be of an older one.
const keptFolds = 4

func keepFolds(all []fold) []fold { return slices.Clone(all[max(0, len(all)-keptFolds):]) }

func foldOf(r *record) (f fold, err error) {
	hash, err := hex.DecodeString(r.Hash)
	if err != nil || len(hash) != len(f.hash) || r.UpTo >= r.N {
		return f, errors.New("no fold")
	}
	return fold{r.N, [16]byte(hash), r.UpTo}, nil
}

func (f fold) record() record {
	return record{N: f.number, Op: opFold, Hash: hex.EncodeToString(f.hash[:]), UpTo: f.upTo}
}

// ListPattern is the path of the list file for builds, if there is one. It is a plain list named
// ListName, whose guard is nil: the entries have passed the gate.
func ListPattern(folder string) string { return filepath.Join(listFolder(folder), "*.list") }

// The list file has a folder of its own, so that a Reloader that watches it does not wake up at
// every line of the journal.
func listFolder(folder string) string { return filepath.Join(folder, "folded") }

func listPath(folder string) string { return filepath.Join(listFolder(folder), "live.list") }

// Fold writes all entries as a list for the build that is about to begin, unless the file is up
// to date. It reports whether it has written the file.
//
// Entries that are added meanwhile are not in it; nothing waits for it. Expired entries are in
// it until they are swept: what the index says of them does not count, see Amend.
func (s *Set) Fold(ctx context.Context) (bool, error) {
	s.folding.Lock()
	defer s.folding.Unlock()
	items, upTo, current := s.toFold()
	if current {
		return false, nil
	}
	path := listPath(s.folder)
	err := durable.Replace(path, 0o600, func(file io.Writer) error {
		out := bufio.NewWriterSize(file, 64<<10)
		w, err := lists.NewWriter(out, "plain", fmt.Sprintf("Live entries up to number %d, for the index.\nChange them with blockd add and blockd remove: this file is written anew.", upTo))
		if err != nil {
			return err
		}
		for it := range items {
			if _, err := w.Write(&it); err != nil {
				return fmt.Errorf("live entry %s: %w", it.Name(), err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return errors.Join(w.Close(), out.Flush())
	})
	if err != nil {
		return false, err
	}
	hash, err := lists.HashFile(ctx, path)
	if err != nil {
		return false, err
	}
	return true, s.folded(fold{hash: hash, upTo: upTo})
}

// toFold returns what a list file made now would hold, and whether the last one holds that
// already.
func (s *Set) toFold() (items iter.Seq[lists.Item], upTo uint64, current bool) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.yielded {
		return nil, 0, true // the other process does that
	}
	_, err := os.Stat(listPath(s.folder))
	if there := err == nil; s.Len() == 0 && !there || s.foldedAt > 0 && s.foldedAt >= s.shared && there {
		return nil, 0, true
	}
	return s.view.Load().items(), s.last, false
}

// folded records a list file in the journal. An index built from that file has all its
// entries.
func (s *Set) folded(f fold) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	f.number = s.last + 1
	if err := s.write([]record{f.record()}); err != nil {
		return err
	}
	if s.shared <= f.upTo {
		s.foldedAt = f.number
	}
	s.last = f.number
	s.folds = keepFolds(append(s.folds, f))
	return nil
}

// Served records that ix serves from now on. Look-ups in ix then search only the entries that
// are newer than the list file that ix was built from. Look-ups in any other index search all
// entries. A nil Set ignores it.
func (s *Set) Served(ix *index.Index) {
	if s == nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	upTo := uint64(0)
	for _, row := range ix.Lists() {
		if row.Source.List != ListName || row.Summary.Verdict != lists.Loaded {
			continue
		}
		for _, f := range s.folds {
			if f.hash == row.Summary.Hash {
				upTo = f.upTo
			}
		}
	}
	s.view.Store(s.view.Load().serving(ix.Generation(), upTo, withRow(ix.Lists(), s.folder)))
}
