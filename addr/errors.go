package addr

import "fmt"

// Class says in one word why a text is no sender or no key. The words are part
// of the closed set that `blockd lint` prints (docs/lists.md, section 9).
type Class string

// The classes that package addr can give.
const (
	Syntax       Class = "syntax"
	BadUTF8      Class = "bad-utf8"
	Invisible    Class = "invisible"
	Control      Class = "control"
	NUL          Class = "nul"
	IDNA         Class = "idna"
	TooLong      Class = "too-long"
	LabelTooLong Class = "label-too-long"
)

// Error is the only error type of this package.
type Error struct {
	Class  Class
	Input  string // the text that was refused, as given, at most 320 octets of it
	Reason string // for people: lower case, one clause, no full stop
}

func (e *Error) Error() string { return fmt.Sprintf("%q: %s", e.Input, e.Reason) }
