package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"blockd/access"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/term"
	"blockd/policy"
)

// checkFiles looks at what the daemon opens, as its user. One line tells of all that is open.
func (d *doctor) checkFiles(_ context.Context, r *report) {
	looked, before := 0, len(r.found)
	see := func(what, path string, want access.Want) {
		if path == "" {
			return
		}
		full, err := filepath.Abs(path)
		if err != nil {
			r.fault("", "%s: %v", what, err)
			return
		}
		looked++
		err = d.user.Check(full, want)
		var denied *access.Denied
		switch {
		case err == nil:
		case errors.As(err, &denied) && denied.ACL:
			r.warning("see getfacl "+denied.Path, "%s: %v", what, denied)
		case errors.As(err, &denied):
			r.fault(cureOf(denied), "%s: %v", what, denied)
		case errors.Is(err, fs.ErrNotExist):
			r.fault("make it, or name another one", "%s: %s is not there", what, term.Path(full))
		case errors.Is(err, fs.ErrPermission):
			r.warning("run blockd doctor as root or as "+d.user.String(), "%s: %v", what, err)
		default:
			r.fault("", "%s: %v", what, err)
		}
	}
	// A folder that the daemon makes itself: what is above it must let it.
	writes := func(what, path string) {
		if path == "" || path == config.None {
			return
		}
		for parent := path; ; parent = filepath.Dir(parent) {
			if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) || parent == filepath.Dir(parent) {
				see(what, parent, access.Write|access.Search)
				return
			}
		}
	}
	see("the configuration", d.path, access.Read)
	see("http.token_file", d.HTTP.OwnToken(), access.Read)
	if _, err := os.Stat(d.FirstToken()); err == nil { // made when the daemon starts
		see("http.token_file", d.FirstToken(), access.Read)
	}
	if _, err := os.Stat(d.HTTP.Tokens); err == nil { // made with the first token
		see("http.tokens", d.HTTP.Tokens, access.Read)
	}
	see("smtp.tls_cert", d.SMTP.TLSCert, access.Read)
	see("smtp.tls_key", d.SMTP.TLSKey, access.Read)
	see("smtp.upstream_tls_ca", d.SMTP.UpstreamTLSCA, access.Read)
	see("http.tls_cert", d.HTTP.TLSCert, access.Read)
	see("http.tls_key", d.HTTP.TLSKey, access.Read)
	writes("index.path", filepath.Dir(d.Index.Path))
	d.seeKept(see)
	writes("live.folder", folderUnless(d.Live.Folder, d.LiveFolder()))
	writes("history.folder", folderUnless(d.History.Folder, d.HistoryFolder()))
	writes("smtp.quarantine", d.SMTP.Quarantine)
	if up, err := config.ParseUpstream(d.SMTP.Upstream); err == nil && d.SMTP.Open() {
		switch up.Scheme {
		case "maildir":
			writes("smtp.upstream", up.Address)
		case "lmtp+unix":
			see("smtp.upstream", up.Address, access.Write)
		}
	}
	for _, s := range []struct{ key, listen string }{{"milter.listen", d.Milter.Listen}, {"postfix.policy_listen", d.Postfix.PolicyListen},
		{"postfix.socketmap_listen", d.Postfix.SocketmapListen}, {"postfix.tcp_listen", d.Postfix.TCPListen}, {"http.socket", config.UnixPrefix + d.HTTP.Socket}} {
		if path, ok := strings.CutPrefix(s.listen, config.UnixPrefix); ok && filepath.IsAbs(path) { // "auto" is beside the index
			see(s.key, filepath.Dir(path), access.Write|access.Search)
		}
	}
	for _, l := range d.Lists {
		looked += d.checkListFiles(r, l, see)
	}
	if len(r.found) == before {
		r.ok("%s are open to %s", term.Counted(looked, "place"), d.user)
	}
}

