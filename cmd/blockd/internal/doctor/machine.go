package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/durable"
	"blockd/internal/term"
	"blockd/policy/verdict"
)

// dnsReasons are the settings that make the daemon ask DNS about mail.
func dnsReasons(c config.Config) (why []string) {
	for _, l := range c.Lists {
		if l.Proofs()&^verdict.ClientProof != 0 {
			why = append(why, fmt.Sprintf("list %s requires proof", l.Name))
		}
	}
	if c.SMTP.Open() && c.SMTP.PTR != "off" {
		why = append(why, fmt.Sprintf("smtp.ptr = %q", c.SMTP.PTR))
	}
	if c.Milter.Open() && c.Milter.AuthenticationResults != "" {
		why = append(why, "milter.authentication_results")
	}
	return why
}

// checkDNS asks for the name servers of the root: each resolver knows them.
func (d *doctor) checkDNS(ctx context.Context, r *report) {
	why := dnsReasons(d.Config)
	resolver := &net.Resolver{PreferGo: true}
	server := "the system's resolver"
	if d.Auth.Resolver != "" {
		server = d.Auth.Resolver
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, d.Auth.Resolver)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.Auth.DNSTimeout))
	defer cancel()
	answers := func(err error) bool {
		fault, isDNS := errors.AsType[*net.DNSError](err)
		return err == nil || isDNS && fault.IsNotFound
	}
	if len(why) == 0 {
		r.ok("no rule asks DNS")
	} else if _, err := resolver.LookupNS(ctx, "."); answers(err) {
		r.ok("%s answers (%s)", server, strings.Join(why, ", "))
	} else {
		r.fault("set auth.resolver, or mend /etc/resolv.conf; without DNS no proof is found", "%s: %v (needed: %s)", server, err, strings.Join(why, ", "))
	}
	_, domain, ok := strings.Cut(d.SMTP.SelfTestRecipient, "@")
	if !ok {
		return
	}
	system := net.DefaultResolver // the next server's is as near to it
	if _, err := system.LookupMX(ctx, domain); err != nil {
		if _, err := system.LookupNetIP(ctx, "ip", domain); err != nil {
			r.warning("name an address whose domain resolves", "smtp.selftest_recipient: %v", err)
		}
	}
}

// Times that show a wrong clock: how far in the future a file may be, because clocks of other
// machines differ, and a time before this program was made.
const (
	clockSlack = 5 * time.Minute
	tooEarly   = 2026
)

// checkClock compares the time with that of files, which were written before now.
func (d *doctor) checkClock(_ context.Context, r *report) {
	if d.now.Year() < tooEarly {
		r.fault("set the clock: timedatectl set-ntp true", "it is %s, and blockd is younger than that", d.now.UTC().Format(time.DateTime))
		return
	}
	latest, name := time.Time{}, ""
	look := func(path string) {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(latest) {
			latest, name = info.ModTime(), path
		}
	}
	look(d.path)
	look(d.Index.Path)
	look(d.SMTP.TLSCert)
	if program, err := os.Executable(); err == nil {
		look(program)
	}
	for _, l := range d.Lists {
		files, err := filepath.Glob(l.Path)
		if err != nil {
			continue
		}
		for _, path := range files {
			look(path)
		}
	}
	if latest.After(d.now.Add(clockSlack)) {
		r.warning("set the clock (timedatectl set-ntp true), or touch the file: ages, certificates and ends of entries go by it",
			"it is %s, and %s was written %s from now", d.now.UTC().Format(time.DateTime), term.Path(name), term.Span(latest.Sub(d.now)))
		return
	}
	r.ok("%s, later than all files that it was held against", d.now.UTC().Format(time.DateTime))
}

// checkDisks compares the free room with the room that is needed: a rebuild holds the old
// index and the new, with its parts.
func (d *doctor) checkDisks(_ context.Context, r *report) {
	index := sizeOf(d.Index.Path)
	d.checkRoom(r, "index.path", filepath.Dir(d.Index.Path), index, max(2*index, 16<<20), "a rebuild")
	if d.History.Folder != config.None {
		held := sizeOf(d.HistoryFolder()) // with the sums of its files, which have up to three fifths of them
		d.checkRoom(r, "history.folder", d.HistoryFolder(), 0, max(int64(d.History.Max)*8/5-held, 0), "the history to be full")
	}
	if d.SMTP.Quarantine != "" {
		d.checkRoom(r, "smtp.quarantine", d.SMTP.Quarantine, 0, max(int64(d.SMTP.QuarantineMax)-sizeOf(d.SMTP.Quarantine), 0), "the quarantine to be full")
	}
}

// checkRoom compares the room on the disk of folder with least, below which blockd does not
// work, and with want.
func (d *doctor) checkRoom(r *report, key, folder string, least, want int64, what string) {
	folder = existing(folder)
	free, full, err := durable.Room(folder)
	if err != nil {
		r.warning("", "%s: %s: %v", key, folder, err)
		return
	}
	const more = "make room, or move it to a larger disk"
	switch {
	case full:
		r.fault("remove files there", "%s: no file can be made on the disk of %s", key, term.Path(folder))
	case free < max(least, durable.LeastRoom):
		r.fault(more, "%s: %s free, and %s takes %s", key, term.Octets(free), what, term.Octets(want))
	case free < want:
		r.warning(more, "%s: %s free, and %s may take %s", key, term.Octets(free), what, term.Octets(want))
	default:
		r.ok("%s: %s free, enough for %s (%s)", key, term.Octets(free), what, term.Octets(want))
	}
}

// sizeOf is the size of a file, or of all files below a folder, as far as they can be seen.
func sizeOf(path string) (n int64) {
	filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // a file that vanishes or cannot be read is not counted
	})
	return n
}
