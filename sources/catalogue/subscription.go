package catalogue

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Trial is how long a list that somebody subscribes to is watched before it is to count.
const Trial = 7 * 24 * time.Hour

// The errors of a change to the text of a configuration.
var (
	ErrSubscribed    = errors.New("is subscribed to already")
	ErrNotSubscribed = errors.New("is not subscribed to")
	ErrChanged       = errors.New("what blockd has written about it was changed by hand; change or remove that [[list]] yourself")
)

// Subscription is what a configuration says of one.
type Subscription struct {
	Since    time.Time // the day, UTC
	Enforced bool

	begin, end int // of its lines in the text
}

// The lines around a subscription are how it is found again; what is between belongs to blockd.
const (
	beginLine = "# subscribed: %s, %s. It only watches until: blockd subscribe --enforce %s\n"
	endLine   = "# end of %s\n"
	shadow    = "mode = \"shadow\"\n"
	enforce   = "mode = \"enforce\"\n"
)

var begins = regexp.MustCompile(`(?m)^# subscribed: ([a-z0-9._-]+), (\d{4}-\d\d-\d\d)\. .*\n`)

// Find looks for the subscription to a list; ok is false if there is none.
func Find(text []byte, name string) (s Subscription, ok bool, err error) {
	for _, at := range begins.FindAllSubmatchIndex(text, -1) {
		if string(text[at[2]:at[3]]) != name {
			continue
		}
		last := fmt.Sprintf(endLine, name)
		length := bytes.Index(text[at[0]:], []byte("\n"+last))
		if length < 0 {
			return s, false, fmt.Errorf("%s: %w", name, ErrChanged)
		}
		s.begin, s.end = at[0], at[0]+length+1+len(last)
		inside := text[s.begin:s.end]
		s.Enforced = bytes.Contains(inside, []byte("\n"+enforce))
		if s.Since, err = time.Parse(time.DateOnly, string(text[at[4]:at[5]])); err != nil || !s.Enforced && !bytes.Contains(inside, []byte("\n"+shadow)) ||
			bytes.Count(inside, []byte("[[list]]\n")) != 1 || bytes.Contains(inside[1:], []byte("\n# subscribed: ")) {
			return s, false, fmt.Errorf("%s: %w", name, ErrChanged)
		}
		return s, true, nil
	}
	return s, false, nil
}

// Subscribe puts a subscription to l behind the text of a configuration. copied is where its copy is to be.
func Subscribe(text []byte, l List, copied string, now time.Time) ([]byte, error) {
	if _, there, err := Find(text, l.Name); there || err != nil {
		return nil, errors.Join(err, mark(there, l.Name, ErrSubscribed))
	}
	var b strings.Builder
	if len(text) > 0 {
		b.WriteString("\n")
		if !bytes.HasSuffix(text, []byte("\n")) {
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, beginLine, l.Name, now.UTC().Format(time.DateOnly), l.Name)
	fmt.Fprintf(&b, "[[list]]\nname = %q\nurl = %q\npath = %q\nformat = %q\nevery = %q\noptional = true\n", l.Name, l.URL, copied, l.Format, l.Every())
	b.WriteString(shadow)
	fmt.Fprintf(&b, endLine, l.Name)
	return append(slices.Clip(text), b.String()...), nil
}

func mark(is bool, name string, err error) error {
	if !is {
		return nil
	}
	return fmt.Errorf("%s %w", name, err)
}

// Enforce makes a list count that is subscribed to.
func Enforce(text []byte, name string) ([]byte, error) {
	s, there, err := Find(text, name)
	if err != nil || !there {
		return nil, errors.Join(err, mark(err == nil, name, ErrNotSubscribed))
	}
	changed := bytes.Replace(text[s.begin:s.end], []byte("\n"+shadow), []byte("\n"+enforce), 1)
	return slices.Concat(text[:s.begin], changed, text[s.end:]), nil
}

// Unsubscribe takes a subscription out of the text, and the empty line that Subscribe has put before it.
func Unsubscribe(text []byte, name string) ([]byte, error) {
	s, there, err := Find(text, name)
	if err != nil || !there {
		return nil, errors.Join(err, mark(err == nil, name, ErrNotSubscribed))
	}
	before := text[:s.begin]
	if bytes.HasSuffix(before, []byte("\n\n")) {
		before = before[:len(before)-1]
	}
	return slices.Concat(before, text[s.end:]), nil
}

// Every is how often the list is to be looked at: list.every. A server that is asked "has it changed" more often than it changes loses little.
func (l List) Every() string {
	if l.Cadence == "weekly" || l.Cadence == "monthly" {
		return "24h"
	}
	return "6h"
}

// Named is the list of a name; the error has the names there are.
func Named(name string) (List, error) {
	all, err := Lists()
	if err != nil {
		return List{}, err
	}
	names := make([]string, 0, len(all))
	for _, l := range all {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return List{}, fmt.Errorf("%s: no such list in the catalogue, which has %s; write a [[list]] with its url yourself (docs/remote.md)", name, strings.Join(names, ", "))
}
