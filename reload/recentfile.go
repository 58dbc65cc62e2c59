package reload

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/internal/durable"
	"blockd/mail/addr"
)

// RecentSuffix makes of an index file's name that of the file which keeps a Recent.
const RecentSuffix = ".recent"

// The file is text: a first line, a line for each domain followed by one for each of its
// senders, a line for each client network that has counted on the day of the first line, and
// the sum of all that. The history cannot replace it: it holds decisions at RCPT, and does
// not say whether a message was sent.
//
//	blockd-recent 1 20779
//	domain 20779 b there.example
//	sender 20779 3 192.0.2.7 a@there.example
//	network 1 192.0.2.0/24
//	sum 0f6a1c3d5e7b9a81
const recentHead = "blockd-recent 1 "

// saveEvery bounds what a crash may lose.
const saveEvery = time.Minute

var crcTable = crc64.MakeTable(crc64.ECMA)

// checksum is the last line of a file of this package.
func checksum(text []byte) string { return fmt.Sprintf("%016x", crc64.Checksum(text, crcTable)) }

// readBounded reads a file of this package. A million entries take less than its bound.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<30))
}

// Keep saves r to the file at path once a minute until ctx ends, and then once more. A nil
// Recent is not kept.
func (r *Recent) Keep(ctx context.Context, path string, log *slog.Logger) error {
	if r == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		err := r.Save(path)
		if err != nil && !failing {
			log.Error("who wrote lately is not kept for the next start", slog.Any("error", err))
		}
		if failing = err != nil; ctx.Err() != nil {
			return nil
		}
	}
}

// Save writes r to the file at path, unless nothing has changed since it was saved. Senders
// that have been silent for too long are left out, and forgotten.
func (r *Recent) Save(path string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if !r.changed {
		r.mu.Unlock()
		return nil
	}
	text := r.text(today())
	r.mu.Unlock()
	err := durable.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		r.mu.Lock()
		r.changed = true
		r.mu.Unlock()
	}
	return err
}

func (r *Recent) text(day int) string {
	r.begin(day)
	for _, s := range r.senders {
		if s.count(day) == 0 {
			r.drop(s)
		}
	}
	r.changed = false
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d\n", recentHead, r.day)
	for _, d := range r.domains {
		fmt.Fprintf(&b, "domain %d %x %s\n", d.last, d.seen, d.name)
		for _, s := range d.senders {
			fmt.Fprintf(&b, "sender %d %x %s %s\n", s.last, s.seen, shown(s.client), s.address)
		}
	}
	for p, n := range r.networks {
		fmt.Fprintf(&b, "network %d %s\n", n, shown(p))
	}
	fmt.Fprintf(&b, "sum %s\n", checksum([]byte(b.String())))
	return b.String()
}

// shown is a client or a network, "-" if it is not known.
func shown(address interface {
	IsValid() bool
	String() string
}) string {
	if !address.IsValid() {
		return "-"
	}
	return address.String()
}

// OpenRecent returns a Recent of at most n senders with what the file at path holds. A
// damaged file is logged, and the Recent begins empty.
func OpenRecent(path string, n int, log *slog.Logger) *Recent {
	r := NewRecent(n)
	if r == nil {
		return nil
	}
	err := r.load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("who wrote lately is not known and is learned anew", slog.String("file", path), slog.Any("error", err),
			slog.String("until_then", "max_recent_blocked holds nothing back"))
		r = NewRecent(n)
	}
	return r
}

var errRecentTorn = errors.New("the file is torn or of another kind")

func (r *Recent) load(path string) error {
	text, err := readBounded(path)
	if err != nil {
		return err
	}
	at := strings.LastIndex(string(text), "\nsum ") + 1
	if at == 0 || string(text[at:]) != "sum "+checksum(text[:at])+"\n" {
		return errRecentTorn
	}
	return r.parse(string(text[:at]))
}

// parse reads the lines above the sum. What is too old is left out, and of more senders
// than there is room for those that wrote on most days are taken.
func (r *Recent) parse(text string) error {
	now := today()
	lines := bufio.NewScanner(strings.NewReader(text))
	if !lines.Scan() {
		return errRecentTorn
	}
	var day int
	if _, err := fmt.Sscanf(lines.Text(), recentHead+"%d", &day); err != nil {
		return fmt.Errorf("line 1: %w", errRecentTorn)
	}
	r.day = min(day, now)
	var all []*sender
	var d *domain
	for n := 2; lines.Scan(); n++ {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		ok := false
		switch word {
		case "domain":
			d = &domain{}
			d.days, d.name, ok = parseDays(rest)
		case "sender":
			var s *sender
			if s, ok = parseSender(rest, d); s != nil && s.count(now) > 0 && s.last <= now+1 {
				all = append(all, s)
			}
		case "network":
			var p netip.Prefix
			var count int
			if p, count, ok = parseNetwork(rest); ok && day == now {
				r.networks[p] = count
			}
		}
		if !ok {
			return fmt.Errorf("line %d: %w", n, errRecentTorn)
		}
	}
	r.fill(all, now)
	return lines.Err()
}

// fill takes the senders that were read, as many as there is room for.
func (r *Recent) fill(all []*sender, now int) {
	if len(all) > r.maximum {
		slices.SortStableFunc(all, func(a, b *sender) int { return cmp.Compare(b.domain.count(now), a.domain.count(now)) })
		all = all[:r.maximum]
	}
	for _, s := range all {
		if r.senders[s.address.String()] == nil && len(s.domain.senders) < sendersEach {
			r.senders[s.address.String()] = s
			r.domains[s.domain.name] = s.domain
			s.domain.senders = append(s.domain.senders, s)
		}
	}
}

// parseSender reads "LAST SEEN CLIENT ADDRESS". An address that cannot be read was
// canonical, but a later version of the grammar may differ: it is no fault, and no sender.
func parseSender(text string, d *domain) (*sender, bool) {
	s := &sender{domain: d}
	days, text, ok := parseDays(text)
	client, address, _ := strings.Cut(text, " ")
	var err error
	if s.address, err = addr.Parse(address); err != nil {
		return nil, true
	}
	if client != "-" {
		s.client, err = netip.ParseAddr(client)
	}
	if !ok || d == nil || err != nil {
		return nil, false
	}
	s.days = days
	return s, true
}

// parseNetwork reads "COUNT NETWORK".
func parseNetwork(text string) (p netip.Prefix, count int, ok bool) {
	_, err := fmt.Sscanf(text, "%d", &count)
	if _, text, _ = strings.Cut(text, " "); text != "-" && err == nil {
		p, err = netip.ParsePrefix(text)
	}
	return p, count, err == nil && count > 0
}

// parseDays reads "LAST SEEN REST".
func parseDays(text string) (d days, rest string, ok bool) {
	last, text, _ := strings.Cut(text, " ")
	seen, rest, _ := strings.Cut(text, " ")
	_, err := fmt.Sscanf(last+" "+seen, "%d %x", &d.last, &d.seen)
	return d, rest, err == nil && d.seen != 0 && d.last >= 0
}

// Forget takes a sender out of r and of the file at path. It reports whether it was there.
func (r *Recent) Forget(a addr.Addr, path string) (had bool, err error) {
	if r == nil {
		return false, nil
	}
	r.mu.Lock()
	if s := r.senders[a.String()]; s != nil {
		r.drop(s)
		had = true
	}
	r.mu.Unlock()
	return had, r.Save(path)
}

// has reports whether a sender is remembered. A nil Recent does not know.
func (r *Recent) has(address string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.senders[address] != nil
}
