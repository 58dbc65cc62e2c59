package kept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Refused is why something is not done, in a sentence for an operator.
type Refused struct{ Text string }

func (r *Refused) Error() string { return r.Text }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// ErrWhen is wrapped by the error of a time that cannot be read.
var ErrWhen = errors.New(`want a time such as 2027-01-31T10:00:00Z, an age such as 7d or 12h, or a generation as "blockd generations" names it`)

// When reads a time: RFC 3339, or how long ago.
func When(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	var d time.Duration
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return time.Time{}, ErrWhen
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if d, err = time.ParseDuration(text); err != nil || d < 0 {
			return time.Time{}, ErrWhen
		}
	}
	return now.Add(-d), nil
}

// Point is what a list held at a time.
type Point struct {
	Content    Content
	Generation string
	Time       time.Time // from when on it served
	Findings   []string  // what speaks against it, of a proposal
	Weighed    *Weighed  // of a proposal; nil: not yet
}

// Now is what a list is to hold at present.
func (s *Store) Now(list string) (Point, error) {
	all, err := s.Generations()
	if err != nil {
		return Point{}, err
	}
	return now(all, list)
}

func now(all []Generation, list string) (Point, error) {
	if len(all) == 0 {
		return Point{}, refuse("nothing is kept yet: nothing has served since this version of blockd began")
	}
	return at(all, len(all)-1, list)
}

// at is what a list held in a generation, with the generation that brought it.
func at(all []Generation, i int, list string) (Point, error) {
	c, ok := all[i].Of(list)
	if !ok {
		return Point{}, refuse("there was no list %q at %s", list, all[i].Time.Format(time.RFC3339))
	}
	for i > 0 {
		was, ok := all[i-1].Of(list)
		if !ok || !was.Equal(c) {
			break
		}
		i--
	}
	return Point{Content: c, Generation: all[i].ID, Time: all[i].Time}, nil
}

// Then is what a list held at a time or in a generation; "" is what served before what serves now.
func (s *Store) Then(list, when string, clock time.Time) (Point, error) {
	all, err := s.Generations()
	if err != nil {
		return Point{}, err
	}
	is, err := now(all, list)
	if err != nil {
		return Point{}, err
	}
	if when == "" {
		for i := len(all) - 2; i >= 0; i-- {
			if c, ok := all[i].Of(list); ok && !c.Equal(is.Content) {
				return at(all, i, list)
			}
		}
		return Point{}, refuse("of list %q nothing is kept but what serves, since %s", list, is.Time.Format(time.RFC3339))
	}
	var named []int
	for i := range all {
		if all[i].Named(when) {
			named = append(named, i)
		}
	}
	switch {
	case len(named) == 1:
		return at(all, named[0], list)
	case len(named) > 1:
		return Point{}, refuse("%d generations begin with %q", len(named), when)
	}
	t, err := When(when, clock)
	if err != nil {
		if len(when) >= 8 && strings.Trim(when, "0123456789abcdef") == "" {
			return Point{}, refuse("no generation %q is kept: see blockd generations", when)
		}
		return Point{}, fmt.Errorf("%q: %w", when, err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].Time.After(t) {
			return at(all, i, list)
		}
	}
	return Point{}, refuse("what list %q had at %s is not kept: kept since %s", list, t.UTC().Format(time.RFC3339), all[0].Time.Format(time.RFC3339))
}

// PinOf is the pin of a list; ok is false for one that follows its files.
func (s *Store) PinOf(list string) (p Pin, ok bool, err error) {
	pins, err := s.Pins()
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(pins, func(p Pin) bool { return p.List == list })
	if i < 0 {
		return p, false, nil
	}
	return pins[i], true, nil
}

// Who asks for something, and why.
type Who struct{ By, Why string }

