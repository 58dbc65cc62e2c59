package daemon

import (
	"context"
	"errors"
	"time"

	"blockd/doors/httpapi"
	"blockd/sources/snapshot"
)

// channel is what the HTTP door does with the channel that this machine publishes; nil where it publishes none.
func (d *daemon) channel() *httpapi.Channel {
	if !d.config.Publish.On() {
		return nil
	}
	return &httpapi.Channel{
		State: d.channelState,
		Halt: func(ctx context.Context, until time.Time) error {
			return d.changeChannel(func(p *snapshot.Publisher) error {
				_, err := p.Halt(ctx, until)
				return err
			})
		},
		Again: func(ctx context.Context, sequence int64, now bool) error {
			return d.changeChannel(func(p *snapshot.Publisher) error {
				_, err := p.Again(ctx, sequence, now)
				return err
			})
		},
	}
}

// changeChannel does something with the publisher that no other process, and nothing else here, has at the time.
func (d *daemon) changeChannel(change func(*snapshot.Publisher) error) error {
	p, err := OpenPublisher(d.config, d.log)
	if errors.Is(err, snapshot.ErrLocked) {
		return httpapi.ErrPublishing
	}
	if err != nil {
		return err
	}
	defer p.Close()
	defer d.lookToPublish() // what is wrong, or no longer, is known at once
	return change(p)
}

func (d *daemon) channelState() (state httpapi.ChannelState, err error) {
	folder, channel := d.config.PublishFolder(), d.config.Publish.Channel
	state = httpapi.ChannelState{Channel: channel, Stands: snapshot.Stands(folder), Sequences: []httpapi.SequenceRow{}}
	if state.Sequence, err = snapshot.LastPublished(folder, channel); err != nil {
		return state, err
	}
	if pin := snapshot.HaltedAt(folder); pin != nil {
		state.Halted = &httpapi.ChannelHalt{Sequence: pin.Sequence, Until: time.Unix(pin.Until, 0).UTC()}
	}
	kept, err := snapshot.Kept(folder, channel)
	for _, m := range kept {
		row := httpapi.SequenceRow{Sequence: m.Sequence, Created: time.Unix(m.Created, 0).UTC(), Lists: []string{}}
		for _, l := range m.Lists {
			row.Entries += l.Entries
			row.Lists = append(row.Lists, l.Name)
		}
		for _, a := range m.Ask {
			row.Lists = append(row.Lists, a.Name)
		}
		state.Sequences = append(state.Sequences, row)
	}
	return state, err
}
