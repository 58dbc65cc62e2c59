package snapshot

import (
	"bytes"
	"context"
	"errors"
	"time"

	"blockd/internal/durable"
	"blockd/internal/minisign"
)

// readLatest is the content of a latest.json that is signed for this channel.
func (n *Node) readLatest(f signed) (l *Latest, err error) {
	err = f.check(n.Keys, func(text []byte) (string, error) {
		if l, err = ParseLatest(text); err != nil {
			return "", err
		}
		return sequenceComment(n.Channel, l.Sequence), nil
	})
	if err == nil && l.Channel != n.Channel {
		err = refuse(Signature, "it is of the channel %q", cut(l.Channel))
	}
	return l, err
}

func (n *Node) readPin(f signed) (p *Pin, err error) {
	err = f.check(n.Keys, func(text []byte) (string, error) {
		if p, err = ParsePin(text); err != nil {
			return "", err
		}
		return pinComment(n.Channel, p.Sequence), nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (n *Node) lookAt(ctx context.Context, s Store, now time.Time) error {
	var l *Latest
	f, err := n.getSigned(ctx, s, latestName(n.Channel), maxLatest, func(f signed) (err error) {
		l, err = n.readLatest(f)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case l.Sequence < n.state.Highest:
		return refuse(Replayed, "it says sequence %d, and %d was accepted before", l.Sequence, n.state.Highest)
	case l.Sequence == n.state.Highest && l.Manifest != n.state.Digest:
		return refuse(Replayed, "there are two manifests of sequence %d", l.Sequence)
	case l.Expires <= now.Unix():
		return refuse(Expired, "sequence %d has expired at %s: its publisher is away, or this machine's clock is wrong", l.Sequence, time.Unix(l.Expires, 0).UTC().Format(time.DateTime))
	}
	if l.Sequence > n.state.Highest {
		if err := n.remember(func(s *State) { s.Highest, s.Digest = l.Sequence, l.Manifest }); err != nil {
			return err
		}
	}
	if n.latest == nil || !bytes.Equal(f.text, encode(n.latest)) {
		if err := n.keep(latestFile, f); err != nil {
			return err
		}
	}
	n.latest = l
	return nil
}

// keep writes a file and its signature into the folder, for the next start and for relays.
func (n *Node) keep(name string, f signed) error {
	for _, file := range []struct {
		name string
		text []byte
	}{{name + minisign.Suffix, f.signature}, {name, f.text}} {
		if err := n.step("write " + file.name); err != nil {
			return err
		}
		if err := durable.WriteFile(n.path(file.name), file.text, 0o640); err != nil {
			return &Error{Disk, err}
		}
	}
	return nil
}

// remember changes the state, on the disk first.
func (n *Node) remember(change func(*State)) error {
	next := n.state
	change(&next)
	if next == n.state {
		return nil
	}
	if err := n.step("write the state"); err != nil {
		return err
	}
	if err := next.write(n.path(stateName)); err != nil {
		return &Error{Disk, err}
	}
	n.state = next
	return nil
}

// lookForPin reads the channel's pin, if there is one. It ends with its time, or when the publisher has taken it back: then the store has
// none, at two looks, since a file that is being replaced may be missing for a moment. A relay without one says nothing.
func (n *Node) lookForPin(ctx context.Context, s Store, now time.Time) error {
	var p *Pin
	f, err := n.getSigned(ctx, s, pinName(n.Channel), maxLatest, func(f signed) (err error) {
		p, err = n.readPin(f)
		return err
	})
	if errors.Is(err, ErrMissing) {
		if n.pin != nil && s == n.From {
			if n.unpinned++; n.unpinned > 1 {
				n.pin = nil
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	n.unpinned = 0
	if p.Until <= now.Unix() {
		n.pin = nil
		return nil
	}
	if p.Until <= n.state.Lifted {
		return refuse(Replayed, "a pin to sequence %d that was taken back", p.Sequence)
	}
	if n.pin == nil || *n.pin != *p {
		if err := n.remember(func(s *State) { s.PinEnds = p.Until }); err != nil {
			return err
		}
		if err := n.keep(pinFile, f); err != nil {
			return err
		}
	}
	n.pin = p
	return nil
}
