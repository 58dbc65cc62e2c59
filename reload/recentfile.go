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

	"blockd/addr"
	"blockd/internal/durable"
)

// RecentSuffix makes of an index file's name that of the file which keeps a Recent.
const RecentSuffix = ".recent"

// The file is text: a first line, a line for each domain with one for each of its
// senders behind it, one for each client network that has counted on the day of the
// first line, and the sum of all that. The history cannot stand in for it: it holds
// decisions at RCPT, and of no message whether it was sent.
//
//	blockd-recent 1 20779
//	domain 20779 b there.example
//	sender 20779 3 192.0.2.7 a@there.example
//	network 1 192.0.2.0/24
//	sum 0f6a1c3d5e7b9a81
const recentHead = "blockd-recent 1 "

// saveEvery is how much of what was noted a crash may cost.
const saveEvery = time.Minute

var recentSum = crc64.MakeTable(crc64.ECMA)

// Keep writes r to the file at path, once a minute if there is something new, until ctx
// ends, and then once more. A nil Recent is not kept.
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

// Save writes r to the file at path, unless nothing has changed since it was saved. What
// has been silent for too long is left out, and forgotten.
func (r *Recent) Save(path string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if !r.changed {
		r.mu.Unlock()
		return nil
	}
	r.changed = false
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
			fmt.Fprintf(&b, "sender %d %x %s %s\n", s.last, s.seen, shownClient(s.client), s.address)
		}
	}
	for p, n := range r.networks {
		fmt.Fprintf(&b, "network %d %s\n", n, shownNetwork(p))
	}
	fmt.Fprintf(&b, "sum %016x\n", crc64.Checksum([]byte(b.String()), recentSum))
	return b.String()
}

func shownClient(ip netip.Addr) string {
	if !ip.IsValid() {
		return "-"
	}
	return ip.String()
}

func shownNetwork(p netip.Prefix) string {
	if !p.IsValid() {
		return "-"
	}
	return p.String()
}

// OpenRecent returns a Recent of at most n senders with what the file at path holds. A
// file that is damaged is told of, and r begins anew.
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

// maxRecentFile bounds what is read. A million senders take less.
const maxRecentFile = 1 << 30

func (r *Recent) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecentFile))
	if err != nil {
		return err
	}
	at := strings.LastIndex(string(text), "\nsum ") + 1
	if at == 0 || string(text[at:]) != fmt.Sprintf("sum %016x\n", crc64.Checksum(text[:at], recentSum)) {
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
			s := &sender{domain: d}
			var client, address string
			s.days, rest, ok = parseDays(rest)
			client, address, _ = strings.Cut(rest, " ")
			var err error
			if s.address, err = addr.Parse(address); err != nil {
				continue // it was canonical; a later version of the grammar may differ
			}
			if client != "-" {
				s.client, err = netip.ParseAddr(client)
			}
			if ok = ok && d != nil && err == nil; ok && s.count(now) > 0 && s.last <= now+1 {
				all = append(all, s)
			}
		case "network":
			var count int
			var p netip.Prefix
			_, err := fmt.Sscanf(rest, "%d", &count)
			if _, text, _ := strings.Cut(rest, " "); text != "-" && err == nil {
				p, err = netip.ParsePrefix(text)
			}
			if ok = err == nil && count > 0; ok && day == now {
				r.networks[p] = count
			}
		}
		if !ok {
			return fmt.Errorf("line %d: %w", n, errRecentTorn)
		}
	}
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
	return lines.Err()
}

// parseDays reads "LAST SEEN REST".
func parseDays(text string) (d days, rest string, ok bool) {
	last, text, _ := strings.Cut(text, " ")
	seen, rest, _ := strings.Cut(text, " ")
	_, err := fmt.Sscanf(last+" "+seen, "%d %x", &d.last, &d.seen)
	return d, rest, err == nil && d.seen != 0 && d.last >= 0
}