// seeKept looks at what stands beside the index: a file that root has left there stops the
// daemon.
func (d *doctor) seeKept(see func(what, path string, want access.Want)) {
	kept, err := filepath.Glob(d.Index.Path + "*")
	if err != nil {
		return
	}
	for _, path := range kept {
		switch info, err := os.Lstat(path); {
		case err != nil:
		case info.IsDir():
			see("index.path", path, access.Read|access.Write|access.Search)
		case info.Mode().IsRegular():
			see("index.path", path, access.Read)
		}
	}
}

func folderUnless(setting, folder string) string {
	if setting == config.None {
		return ""
	}
	return folder
}

// checkListFiles looks at the files of a list. Those that are not there are not its part.
func (d *doctor) checkListFiles(r *report, l config.List, see func(what, path string, want access.Want)) (looked int) {
	if closed := l.ClosedTo(d.user); closed != "" {
		r.fault("open it to "+d.user.String()+", or keep lists where it may read, as in /etc/blockd/lists", "list %s: %s", l.Name, closed)
		return 1
	}
	files, err := filepath.Glob(l.Path)
	if err != nil {
		r.fault("", "list %s: %v", l.Name, err)
	}
	for _, path := range files {
		see("list "+l.Name, path, access.Read)
	}
	return 0
}

// cureOf is the command that opens what is closed, to the daemon and nobody else.
func cureOf(e *access.Denied) string {
	if e.Want&access.Write != 0 {
		return fmt.Sprintf("chown %s %s", e.User, e.Path)
	}
	letters := "r"
	if e.Want&access.Search != 0 {
		letters = map[bool]string{true: "rx", false: "x"}[e.Want&access.Read != 0]
	}
	return fmt.Sprintf("chgrp %s %s && chmod g+%s %s", e.User.Group(), e.Path, letters, e.Path)
}

