package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"blockd/internal/durable"
)

// ErrDamaged is wrapped by the error of a file of a node that is none any more.
var ErrDamaged = errors.New("damaged")

// maxState bounds the file, in octets.
const maxState = 4 << 10

// State is what a node has to remember for ever: it is on disk before the node acts by it.
type State struct {
	Blockd  int    `json:"blockd"`
	Channel string `json:"channel"`
	Highest int64  `json:"highest"`            // sequence ever accepted; 0 = none
	Digest  string `json:"digest,omitempty"`   // SHA-256 of its manifest, so that the same number is the same manifest
	Lifted  int64  `json:"lifted,omitempty"`   // the latest end of a pin that was taken back: an older pin is a repetition
	PinEnds int64  `json:"pin_ends,omitempty"` // the end of the channel's pin in force; 0 = there is none
}

// ParseState reads the file of a state.
func ParseState(text []byte) (State, error) {
	var s State
	err := decode(text, maxState, &s)
	if err == nil && (s.Blockd != version || !IsChannel(s.Channel) || s.Highest < 0 || s.Highest > maxSequence || (s.Highest > 0) != (s.Digest != "") ||
		s.Digest != "" && !isSum(s.Digest) || s.Lifted < 0 || s.PinEnds < 0) {
		err = errors.New("values out of bounds")
	}
	if err != nil {
		return State{}, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

// readState reads the state at path; that of a new node if there is no file. A file that is no state is an error: with a new one,
// older sequences would be taken.
func readState(path, channel string) (State, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{Blockd: version, Channel: channel}, nil
	}
	if err != nil {
		return State{}, err
	}
	s, err := ParseState(text)
	if err != nil {
		return State{}, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if s.Channel == channel {
		return s, nil
	}
	// Numbers of another channel say nothing here. They are kept for when the node goes back to it.
	if err := os.Rename(path, path+"."+s.Channel); err != nil {
		return State{}, err
	}
	if err := os.Rename(path+"."+channel, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return State{}, err
	}
	return readState(path, channel)
}

func (s State) write(path string) error { return durable.WriteFile(path, encode(s), 0o640) }
