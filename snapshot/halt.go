package snapshot

import (
	"context"
	"errors"
	"os"
	"time"

	"blockd/internal/durable"
	"blockd/minisign"
)

// Halt stops the channel at the sequence before the newest, until a time: nodes that have the newest go back.
func (p *Publisher) Halt(ctx context.Context, until time.Time) (sequence int64, err error) {
	if err := p.catchUp(ctx); err != nil {
		return 0, err
	}
	if p.last == nil || p.last.Previous == 0 {
		return 0, errors.New("there is no sequence before the newest to stop at")
	}
	pin := encode(Pin{p.last.Previous, until.Unix()})
	if err := durable.WriteFile(p.path(pinFile), pin, 0o640); err != nil { // nothing is published by itself, whatever comes of the rest
		return 0, err
	}
	return p.last.Previous, p.put(ctx, pinName(p.Channel), pin, pinComment(p.Channel, p.last.Previous), true)
}

// halted reports whether the channel is halted, by the word of this folder.
// Halted reports whether the channel is halted.
func (p *Publisher) Halted() bool { return p.halted() }

func (p *Publisher) halted() bool {
	text, err := os.ReadFile(p.path(pinFile))
	if err != nil {
		return false
	}
	pin, err := ParsePin(text)
	return err == nil && pin.Until > time.Now().Unix()
}

// lift ends a halt.
func (p *Publisher) lift(ctx context.Context) error {
	for _, name := range []string{pinName(p.Channel), pinName(p.Channel) + minisign.Suffix} {
		if err := p.To.Delete(ctx, name); err != nil {
			return err
		}
	}
	return os.Remove(p.path(pinFile))
}
