package dnsbl

import (
	"net"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// maxControl is the room for what the system says of a packet: the address that it came to, and
// the interface.
const maxControl = 128

// answerFrom turns the control message of a query into the one of its answer, which
// has the system send the answer from the address that was asked. A client that asked one of several addresses
// would not take it for the answer otherwise.
func answerFrom(control []byte) []byte {
	var v4 ipv4.ControlMessage
	var v6 ipv6.ControlMessage
	asked := net.IP(nil)
	if v4.Parse(control) == nil && v4.Dst != nil {
		asked = v4.Dst
	} else if v6.Parse(control) == nil {
		asked = v6.Dst
	}
	switch {
	case asked == nil:
		return nil
	case asked.To4() != nil: // also of a query by IPv4 to a socket for both
		return (&ipv4.ControlMessage{Src: asked.To4()}).Marshal()
	}
	answer := ipv6.ControlMessage{Src: asked}
	if asked.IsLinkLocalUnicast() {
		answer.IfIndex = v6.IfIndex // such an address is one of each interface
	}
	return answer.Marshal()
}
