package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"blockd/internal/durable"
	"blockd/internal/minisign"
)

// Status says how a node is.
type Status struct {
	Sequence  int64     // in force; 0 = none
	Created   int64     // of it
	Taken     time.Time // when it came in force; zero = before the start
	Seen      int64     // the highest that was verified
	Pinned    int64     // the sequence that it stays at; 0 = it follows
	ByChannel bool      // that is the pin of the channel
	Chosen    bool      // an operator has chosen what is in force: by a pin, a halt, or by publishing it again
	Confirmed time.Time // when a store last gave what the keys have signed; zero = not since the start
	Fresh     int64     // when the newest latest.json that was verified was made; 0 = none was
	Reason    Reason    // of Error
	Error     string    // of the last look, one line; "" = none
}

// Chosen reports whether an operator has chosen what is in force in the folder of a node, as Status says it of one
// that runs without a pin in its Options. It takes no lock.
func Chosen(folder, channel string) bool {
	if readPinFile(folder) > 0 {
		return true
	}
	if s, err := readState(filepath.Join(folder, stateName), channel); err == nil && s.PinEnds > time.Now().Unix() {
		return true
	}
	m, err := Current(folder)
	return err == nil && m != nil && m.Again() > 0
}

// Age is how old the newest is that was seen; false if nothing was.
func (s Status) Age(now time.Time) (time.Duration, bool) {
	if s.Fresh == 0 {
		return 0, false
	}
	return max(0, now.Sub(time.Unix(s.Fresh, 0))), true
}

// Status is that of now.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

// note makes known what a look has come to.
func (n *Node) note(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.status
	s.Seen, s.Pinned, s.ByChannel, s.Reason, s.Error = n.state.Highest, n.pinned(), false, "", ""
	s.Chosen = n.pinned() > 0 || n.pin != nil || n.current != nil && n.current.Again() > 0
	if n.current != nil {
		s.Sequence, s.Created = n.current.Sequence, n.current.Created
		s.Fresh = max(s.Fresh, s.Created)
	}
	if n.latest != nil {
		s.Fresh = max(s.Fresh, n.latest.Created)
	}
	if s.Pinned == 0 && n.pin != nil {
		s.Pinned, s.ByChannel = n.pin.Sequence, true
	}
	if err != nil {
		s.Reason, s.Error = reasonOf(err), oneLine(err)
	}
}

// Problems are why nothing new is taken, or comes, one line each.
func (n *Node) Problems() (lines []string) {
	if n == nil {
		return nil
	}
	s := n.Status()
	switch {
	case s.Error == "":
		if age, known := s.Age(time.Now()); known && n.MaxAge > 0 && age > n.MaxAge {
			lines = append(lines, fmt.Sprintf("fleet: the newest snapshot is %s old, fleet.max_age is %s; %d serves on", age.Round(time.Second), n.MaxAge, s.Sequence))
		}
	case s.Sequence == 0:
		lines = append(lines, "fleet: no snapshot yet: "+s.Error)
	default:
		lines = append(lines, fmt.Sprintf("fleet: snapshot %d serves on: %s", s.Sequence, s.Error))
	}
	return lines
}

// Remarks are what operators should know although all is served.
func (n *Node) Remarks() (lines []string) {
	if n == nil {
		return nil
	}
	switch s := n.Status(); {
	case s.Pinned == 0:
	case s.ByChannel:
		lines = append(lines, fmt.Sprintf("fleet: the channel %s is halted at sequence %d", n.Channel, s.Pinned))
	default:
		lines = append(lines, fmt.Sprintf("fleet: pinned to sequence %d, the newest is %d", s.Pinned, s.Seen))
	}
	return lines
}

// SetPin keeps the node whose folder that is at a sequence, also over restarts; 0 lets it follow the channel again. It may be called
// while a Node runs, which sees it at its next look.
func SetPin(folder string, sequence int64) error {
	if sequence < 0 || sequence > maxSequence {
		return fmt.Errorf("sequence %d", sequence)
	}
	if err := durable.MakeFolder(folder); err != nil {
		return err
	}
	path := filepath.Join(folder, ownPinName)
	if sequence == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return durable.SyncFolder(folder)
	}
	return durable.WriteFile(path, fmt.Appendf(nil, "%d\n", sequence), 0o640)
}

// readPinFile is the sequence of SetPin; 0 = none. A file that says nothing pins nothing.
func readPinFile(folder string) int64 {
	text, err := os.ReadFile(filepath.Join(folder, ownPinName))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n < 0 || n > maxSequence {
		return 0
	}
	return n
}

// readSigned reads a file and its signature.
func readSigned(path string) (f signed, err error) {
	if f.text, err = os.ReadFile(path); err == nil {
		f.signature, err = os.ReadFile(path + minisign.Suffix)
	}
	return f, err
}
