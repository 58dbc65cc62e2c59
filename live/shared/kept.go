package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"blockd/internal/durable"
	"blockd/lists"
	"blockd/live"
)

// Lost is a change that the engine had acknowledged, and no longer has. Gone of its row says that it was a removal.
type Lost struct {
	Row live.Row  `json:"row"`
	At  time.Time `json:"at"` // when it was noticed
}

// pending is a change that was made on this machine alone.
type pending struct {
	Row  live.Row `json:"row"`
	Base uint64   `json:"base"` // the revision that it replaced; 0 = there was nothing
}

const (
	mostLost    = 10_000 // of which a node keeps the first ones
	mostPending = 10_000
	seenEvery   = time.Minute // how often it is written that the engine answers
)

// kept is the file of a node.
type kept struct {
	mu      sync.Mutex
	path    string
	written time.Time

	Seen    time.Time `json:"seen"` // when the engine has last answered, by its clock
	Lost    []Lost    `json:"lost,omitempty"`
	Pending []pending `json:"pending,omitempty"`
}

func (k *kept) read(folder string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.path = filepath.Join(folder, "shared.json")
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		k.Lost, k.Pending = nil, nil
		err = json.Unmarshal(text, k)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	return nil
}

// write writes the file. The caller holds mu.
func (k *kept) write() error {
	text, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	return durable.WriteFile(k.path, append(text, '\n'), 0o600)
}

func (k *kept) seenAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Seen
}

// sees notes that the engine answers.
func (k *kept) sees(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Seen = now.UTC()
	if now.Sub(k.written).Abs() < seenEvery {
		return nil
	}
	k.written = now
	return k.write()
}

// lose adds changes that were lost.
func (k *kept) lose(all []Lost) error {
	if len(all) == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range all {
		l.At = time.Now().UTC().Truncate(time.Second)
		k.Lost = slices.DeleteFunc(k.Lost, func(o Lost) bool { return identity(&o.Row) == identity(&l.Row) })
		if len(k.Lost) < mostLost {
			k.Lost = append(k.Lost, l)
		}
	}
	return k.write()
}

// settle forgets lost changes of entries that have changed since.
func (k *kept) settle(rows []live.Row) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.Lost) == 0 {
		return nil
	}
	changed := make(map[string]bool, len(rows))
	for i := range rows {
		changed[identity(&rows[i])] = true
	}
	before := len(k.Lost)
	k.Lost = slices.DeleteFunc(k.Lost, func(l Lost) bool { return changed[identity(&l.Row)] })
	if len(k.Lost) == before {
		return nil
	}
	return k.write()
}

// Lost returns what the engine has lost, and nobody has offered again or dismissed.
func (n *Node) Lost() []Lost {
	if n == nil {
		return nil
	}
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	return slices.Clone(n.kept.Lost)
}

// Dismiss forgets what the engine has lost, and returns how many changes that were.
func (n *Node) Dismiss() (int, error) {
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	count := len(n.kept.Lost)
	n.kept.Lost = nil
	return count, n.kept.write()
}

// Offer makes lost changes once more, in the name of by, and returns how many were made. An entry that has changed since is left as it is.
func (n *Node) Offer(by string) (int, error) {
	made := 0
	for _, l := range n.Lost() {
		r := l.Row
		c := live.Change{Owner: r.Owner, Entry: r.Entry, Remove: r.Gone != 0, Why: r.Why, Author: r.By, Force: true, NeedsProof: r.Proof && r.Gone == 0}
		if c.Remove {
			c.Why, c.Author = "offered again: the store had lost it", by
		}
		if !c.Remove {
			var err error
			if c.Action, err = lists.ParseAction(r.Action); err != nil {
				return made, err
			}
		}
		if r.Expires != 0 {
			if c.Expires = time.Unix(r.Expires, 0); !c.Expires.After(n.o.Set.Now()) {
				continue
			}
		}
		outcomes, err := n.o.Set.Apply(c)
		if err != nil {
			return made, err
		}
		if outcomes[0].Changed() {
			made++
		}
	}
	_, err := n.Dismiss()
	return made, err
}

// keepPending keeps changes that this machine is about to make alone.
func (n *Node) keepPending(wants []live.Want) error {
	k := &n.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	before := slices.Clone(k.Pending)
	for _, w := range wants {
		p := pending{Row: w.Row}
		if here := n.o.Set.Get(&w.Row); here != nil {
			p.Base = here.Rev
		}
		if i := slices.IndexFunc(k.Pending, func(o pending) bool { return identity(&o.Row) == identity(&w.Row) }); i >= 0 {
			p.Base = k.Pending[i].Base
			k.Pending = slices.Delete(k.Pending, i, i+1)
		}
		k.Pending = append(k.Pending, p)
	}
	err := error(nil)
	if len(k.Pending) > mostPending {
		err = fmt.Errorf("%d changes wait for the store already", len(before))
	} else {
		err = k.write()
	}
	if err != nil {
		k.Pending = before
	}
	return err
}

// offerPending makes the changes that were made on this machine alone for all. One of an entry that another machine has
// changed meanwhile is given up: that change is in force here already. The caller has the engine.
func (n *Node) offerPending(ctx context.Context) error {
	for {
		n.kept.mu.Lock()
		if len(n.kept.Pending) == 0 {
			n.kept.mu.Unlock()
			return nil
		}
		p := n.kept.Pending[0]
		n.kept.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, writeLimit)
		written, err := n.o.Engine.Write(limited, []live.Want{{Row: p.Row, IfRev: &p.Base}}, 0)
		cancel()
		if err != nil {
			return err
		}
		if g := written.Given[0]; g.Conflict && (g.Was == nil || !g.Was.SameContent(&p.Row)) {
			n.counts.conflicts.Add(1)
			n.o.Log.Warn("a live entry that was changed on this machine alone has changed elsewhere, which counts", slog.String("entry", p.Row.String()), slog.String("change_by", p.Row.By))
		}
		if err := n.follow(ctx); err != nil {
			return err
		}
		n.kept.mu.Lock()
		n.kept.Pending = n.kept.Pending[1:]
		err = n.kept.write()
		n.kept.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
