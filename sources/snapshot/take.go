package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"blockd/internal/durable"
)

// take takes the sequence that this node is to have now, if it has another one.
func (n *Node) take(ctx context.Context, now time.Time) error {
	if n.clock(now) != nil {
		return nil // it is told by Once
	}
	m, err := n.wanted(ctx, now)
	if err != nil || m == nil {
		return err
	}
	return n.install(ctx, m)
}

// pinned is the sequence that an operator of this node has chosen; 0 = none.
func (n *Node) pinned() int64 {
	if n.Pin > 0 {
		return n.Pin
	}
	return n.local
}

// wanted is the manifest that is to come in force; nil = that is so already, or there is none yet.
func (n *Node) wanted(ctx context.Context, now time.Time) (*Manifest, error) {
	has := int64(0)
	if n.current != nil {
		has = n.current.Sequence
	}
	at := n.pinned()
	switch {
	case at > 0 && at == has:
		return nil, nil
	case at > 0:
		return n.manifest(ctx, at)
	case n.pin != nil && n.pin.Until > now.Unix():
		if has == n.pin.Sequence {
			return nil, nil
		}
		m, err := n.manifest(ctx, n.pin.Sequence)
		if err == nil && has < m.Sequence && !n.isTurn(m.Sequence, m.Stages, now) {
			return nil, nil
		}
		return m, err
	case n.latest == nil || n.latest.Sequence == has || n.latest.Expires <= now.Unix():
		return nil, nil
	case n.isTurn(n.latest.Sequence, n.latest.Stages, now):
		return n.manifest(ctx, n.latest.Sequence)
	case has == 0:
		return n.earlier(ctx, now)
	}
	return nil, nil
}

func (n *Node) isTurn(sequence int64, stages []Stage, now time.Time) bool {
	return isTurn(n.Channel, sequence, stages, n.Node, n.Canary, now.Unix())
}

// mostEarlier is how far a new node goes back for a sequence that all have already.
const mostEarlier = 8

// earlier is what a node without anything takes while it is not its turn for the newest sequence: the one before that, by the word of the
// newest.
func (n *Node) earlier(ctx context.Context, now time.Time) (*Manifest, error) {
	m, err := n.manifest(ctx, n.latest.Sequence)
	for range mostEarlier {
		if err != nil || m.Previous == 0 {
			return nil, err
		}
		m, err = n.manifest(ctx, m.Previous)
		if errors.Is(err, ErrMissing) {
			return nil, nil // it is not kept any more
		}
		if err == nil && n.isTurn(m.Sequence, m.Stages, now) {
			return m, nil
		}
	}
	return nil, err
}

