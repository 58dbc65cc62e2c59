package index

import (
	"net/netip"
	"runtime"

	"blockd/index/internal/format"
	"blockd/lists"
)

// HeldEntry names entries that are in the file of an index and have no effect: those of
// one list that block by this name, wherever in its files they stand.
type HeldEntry struct {
	List  string
	Kind  lists.Kind
	Scope lists.Scope
	Name  string // as Match.Name has it
}

// Withhold takes entries out of the answers of ix, and out of Entries: no look-up finds
// them any more. Counts, Lists and Worth are as the file has them. Call it before others
// have ix, and leave held as it is.
func (ix *Index) Withhold(held map[HeldEntry]bool) {
	ix.held = held
	if len(held) == 0 {
		ix.held = nil // so that a match costs no look-up
	}
}

// withheld reports whether an entry that covers as m does is held.
func (ix *Index) withheld(m *Match, e *format.Entry) bool {
	return !e.Action.Allows() && ix.held[HeldEntry{ix.file.Lists[e.Row].Source.List, m.Kind, e.Scope, m.Name()}]
}

// Find says where the entries that h names stand, by row and line of the first, whether
// or not they are held. found: there is one.
func (ix *Index) Find(h HeldEntry) (row, line int, found bool, err error) {
	key, ok := h.key()
	if !ok {
		return 0, 0, false, nil
	}
	err = ix.mapping.guarded(func() error {
		c, listed, err := ix.find(ix.file.Hash.SumString(key), key)
		if err != nil || !listed {
			return err
		}
		for n, _ := c.Sources(); n > 0 && !c.Bad; n-- {
			e := c.Entry()
			if c.Bad || e.Row >= len(ix.file.Lists) || found || e.Scope != h.Scope || e.Action.Allows() || ix.file.Lists[e.Row].Source.List != h.List {
				continue
			}
			ix.present(&c, &e)
			row, line, found = e.Row, e.Line, true
		}
		return nil
	})
	runtime.KeepAlive(ix)
	return row, line, found, ix.unreadable(err)
}

// key is what the store has h under.
func (h HeldEntry) key() (string, bool) {
	switch h.Kind {
	case lists.Addr, lists.Domain:
		return h.Name, h.Name != ""
	case lists.Glob, lists.Regexp:
		return format.PatternKey(h.Kind, h.Name), h.Name != ""
	case lists.IP:
		ip, err := netip.ParseAddr(h.Name)
		return string(format.AppendNetKey(nil, netip.PrefixFrom(ip, ip.BitLen()))), err == nil
	case lists.CIDR:
		p, err := netip.ParsePrefix(h.Name)
		return string(format.AppendNetKey(nil, p)), err == nil
	}
	return "", false
}
