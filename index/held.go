package index

import (
	"net/netip"
	"runtime"

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
func (ix *Index) withheld(m *Match, e *entry) bool {
	return !e.action.Allows() && ix.held[HeldEntry{ix.file.lists[e.row].Source.List, m.Kind, e.scope, m.Name()}]
}

// Find says where the entries that h names stand, by row and line of the first, whether
// or not they are held. found: there is one.
func (ix *Index) Find(h HeldEntry) (row, line int, found bool, err error) {
	key, ok := h.key()
	if !ok {
		return 0, 0, false, nil
	}
	err = ix.mapping.guarded(func() error {
		c, listed, err := ix.find(ix.file.hash.sumString(key), key)
		if err != nil || !listed {
			return err
		}
		for n, _ := c.sources(); n > 0 && !c.bad; n-- {
			e := c.entry()
			if c.bad || e.row >= len(ix.file.lists) || found || e.scope != h.Scope || e.action.Allows() || ix.file.lists[e.row].Source.List != h.List {
				continue
			}
			ix.present(&c, &e)
			row, line, found = e.row, e.line, true
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
		return patternKey(h.Kind, h.Name), h.Name != ""
	case lists.IP:
		ip, err := netip.ParseAddr(h.Name)
		return string(appendNetKey(nil, netip.PrefixFrom(ip, ip.BitLen()))), err == nil
	case lists.CIDR:
		p, err := netip.ParsePrefix(h.Name)
		return string(appendNetKey(nil, p)), err == nil
	}
	return "", false
}
