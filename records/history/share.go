package history

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"blockd/internal/durable"
	"blockd/internal/share"
)

// A history that is nearly full makes room by removing lines of the networks that have
// the most, their oldest first, until all of these have about the same. It finds a level
// below which a network keeps every line. So a network that sends a flood evicts
// its own records, and those of no other network. Doors share before networks do, in the same way: at some of them
// whoever asks names any client. What programs were told gives room to mail, down to toldShare.

const (
	// sharesFrom and sharesTo are the parts of Max at which this begins and ends, in
	// eighths. The eighth above is for decisions that come meanwhile. If it does not
	// suffice, the oldest segment goes, with the lines of all networks.
	sharesFrom, sharesTo = 7, 6

	// shares is how many counters there are, of eight octets. Networks are hashed to them
	// by a secret seed. Two networks with one counter have one share.
	shares = 1 << 16

	// toldShare is the eighth that what programs were told keeps, however much mail comes, and mostDoors how many doors
	// have a share of their own.
	toldShare = 1
	mostDoors = 16
)

// doorShare is what one door has, by network: of mail, or of what programs were told.
type doorShare struct {
	told        bool
	have, kept  [shares]int64
	sum, budget int64
	level       int64 // below which a network keeps every line
}

// doorShares are those of all doors.
type doorShares map[string]*doorShare

// of is the share of a line, and its network in it.
func (d doorShares) of(l *Log, line []byte) (*doorShare, uint64) {
	door, told, network := l.shareOf(line)
	if told {
		door += "\x00"
	}
	if d[door] == nil && len(d) >= mostDoors {
		door = ""
	}
	if d[door] == nil {
		d[door] = &doorShare{told: told}
	}
	return d[door], network
}

// divide gives each door, and in it each network, its level, so that all have no more than so many octets, and what
// programs were told no more than least, if mail needs the rest.
func (d doorShares) divide(most, least int64) {
	told := int64(0)
	for _, door := range d {
		for _, n := range door.have {
			door.sum += n
		}
		if door.told {
			told += door.sum
		}
	}
	left := most - d.share(false, most-min(told, least))
	d.share(true, left)
}

// share divides octets among the doors of mail, or the others, and returns how many they use.
func (d doorShares) share(told bool, most int64) (used int64) {
	var sums []int64
	for _, door := range d {
		if door.told == told {
			sums = append(sums, door.sum)
		}
	}
	level := share.Level(slices.Values(sums), most)
	for _, door := range d {
		if door.told == told {
			door.budget = min(door.sum, level)
			door.level = share.Level(slices.Values(door.have[:]), door.budget)
			used += door.budget
		}
	}
	return used
}

// crowding wakes makeRoom if there is reason to.
func (l *Log) crowding(total int64) {
	if total > l.settings.Max/8*sharesFrom {
		wake(l.crowded)
	}
}

// share makes room. It reads the files twice, without keeping writers waiting.
func (l *Log) share(ctx context.Context) error {
	if l.octets.Load() <= l.settings.Max/8*sharesFrom {
		return nil
	}
	l.writing.Lock()
	if l.file != nil {
		l.finish() // a network may have too much in it, too
	}
	all := slices.Clone(l.older)
	l.writing.Unlock()
	doors := doorShares{}
	for _, s := range slices.Backward(all) {
		text, err := linesOf(ctx, s)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			door, network := doors.of(l, line)
			door.have[network] += int64(len(line))
		}
	}
	doors.divide(l.settings.Max/8*sharesTo, l.settings.Max/8*toldShare)
	for _, s := range slices.Backward(all) {
		text, err := linesOf(ctx, s)
		if err != nil {
			return err
		}
		left := l.within(text, doors)
		if len(left) < len(text) {
			if err := l.shorten(s, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// within returns the lines of a segment that the levels leave, in their order. doors count
// the octets that newer segments have used of the levels.
func (l *Log) within(text []byte, doors doorShares) []byte {
	var stay [][]byte
	for end := len(text); end > 0; {
		start := bytes.LastIndexByte(text[:end-1], '\n') + 1
		line := text[start:end]
		door, network := doors.of(l, line)
		if share := &door.kept[network]; *share+int64(len(line)) <= door.level {
			*share += int64(len(line))
			stay = append(stay, line)
		} else {
			*share = door.level + 1 // lines that are older than a removed line go too
		}
		end = start
	}
	slices.Reverse(stay)
	return bytes.Join(stay, nil)
}

// shorten puts a text in place of a segment's, unless it has gone meanwhile.
func (l *Log) shorten(s segment, text []byte) error {
	d, err := durable.Create(s.path, 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := d.Write(append([]byte(fileHead), text...)); err != nil {
		return err
	}
	if err := errors.Join(os.Chtimes(d.Name(), s.written, s.written), d.Sync()); err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	i := slices.IndexFunc(l.older, func(o segment) bool { return o.number == s.number })
	if i < 0 || l.lock == nil || l.older[i].size != s.size { // another process may have had it meanwhile
		return nil
	}
	os.Remove(sumsPath(l.settings.Folder, s.number)) // of what goes
	defer wake(l.finished)
	size := int64(len(fileHead) + len(text))
	if len(text) == 0 {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.older = slices.Delete(l.older, i, i+1)
		size = 0
	} else {
		if err := d.Commit(); err != nil {
			return err
		}
		l.older[i].size = size
	}
	l.octets.Add(size - s.size)
	return nil
}

// linesOf returns the whole lines of a segment after its head.
func linesOf(ctx context.Context, s segment) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, err := readSegment(s.path, min(s.size, maxSegment+maxLine), nil)
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	return bytes.TrimPrefix(text, []byte(fileHead)), err
}

// shareOf is the door of a line, whether it tells what a program was told, and the counter of its network. Lines
// without a client share one, and so do all of what programs were told: these may be about any network, day and
// night.
func (l *Log) shareOf(line []byte) (door string, told bool, network uint64) {
	var parts [5][]byte // the time, door, outcome, verdict, client
	for i := range parts {
		parts[i], line, _ = bytes.Cut(line, []byte("\t"))
	}
	door = string(parts[1])
	if string(parts[2]) == Listed {
		return door, true, 0
	}
	a, err := netip.ParseAddr(string(bytes.TrimSuffix(parts[4], []byte("\n"))))
	if err != nil {
		a = netip.Addr{}
	}
	return door, false, maphash.Comparable(l.seed, Network(a)) % shares
}