// Rollback pins a list to what it held then; see Then. record is called before anything changes, with what is about to; its
// error ends it.
func (s *Store) Rollback(ctx context.Context, list, when string, who Who, clock time.Time, record func(Point) error) (Pin, error) {
	is, err := s.Now(list)
	if err != nil {
		return Pin{}, err
	}
	held, isHeld, err := s.PinOf(list)
	if err != nil {
		return Pin{}, err
	}
	if isHeld && held.How == Rollback && when == "" {
		return Pin{}, refuse("list %q is taken back already, to what it had at %s: say --to which time or generation, or blockd adopt %s", list, held.Served.Format(time.RFC3339), list)
	}
	then, err := s.Then(list, when, clock)
	if err != nil {
		return Pin{}, err
	}
	if then.Content.Equal(is.Content) && (!isHeld || held.Content.Equal(then.Content)) {
		return Pin{}, refuse("list %q serves that already, since %s", list, is.Time.Format(time.RFC3339))
	}
	if len(then.Content) == 0 {
		return Pin{}, refuse("list %q had no file then, and a list is not taken back to nothing", list)
	}
	if !s.Has(then.Content) {
		return Pin{}, refuse("what list %q had at %s is not kept any more", list, then.Time.Format(time.RFC3339))
	}
	pin := Pin{List: list, Content: then.Content, Served: then.Time, Since: clock.UTC().Truncate(time.Millisecond), How: Rollback, By: who.By, Why: who.Why}
	if err := s.Unpack(ctx, then.Content); err != nil { // before it is recorded: this may well fail
		return Pin{}, err
	}
	if err := record(then); err != nil {
		return Pin{}, err
	}
	return pin, s.Pin(ctx, then.Content, func(all []Pin) ([]Pin, error) {
		return append(slices.DeleteFunc(all, func(p Pin) bool { return p.List == list }), pin), nil
	})
}

// Adopt lets a list have what waits: the proposal, whose ID must be the one that is seen, unless that is "". A list that is not
// reviewed follows its file again. record is called as by Rollback, with the ID of what is let in.
func (s *Store) Adopt(ctx context.Context, list, seen string, review bool, who Who, clock time.Time, record func(id string) error) (Pin, error) {
	pin, ok, err := s.PinOf(list)
	switch {
	case err != nil:
		return pin, err
	case !ok:
		return pin, refuse("list %q follows its file, and nothing waits to be adopted", list)
	case pin.Proposal == nil && (review && pin.How == Review || pin.Waits):
		return pin, refuse("of list %q nothing waits to be adopted", list)
	}
	id := pin.Content.ID()
	if pin.Proposal != nil {
		id = pin.Proposal.Content.ID()
	}
	if seen != "" && seen != id {
		return pin, refuse("what waits is another content by now, %s: look at blockd diff %s again", id, list)
	}
	now := Pin{List: list, Content: pin.Content, Served: clock.UTC().Truncate(time.Millisecond), Since: clock.UTC().Truncate(time.Millisecond), How: Review, By: who.By, Why: who.Why}
	if pin.Proposal != nil {
		now.Content = pin.Proposal.Content
	}
	if review {
		if err := s.Unpack(ctx, now.Content); err != nil {
			return pin, err
		}
	}
	if err := record(id); err != nil {
		return pin, err
	}
	change := func(all []Pin) ([]Pin, error) {
		i := slices.IndexFunc(all, func(p Pin) bool { return p.List == list })
		if i < 0 || !all[i].Since.Equal(pin.Since) || all[i].waiting() != pin.waiting() {
			return nil, refuse("what waits has just become another content: look at blockd diff %s again", list)
		}
		if review {
			all[i] = now
			return all, nil
		}
		return slices.Delete(all, i, i+1), nil
	}
	if review {
		return now, s.Pin(ctx, now.Content, change)
	}
	return now, s.ChangePins(change)
}

// waiting is the ID of what waits; "" if nothing does.
func (p *Pin) waiting() string {
	if p.Proposal == nil {
		return ""
	}
	return p.Proposal.Content.ID()
}

// Sides are what blockd diff compares: from since, else what waits against what serves, else what serves against what served before.
func (s *Store) Sides(list, since string, clock time.Time) (from, to Point, waits bool, err error) {
	pin, held, err := s.PinOf(list)
	if err != nil {
		return from, to, false, err
	}
	if since == "" && held && pin.Proposal != nil {
		from = Point{Content: pin.Content, Time: pin.Served}
		return from, Point{Content: pin.Proposal.Content, Time: pin.Proposal.Since, Findings: pin.Proposal.Against(), Weighed: pin.Proposal.Weighed}, true, nil
	}
	if to, err = s.Now(list); err != nil {
		return from, to, false, err
	}
	from, err = s.Then(list, since, clock)
	return from, to, false, err
}