// manifest is the one of a sequence: from the folder, or else from a store. It is what the keys have signed for that sequence, and what
// latest.json says of it.
func (n *Node) manifest(ctx context.Context, sequence int64) (*Manifest, error) {
	name := manifestName(sequence)
	var m *Manifest
	read := func(f signed) (err error) {
		m, err = n.readManifest(f, sequence)
		return err
	}
	if f, err := readSigned(n.path(name)); err == nil && read(f) == nil {
		return m, nil
	}
	var faults []error
	for _, s := range n.stores() {
		f, err := n.getSigned(ctx, s, name, maxManifest, read)
		if err == nil {
			return m, n.keep(name, f)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		faults = append(faults, fmt.Errorf("%s: %w", s, err))
	}
	return nil, worst(faults)
}

func (n *Node) readManifest(f signed, sequence int64) (m *Manifest, err error) {
	err = f.check(n.Keys, func(text []byte) (string, error) {
		m, err = ParseManifest(text)
		return sequenceComment(n.Channel, sequence), err
	})
	switch l := n.latest; {
	case err != nil:
		return nil, err
	case m.Sequence != sequence || m.Channel != n.Channel:
		return nil, refuse(Form, "it is sequence %d of the channel %q", m.Sequence, m.Channel)
	case sequence == n.state.Highest && sumOf(f.text) != n.state.Digest:
		return nil, refuse(Replayed, "it is not the manifest that latest.json names")
	case l != nil && l.Sequence == sequence && !slices.Equal(l.Stages, m.Stages):
		return nil, refuse(Form, "latest.json has other stages")
	}
	return m, nil
}

// install brings a manifest in force: everything that belongs to it is safe on the disk before one rename of a link says so.
func (n *Node) install(ctx context.Context, m *Manifest) error {
	began := time.Now()
	if n.Check != nil {
		if err := n.Check(m); err != nil {
			return &Error{Form, fmt.Errorf("sequence %d: %w", m.Sequence, err)}
		}
	}
	f := fetching{Node: n, manifests: map[int64]*Manifest{m.Sequence: m}}
	if err := f.all(ctx, m); err != nil {
		return err
	}
	if err := n.swap(m); err != nil {
		return &Error{Disk, err}
	}
	if n.pinned() == 0 && n.pin == nil { // a pin that was before is over for good
		if err := n.remember(func(s *State) { s.Lifted, s.PinEnds = max(s.Lifted, s.PinEnds), 0 }); err != nil {
			return err
		}
	}
	entries := int64(0)
	for _, l := range m.Lists {
		entries += l.Entries
	}
	n.Log.Info("snapshot taken", "channel", n.Channel, "sequence", m.Sequence, "lists", len(m.Lists), "entries", entries, "fetched", f.octets.Load(), "seconds", time.Since(began).Seconds())
	n.note(nil) // whoever looks now is to know it
	if n.Changed != nil {
		n.Changed(m)
	}
	return nil
}

func generationName(sequence int64) string { return fmt.Sprintf("g-%d", sequence) }

// againSuffix is behind the name of a sequence's second folder.
const againSuffix = "-again"

// inForce is the name of the folder in force; "" = there is none.
func (n *Node) inForce() string {
	name, _ := os.Readlink(n.path(currentName))
	return name
}

// swap makes the folder of a manifest, whose files are there, and renames the link to it.
func (n *Node) swap(m *Manifest) (err error) {
	name, was := generationName(m.Sequence), n.inForce()
	if name == was { // its manifest was damaged: it is read until the link leads elsewhere
		name += againSuffix
	}
	if err := n.step("make the folder"); err != nil {
		return err
	}
	folder := n.path(name)
	if err := os.RemoveAll(folder); err != nil { // of an attempt that failed
		return err
	}
	for _, part := range []string{folder, filepath.Join(folder, listsName), filepath.Join(folder, filtersName)} {
		if err := durable.MakeFolder(part); err != nil {
			return err
		}
	}
	for _, l := range m.Lists {
		if err := durable.MakeFolder(filepath.Join(folder, listsName, l.Name)); err != nil {
			return err
		}
	}
	for link, target := range m.links() {
		if err := os.Symlink(target, filepath.Join(folder, link)); err != nil {
			return err
		}
	}
	for _, l := range m.Lists {
		if err := durable.SyncFolder(filepath.Join(folder, listsName, l.Name)); err != nil {
			return err
		}
	}
	if err := n.step("write the manifest"); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(folder, manifestFile), encode(m), 0o640); err != nil {
		return err
	}
	for _, part := range []string{filepath.Join(folder, filtersName), filepath.Join(folder, listsName), n.path(filesName), n.Folder} {
		if err := durable.SyncFolder(part); err != nil {
			return err
		}
	}
	fresh := n.path(freshName)
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := errors.Join(n.step("make the link"), os.Symlink(name, fresh)); err != nil {
		return err
	}
	if err := n.step("rename the link"); err != nil {
		return err
	}
	if err := os.Rename(fresh, n.path(currentName)); err != nil {
		return err
	}
	before := n.current
	n.current = m
	n.mu.Lock()
	n.status.Taken = time.Now()
	n.mu.Unlock()
	if err := errors.Join(n.step("sync the link"), durable.SyncFolder(n.Folder)); err != nil {
		return err
	}
	if n.step("remove what is old") == nil {
		n.sweep(before, was) // what stays goes the next time
	}
	return nil
}

// sweep removes what belongs neither to what is in force nor to what was before: somebody may be about to read that.
func (n *Node) sweep(before *Manifest, was string) {
	kept := map[string]bool{n.inForce(): true, was: true}
	for _, m := range []*Manifest{n.current, before} {
		if m == nil {
			continue
		}
		kept[filepath.Base(manifestName(m.Sequence))] = true
		for plain := range m.files() {
			kept[plain] = true
		}
		if n.Serves {
			for object := range m.objects() {
				kept[object] = true
			}
		}
	}
	n.wholeMu.Lock()
	maps.DeleteFunc(n.whole, func(plain string, _ os.FileInfo) bool { return !kept[plain] })
	n.wholeMu.Unlock()
	for folder, ours := range map[string]func(string) bool{
		n.Folder:              func(name string) bool { return strings.HasPrefix(name, "g-") },
		n.path(manifestsName): func(name string) bool { return true },
		n.path(filesName):     func(name string) bool { return true },
		n.path(fetchName):     func(name string) bool { return true },
		n.path(objectsName):   func(name string) bool { return true },
	} {
		all, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, e := range all {
			if name := e.Name(); ours(name) && !kept[strings.TrimSuffix(name, ".minisig")] {
				os.RemoveAll(filepath.Join(folder, name))
			}
		}
	}
}

// files are the plain files of a manifest, with the objects that hold them.
func (m *Manifest) files() map[string]string {
	all := map[string]string{}
	for _, l := range m.Lists {
		for _, s := range l.Shards {
			all[s.Plain] = s.Object
		}
	}
	for _, a := range m.Ask {
		all[a.Filter.Key] = a.Filter.Object
	}
	return all
}
