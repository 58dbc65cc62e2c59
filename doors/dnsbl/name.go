package dnsbl

// The bounds of a name on the wire (RFC 1035, section 3.1).
const (
	maxName   = 255 // octets, with that of the root
	maxLabels = 127
	maxLabel  = 63
)

// name is the name of a question on the wire, uncompressed and in lower case.
type name struct {
	octets [maxName]byte
	size   int // octets of it, with that of the root
	starts [maxLabels]uint8
	labels int // without the root
}

// set makes n the name at the start of query, and reports whether there is one that is not
// compressed. n.size is then its size in query.
func (n *name) set(query []byte) bool {
	n.size, n.labels = 0, 0
	for n.size < len(query) && n.size < maxName {
		length := int(query[n.size])
		if length == 0 {
			n.octets[n.size] = 0
			n.size++
			return true
		}
		end := n.size + 1 + length
		if length > maxLabel || end >= len(query) || end >= maxName {
			return false
		}
		n.octets[n.size] = byte(length)
		for i := n.size + 1; i < end; i++ {
			n.octets[i] = lower(query[i])
		}
		n.starts[n.labels] = uint8(n.size)
		n.labels++
		n.size = end
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// from is n from a label on.
func (n *name) from(label int) []byte {
	if label == n.labels {
		return n.octets[n.size-1 : n.size]
	}
	return n.octets[n.starts[label]:n.size]
}

// label is one label without its length.
func (n *name) label(i int) []byte {
	start := int(n.starts[i])
	return n.octets[start+1 : start+1+int(n.octets[start])]
}
