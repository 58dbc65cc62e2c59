// Package header finds the senders that a message's header names: the addresses
// of fields such as From, for who asks lists about them.
//
// What a field shows to its reader is what counts, so a field that is not well
// formed is read as mail programs read it, and not passed over.
package header

import "strings"

// Bounds of one message. A real one has three such fields with one address each;
// what is beyond these was made to be too much for somebody.
const (
	MaxOctets    = 256 << 10 // of the fields' texts
	MaxFields    = 1000
	MaxAddresses = 1000
)

// Field is a header field, or one address of it.
type Field struct {
	Name string // as it was added
	Text string
}

// Senders collects the fields of one message. The zero value has none.
type Senders struct {
	fields []Field
	octets int
	over   bool
}

// Add takes a field. text is what follows the colon, folded or not.
func (s *Senders) Add(name, text string) {
	s.octets += len(text)
	if s.over = s.over || s.octets > MaxOctets || len(s.fields) == MaxFields; s.over {
		s.fields = nil
		return
	}
	s.fields = append(s.fields, Field{name, strings.Clone(text)})
}

// Addresses returns every address that the fields name, in their order, each one
// once for a name of a field. ok is false if a bound was broken.
func (s *Senders) Addresses() (all []Field, ok bool) {
	if s.over {
		return nil, false
	}
	seen := map[Field]bool{}
	for _, f := range s.fields {
		for _, address := range Addresses(f.Text) {
			a := Field{f.Name, address}
			if seen[a] {
				continue
			}
			if len(all) == MaxAddresses {
				return nil, false
			}
			seen[a] = true
			all = append(all, a)
		}
	}
	return all, true
}
