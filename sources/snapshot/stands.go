package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// againFile is there while what a person has published again stands: see Again.
const againFile = "again"

// ErrStands says that what a person has published again stands, and nothing is published by itself: the lists may still have what was taken
// back.
var ErrStands = errors.New("an earlier sequence was published again, and stands: what the lists have goes out with blockd publish")

// againMark stands behind the version of the publisher in the manifest of what a person has published again, before
// the number that it had: nodes take that as it is, and older ones read no other member than they know.
const againMark = " again "

// Again is the sequence that a person has published again as this one; 0 = none.
func (m *Manifest) Again() int64 {
	_, number, _ := strings.Cut(m.Publisher.Version, againMark)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Stands reports whether what a person has published again stands, by the word of a publisher's folder. It takes no lock.
func Stands(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, againFile))
	return err == nil
}

// release ends that.
func (p *Publisher) release() error {
	if err := os.Remove(p.path(againFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// aging reports whether the last sequence is to be made anew before it ends.
func (p *Publisher) aging() bool {
	return p.last != nil && time.Since(time.Unix(p.last.Created, 0))+p.aged >= Life/2
}

// renewed publishes the last sequence anew.
func (p *Publisher) renewed(ctx context.Context, told *Published) (*Published, error) {
	m := *p.last
	// Stages that are not over yet begin anew.
	told.Eases = len(m.Stages) == 1 || m.Stages[len(m.Stages)-1].From <= time.Now().Unix()
	return told, p.publish(ctx, &m, told, false)
}

// Kept are the sequences of a channel that a publisher has in its store, as it knows by its folder, the newest first. It takes no lock.
func Kept(folder, channel string) (all []*Manifest, err error) {
	files, err := os.ReadDir(filepath.Join(folder, manifestsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if _, err := strconv.ParseInt(strings.TrimSuffix(f.Name(), ".json"), 10, 64); err != nil {
			continue // a draft
		}
		text, err := os.ReadFile(filepath.Join(folder, manifestsName, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		m, err := ParseManifest(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if m.Channel == channel {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Manifest) int { return int(b.Sequence - a.Sequence) })
	return all, nil
}
