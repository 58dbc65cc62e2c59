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
)

// A history that is nearly full makes room by removing lines of the networks that have
// the most, their oldest first, until all of these have about the same. It finds a level
// below which a network keeps every line. So a network that sends a flood evicts
// its own records, and those of no other network.

const (
	// sharesFrom and sharesTo are the parts of Max at which this begins and ends, in
	// eighths. The eighth above is for decisions that come meanwhile. If it does not
	// suffice, the oldest segment goes, with the lines of all networks.
	sharesFrom, sharesTo = 7, 6

	// shares is how many counters there are, of eight octets. Networks are hashed to them
	// by a secret seed. Two networks with one counter have one share.
	shares = 1 << 16
)

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
	var have, kept [shares]int64
	for _, s := range slices.Backward(all) {
		text, err := linesOf(ctx, s)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			have[l.shareOf(line)] += int64(len(line))
		}
	}
	level := levelOf(have[:], l.settings.Max/8*sharesTo)
	for _, s := range slices.Backward(all) {
		text, err := linesOf(ctx, s)
		if err != nil {
			return err
		}
		left := l.within(text, kept[:], level)
		if len(left) < len(text) {
			if err := l.shorten(s, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// within returns the lines of a segment that a level leaves, in their order. kept counts
// the octets that newer segments have used of the level.
func (l *Log) within(text []byte, kept []int64, level int64) []byte {
	var stay [][]byte
	for end := len(text); end > 0; {
		start := bytes.LastIndexByte(text[:end-1], '\n') + 1
		line := text[start:end]
		if share := &kept[l.shareOf(line)]; *share+int64(len(line)) <= level {
			*share += int64(len(line))
			stay = append(stay, line)
		} else {
			*share = level + 1 // lines that are older than a removed line go too
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

// shareOf is the counter of a line's network. Lines without a client share one, and so do all
// that tell what programs were told: these may be about any network, day and night.
func (l *Log) shareOf(line []byte) uint64 {
	var client, outcome []byte
	for i := range 5 { // the time, door, outcome, verdict, client
		if client, line, _ = bytes.Cut(line, []byte("\t")); i == 2 {
			outcome = client
		}
	}
	if string(outcome) == Listed {
		return maphash.Comparable(l.seed, everywhere) % shares
	}
	a, err := netip.ParseAddr(string(bytes.TrimSuffix(client, []byte("\n"))))
	if err != nil {
		a = netip.Addr{}
	}
	return maphash.Comparable(l.seed, Network(a)) % shares
}

// everywhere is the network of what programs were told, which no client has.
var everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)

// levelOf is the highest level at which all networks together have no more than a
// sum.
func levelOf(have []int64, most int64) int64 {
	low, high := int64(0), most // low is low enough
	for low < high {
		level, sum := (low+high+1)/2, int64(0)
		for _, n := range have {
			sum += min(n, level)
		}
		if sum <= most {
			low = level
		} else {
			high = level - 1
		}
	}
	return low
}
