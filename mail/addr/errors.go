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

// maxQuoted bounds Error.Input, and with it what a hostile text adds to a log.
const maxQuoted = 320

// fault is an Error without its input, so that the scanners need not allocate.
// The zero fault is none.
type fault struct {
	class  Class
	reason string
}

func syntax(reason string) fault { return fault{Syntax, reason} }

func (f fault) none() bool { return f.reason == "" }

// refuse makes the Error of input. A bad character explains more than the
// grammar that tripped over it, so one anywhere in input takes precedence.
func refuse[T text](input T, f fault) error {
	if f.class == Syntax && len(input) <= maxText {
		if bad := badRune(string(input), true); !bad.none() {
			f = bad
		}
	}
	return &Error{Class: f.class, Input: string(input[:min(len(input), maxQuoted)]), Reason: f.reason}
}
