package builder

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
)

// A frame is the length of what follows, u32 little-endian, and a JSON text. The child begins
// with its version, in an answer of its own; the parent sends one request. Progress follows,
// and at the end either what was made or a fault.

// protocol is raised with every change of what frames say.
const protocol = 2

// maxFrame bounds a frame: a request of 65,535 files of the longest names has some 300 MB, of usual ones 20.
const maxFrame = 512 << 20

// version names the program and what it says: two that differ do not work together.
func version() string {
	v := fmt.Sprintf("%d/%d", protocol, lists.ParserVersion)
	if info, ok := debug.ReadBuildInfo(); ok {
		v += " " + info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				v += " " + s.Value
			}
		}
	}
	return v
}

// answer is what a child says: one of its fields.
type answer struct {
	Version  string          `json:",omitempty"`
	Progress *index.Progress `json:",omitempty"`
	Made     *index.Made     `json:",omitempty"`
	Fault    *index.Fault    `json:",omitempty"`
	Kept     *kept.Result    `json:",omitempty"`
}

// request is what a child is to build.
type request struct {
	Version    string
	Path, Temp []byte // names of files may be no UTF-8
	Urgent     bool
	Parse      bool // the segment of one source, and no index
	Sources    []source
	Guards     []*lists.GuardSettings // of sources, which share them
	Hold       map[int]*index.Fault
	Kept       *kept.Job // in place of a build
	Options    index.Options
}

// source is an index.Source without its guard.
type source struct {
	index.Source
	Path    []byte // in place of the source's, as Kept
	Kept    []byte
	Guard   int // its place in Guards; -1: none
	GuardID uint64
}

func newRequest(path, temp string, sources []index.Source, o index.Options, urgent bool) request {
	r := request{Version: version(), Path: []byte(path), Temp: []byte(temp), Urgent: urgent, Hold: map[int]*index.Fault{}}
	places := map[*lists.Guard]int{}
	for _, s := range sources {
		guard := s.Settings.Guard
		place, known := places[guard]
		switch {
		case guard == nil:
			place = -1
		case !known:
			place = len(r.Guards)
			places[guard] = place
			r.Guards = append(r.Guards, guard.Settings())
		}
		s.Settings.Guard = nil
		r.Sources = append(r.Sources, source{s, []byte(s.Path), []byte(s.Kept), place, guard.ID()})
	}
	for row, why := range o.Hold {
		r.Hold[row] = index.FaultOf(why)
	}
	r.Options = o
	r.Options.Hold = nil
	return r
}

// sources are those of the request, with their guards.
func (r *request) sources() ([]index.Source, error) {
	guards := make([]*lists.Guard, len(r.Guards))
	for i, s := range r.Guards {
		var err error
		if guards[i], err = lists.NewGuard(*s); err != nil {
			return nil, err
		}
	}
	all := make([]index.Source, len(r.Sources))
	for i, s := range r.Sources {
		if s.Guard >= len(guards) {
			return nil, fmt.Errorf("guard %d of %d", s.Guard, len(guards))
		}
		all[i] = s.Source
		all[i].Path, all[i].Kept = string(s.Path), string(s.Kept)
		if s.Guard >= 0 {
			all[i].Settings.Guard = guards[s.Guard]
		}
		if id := all[i].Settings.Guard.ID(); id != s.GuardID {
			return nil, fmt.Errorf("list %s: guard %x, want %x", s.List, id, s.GuardID)
		}
	}
	return all, nil
}

func send(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("a frame of %d octets, at most %d", len(b), maxFrame)
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// receive reads one frame. io.EOF: there is none. Memory follows what has arrived and not
// what was announced.
func receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("a frame of %d octets, at most %d", n, maxFrame)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(b.Bytes(), v)
}

// fromParent reports whether a file is a pipe.
func fromParent(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}
