package index

import (
	"blockd/lists"
	"blockd/mail/addr"
)

// Distance orders matches as Lookup does: of two the one with the smaller distance is more specific. It is for matches that come
// from elsewhere, too.
func (m *Match) Distance() int {
	switch {
	case m.Kind == lists.Recipient: // whoever writes
		return -1
	case m.Kind == lists.IP || m.Kind == lists.CIDR:
		return 2000 - m.Net.Bits()
	case m.Kind == lists.Glob || m.Kind == lists.Regexp:
		return 1000
	case m.Key.Kind == addr.Local:
		return 900
	case m.Key.Kind == addr.Address:
		return 0
	case m.Scope == lists.Exact:
		return 1
	}
	return 300 - int(m.Key.Labels)
}
