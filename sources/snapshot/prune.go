package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"blockd/internal/minisign"

	"golang.org/x/sync/errgroup"
)

// prune removes sequences beyond Keep from the store, and what only they have; and from the folder what the newest has not. What
// cannot be removed costs room and nothing else.
func (p *Publisher) prune(ctx context.Context) {
	all, err := os.ReadDir(p.path(manifestsName))
	if err != nil {
		return
	}
	var numbers []int64
	for _, e := range all {
		if n, err := strconv.ParseInt(strings.TrimSuffix(e.Name(), ".json"), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	kept := map[string]bool{}
	var gone []*Manifest
	for i, number := range numbers {
		m, err := p.Manifest(ctx, number)
		if err != nil {
			return // what it has is not known
		}
		if i < len(numbers)-p.Keep {
			gone = append(gone, m)
			continue
		}
		for object := range m.objects() {
			kept[object] = true
		}
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	deleted := map[string]bool{}
	for _, m := range gone {
		for object := range m.objects() {
			if !kept[object] && !deleted[object] {
				deleted[object] = true
				group.Go(func() error { return p.To.Delete(ctx, objectName(object)) })
			}
		}
		name := manifestName(m.Sequence)
		if err := errors.Join(group.Wait(), p.To.Delete(ctx, name), p.To.Delete(ctx, name+minisign.Suffix)); err != nil {
			p.Log.Warn("an old snapshot stays in the store", slog.Int64("sequence", m.Sequence), slog.Any("error", err))
			continue // it is tried again the next time
		}
		os.Remove(p.path(name))
	}
	mine := map[string]bool{}
	for plain := range p.last.files() {
		mine[plain] = true
	}
	for object := range p.last.objects() {
		mine[object] = true
	}
	for _, folder := range []string{filesName, objectsName} {
		files, _ := os.ReadDir(p.path(folder))
		for _, e := range files {
			if !mine[e.Name()] {
				os.Remove(p.path(folder, e.Name()))
			}
		}
	}
}

// objects are all objects of a manifest.
func (m *Manifest) objects() map[string]bool {
	all := map[string]bool{}
	for _, object := range m.files() {
		all[object] = true
	}
	for _, l := range m.Lists {
		for _, s := range l.Shards {
			for _, d := range s.Deltas {
				all[d.Object] = true
			}
		}
	}
	return all
}
