package junk

import (
	"errors"
	"fmt"
	"time"

	"blockd/index/live"
	"blockd/lists"
	"blockd/mail/addr"
)

// Why is the reason of entries that come of a message in Junk. Only such an entry goes when the message is moved back.
const Why = "moved to Junk"

const whyBack = "moved back from Junk"

// ErrOwn is wrapped by the error of a sender about whom the user has an entry that he has made himself. It stays.
var ErrOwn = errors.New("the user has an entry of his own")

// tries bounds how often a change is decided anew because somebody else has changed the user's entries meanwhile.
const tries = 10

// Desk makes entries of users of what they have moved.
type Desk struct {
	Guards
	Entries *live.Set
	Box     *Box          // for proposals; nil = there are none
	Life    time.Duration // of an entry, unless the question says otherwise
}

// Question is what a user has done with a message.
type Question struct {
	User   addr.Key      // a mailbox, without a tag
	Undo   bool          // it was moved back
	Force  bool          // the user was asked, and means it
	Life   time.Duration // 0 = that of the Desk
	Author string        // of the change; "" = the user
}

// Move makes the sender an entry of the user's, or takes such an entry back. Where the user has as many entries as one may have, the oldest one that
// has come this way gives its place. The error wraps ErrAsk, ErrOwn or one of package live.
func (d *Desk) Move(m Message, q Question, now time.Time) (o live.Outcome, err error) {
	if !q.Undo && !q.Force {
		if err := d.Object(m, q.User); err != nil {
			return o, err
		}
	}
	for range tries {
		changes, tag, err := d.changes(m, q, now)
		if err != nil || len(changes) == 0 {
			return o, err
		}
		outcomes, err := d.Entries.ApplyIf(q.User, tag, changes...)
		if errors.Is(err, live.ErrOwnerFull) {
			if oldest := d.oldest(q.User); oldest != nil {
				give := live.Change{Owner: q.User.Text, Entry: oldest.Text, Remove: true, Author: changes[0].Author, Why: "gives its place to " + m.Key.Text}
				outcomes, err = d.Entries.ApplyIf(q.User, tag, append([]live.Change{give}, changes...)...)
			}
		}
		if errors.Is(err, live.ErrChanged) {
			continue
		}
		if err != nil {
			return o, err
		}
		return outcomes[len(outcomes)-1], nil
	}
	return o, live.ErrChanged
}

// changes are what is to be done to the entries that have the tag; none = nothing.
func (d *Desk) changes(m Message, q Question, now time.Time) (all []live.Change, tag string, err error) {
	entries, tag := d.Entries.Of(q.User)
	var there *live.Entry
	for _, e := range entries {
		if e.Text == m.Key.Text {
			there = e
		}
	}
	change := live.Change{Owner: q.User.Text, Entry: m.Key.Text, Author: q.Author}
	if change.Author == "" && len(q.User.Text) <= live.MaxAuthor {
		change.Author = q.User.Text
	}
	switch {
	case there != nil && there.Why != Why && !(q.Force && !q.Undo):
		return nil, tag, fmt.Errorf("%s stays: %w, %s", m.Key.Text, ErrOwn, there.Item.Action)
	case q.Undo && there == nil:
		return nil, tag, nil
	case q.Undo:
		change.Remove, change.Why = true, whyBack
		return []live.Change{change}, tag, nil
	}
	life := q.Life
	if life == 0 {
		life = d.Life
	}
	change.Action, change.Why, change.Expires = lists.Block, Why, now.Add(life)
	return []live.Change{change}, tag, nil
}

// oldest is the oldest entry of a user that has come of a message in Junk; nil = there is none.
func (d *Desk) oldest(user addr.Key) (oldest *live.Entry) {
	entries, _ := d.Entries.Of(user)
	for _, e := range entries { // the newest first
		if e.Why == Why {
			oldest = e
		}
	}
	return oldest
}

// Note counts for the proposals what Move has done. A sender that is blocked already counts too; a sender that stays as the user has said himself does not.
func (d *Desk) Note(m Message, q Question, now time.Time) error {
	switch {
	case d.Box == nil:
		return nil
	case q.Undo:
		return d.Box.Unsay(m.Key.Text, q.User.Text, now)
	}
	return d.Box.Say(m.Key.Text, q.User.Text, Moved, now)
}