// dnsReasons are what makes the daemon ask DNS about mail.
func dnsReasons(c config.Config) (why []string) {
	for _, l := range c.Lists {
		if l.Proofs()&^policy.ClientProof != 0 {
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

// Times that tell a wrong clock: how far in the future a file may be, for clocks of other
// machines, and when this program cannot have been made.
const (
	clockSlack = 5 * time.Minute
	tooEarly   = 2026
)

// checkClock holds the time against that of files: they were written before now.
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

// checkDisks compares what is free with what will be wanted: a rebuild holds the old index
// and the new, with its parts.
func (d *doctor) checkDisks(_ context.Context, r *report) {
	index := sizeOf(d.Index.Path)
	d.checkRoom(r, "index.path", filepath.Dir(d.Index.Path), index, max(2*index, 16<<20), "a rebuild")
	if d.History.Folder != config.None {
		held := sizeOf(d.HistoryFolder())
		d.checkRoom(r, "history.folder", d.HistoryFolder(), 0, max(int64(d.History.Max)-held, 0), "the history to be full")
	}
	if d.SMTP.Quarantine != "" {
		d.checkRoom(r, "smtp.quarantine", d.SMTP.Quarantine, 0, max(int64(d.SMTP.QuarantineMax)-sizeOf(d.SMTP.Quarantine), 0), "the quarantine to be full")
	}
}

// checkRoom compares the room on the disk of folder with least, below which it does not
// work, and want.
func (d *doctor) checkRoom(r *report, key, folder string, least, want int64, what string) {
	for {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		r.warning("", "%s: %s: %v", key, folder, err)
		return
	}
	free := freeOctets(s)
	const more = "make room, or move it to a larger disk"
	switch {
	case s.Files > 0 && s.Ffree == 0:
		r.fault("remove files there", "%s: no file can be made on the disk of %s", key, term.Path(folder))
	case free < max(least, 1<<20):
		r.fault(more, "%s: %s free, and %s takes %s", key, term.Octets(free), what, term.Octets(want))
	case free < want:
		r.warning(more, "%s: %s free, and %s may take %s", key, term.Octets(free), what, term.Octets(want))
	default:
		r.ok("%s: %s free, enough for %s (%s)", key, term.Octets(free), what, term.Octets(want))
	}
}

func freeOctets(s unix.Statfs_t) int64 {
	if size := uint64(s.Bsize); size > 0 && s.Bavail > math.MaxInt64/size {
		return math.MaxInt64
	}
	return int64(s.Bavail * uint64(s.Bsize))
}

// sizeOf is the size of a file, or of all files below a folder, as far as they can be seen.
func sizeOf(path string) (n int64) {
	filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // what goes or is closed is not counted
	})
	return n
}

// checkLists asks the daemon for its lists, or else reads the index.
func (d *doctor) checkLists(ctx context.Context, r *report) {
	if len(d.Lists) == 0 {
		r.warning("write a [[list]]", "no lists are configured")
		return
	}
	table, err := daemon.Lists(ctx, d.Config, false)
	from := "the daemon"
	if err != nil {
		from = term.Path(d.Index.Path)
		if table, err = daemon.IndexLists(d.Index.Path, d.path, d.Reload().Lists); errors.Is(err, fs.ErrNotExist) || err != nil && !d.running {
			r.warning("the daemon builds it when it starts; or run: blockd compile -c "+term.Path(d.path), "%v", err)
			return
		} else if err != nil {
			r.fault("run: blockd compile -c "+term.Path(d.path), "%v", err)
			return
		}
	}
	entries, before := 0, len(r.found)
	for _, l := range d.Lists {
		i := slices.IndexFunc(table.Worth, func(w httpapi.ListWorth) bool { return w.List == l.Name })
		if i < 0 {
			hint := "see the daemon's log, and: blockd lint " + term.Path(l.Path)
			if l.Optional {
				r.ok("list %s is not there, and optional", l.Name)
			} else {
				r.fault(hint, "list %s is not loaded (as %s has it)", l.Name, from)
			}
			continue
		}
		w := table.Worth[i]
		entries += w.Entries
		d.judgeList(r, l, w)
	}
	if len(r.found) == before {
		r.ok("%s, %s (as %s has them)", term.Counted(len(d.Lists), "list"), term.Counted(entries, "entry"), from)
	}
}

// unconfirmed is how many times its every a fetched list may be behind, and at least how long.
const (
	unconfirmed      = 5
	leastUnconfirmed = 24 * time.Hour
)

// judgeAge says if the server of a fetched list has not been heard for long. at is when it
// last confirmed what serves.
func (d *doctor) judgeAge(r *report, l config.List, at *time.Time) {
	if l.URL == "" || at == nil {
		return
	}
	every := time.Hour
	if l.Every != nil {
		every = time.Duration(*l.Every)
	}
	if age := d.now.Sub(*at); age > max(unconfirmed*every, leastUnconfirmed) {
		r.warning("see the daemon's log: list not fetched", "list %s: its server has not confirmed it for %s", l.Name, term.Span(age))
	}
}

// judgeList says what is wrong with a list that is known.
func (d *doctor) judgeList(r *report, l config.List, w httpapi.ListWorth) {
	why := ""
	if len(w.Problems) > 0 {
		why = ": " + strings.Join(w.Problems, "; ")
	}
	switch w.State {
	case httpapi.ListOK:
		d.judgeAge(r, l, w.Modified)
	case httpapi.ListStale:
		r.warning("does anybody still write it? See max_age", "list %s is older than its max_age%s", l.Name, why)
	case httpapi.ListPartial:
		r.warning("see: blockd lint "+term.Path(l.Path), "list %s serves without lines that are refused%s", l.Name, why)
	case httpapi.ListMissing:
		if l.Optional {
			return
		}
		r.fault("put the file there; what was loaded before serves on", "list %s: its file is missing%s", l.Name, why)
	default:
		r.fault("see: blockd lint "+term.Path(l.Path)+"; what was loaded before serves on", "list %s is %s%s", l.Name, w.State, why)
	}
}
