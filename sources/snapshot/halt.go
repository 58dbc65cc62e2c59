package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"blockd/internal/durable"
	"blockd/internal/minisign"
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

// Assert writes the halt into the store again, if the channel is halted and the store does not say so: it was away when Halt was called.
func (p *Publisher) Assert(ctx context.Context) error {
	text, err := os.ReadFile(p.path(pinFile))
	if err != nil || !p.Halted() {
		return err
	}
	pin, err := ParsePin(text)
	if err != nil {
		return err
	}
	if in, err := p.To.Get(ctx, pinName(p.Channel), 0); err == nil {
		there, err := io.ReadAll(io.LimitReader(in, maxLatest))
		in.Close()
		if err == nil && bytes.Equal(there, text) {
			return nil
		}
	}
	return p.put(ctx, pinName(p.Channel), text, pinComment(p.Channel, pin.Sequence), true)
}

// Halted reports whether the channel is halted, by the word of this folder.
func (p *Publisher) Halted() bool { return Halted(p.Folder) }

// Halted reports whether the channel of a publisher is halted, by the word of its folder. It takes no lock.
func Halted(folder string) bool { return HaltedAt(folder) != nil }

// HaltedAt is the halt of a publisher's channel, by the word of its folder; nil = it is not halted. It takes no lock.
func HaltedAt(folder string) *Pin {
	text, err := os.ReadFile(filepath.Join(folder, pinFile))
	if err != nil {
		return nil
	}
	pin, err := ParsePin(text)
	if err != nil || pin.Until <= time.Now().Unix() {
		return nil
	}
	return pin
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
