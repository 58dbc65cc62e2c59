package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The states of a socket in the tables of /proc/net that count (Linux, include/net/tcp_states.h).
const (
	established = "01"
	listens     = "0A"
)

// socketOwners are the users of all sockets of this machine that may have taken a connection from an address: those
// that listen at the other end, and the other end itself once a process has accepted it; before that its row says
// root. None: the peer is another machine.
func socketOwners(server, client net.Addr) (uids []int, err error) {
	to, err := netip.ParseAddrPort(server.String())
	if err != nil {
		return nil, err
	}
	from, err := netip.ParseAddrPort(client.String())
	if err != nil {
		return nil, err
	}
	here := rowForms(to)
	any4, any6 := netip.AddrPortFrom(netip.IPv4Unspecified(), to.Port()), netip.AddrPortFrom(netip.IPv6Unspecified(), to.Port())
	takes := slices.Concat(here, []string{rowForm(any4), rowForm(any6)})
	there := rowForms(from)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		} else if err != nil {
			return nil, err
		}
		for row := range strings.Lines(string(text)) {
			f := strings.Fields(row) // sl local rem st tx:rx tr:when retrnsmt uid ...
			if len(f) < 8 || !(f[3] == listens && slices.Contains(takes, f[1]) ||
				f[3] == established && slices.Contains(here, f[1]) && slices.Contains(there, f[2])) {
				continue
			}
			uid, err := strconv.Atoi(f[7])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", table, err)
			}
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// rowForms are how the two tables write an address: as itself, and an IPv4 address as one of IPv6, too.
func rowForms(a netip.AddrPort) []string {
	ip := a.Addr().Unmap().WithZone("")
	forms := []string{rowForm(netip.AddrPortFrom(ip, a.Port()))}
	if ip.Is4() {
		forms = append(forms, rowForm(netip.AddrPortFrom(netip.AddrFrom16(ip.As16()), a.Port())))
	}
	return forms
}

// rowForm writes an address as the kernel does: words of 32 bits, as this machine orders their octets.
func rowForm(a netip.AddrPort) string {
	var text strings.Builder
	for word := range slices.Chunk(a.Addr().AsSlice(), 4) {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(word))
	}
	fmt.Fprintf(&text, ":%04X", a.Port())
	return text.String()
}
