package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/access"
	"blockd/internal/term"
)

// files examines, as the daemon's user, the files that the daemon opens.
type files struct {
	*doctor
	*report
	looked int
}

// checkFiles examines all files. One line stands for all that can be opened.
func (d *doctor) checkFiles(_ context.Context, r *report) {
	f, before := files{doctor: d, report: r}, len(r.found)
	f.see("the configuration", d.path, access.Read)
	f.see("http.token_file", d.HTTP.OwnToken(), access.Read)
	if _, err := os.Stat(d.FirstToken()); err == nil { // made when the daemon starts
		f.see("http.token_file", d.FirstToken(), access.Read)
	}
	if _, err := os.Stat(d.HTTP.Tokens); err == nil { // made with the first token
		f.see("http.tokens", d.HTTP.Tokens, access.Read)
	}
	f.see("smtp.tls_cert", d.SMTP.TLSCert, access.Read)
	f.see("smtp.tls_key", d.SMTP.TLSKey, access.Read)
	f.see("smtp.upstream_tls_ca", d.SMTP.UpstreamTLSCA, access.Read)
	f.see("http.tls_cert", d.HTTP.TLSCert, access.Read)
	f.see("http.tls_key", d.HTTP.TLSKey, access.Read)
	f.writes("index.path", filepath.Dir(d.Index.Path))
	f.seeKept()
	if d.Live.Folder != config.None {
		f.writes("live.folder", d.LiveFolder())
	}
	if d.History.Folder != config.None {
		f.writes("history.folder", d.HistoryFolder())
	}
	f.writes("smtp.quarantine", d.SMTP.Quarantine)
	if up, err := config.ParseUpstream(d.SMTP.Upstream); err == nil && d.SMTP.Open() {
		switch up.Scheme {
		case "maildir":
			f.writes("smtp.upstream", up.Address)
		case "lmtp+unix":
			f.see("smtp.upstream", up.Address, access.Write)
		}
	}
	f.seeSockets()
	for _, l := range d.Lists {
		f.seeList(l)
		f.seeSource(l)
	}
	if len(r.found) == before {
		r.ok("%s are open to %s", term.Counted(f.looked, "place"), d.user)
	}
}

// see examines one path, "" = none.
func (f *files) see(what, path string, want access.Want) {
	if path == "" {
		return
	}
	full, err := filepath.Abs(path)
	if err != nil {
		f.fault("", "%s: %v", what, err)
		return
	}
	f.looked++
	err = f.user.Check(full, want)
	var denied *access.Denied
	switch {
	case err == nil:
	case errors.As(err, &denied) && denied.ACL:
		f.warning("see getfacl "+denied.Path, "%s: %v", what, denied)
	case errors.As(err, &denied):
		f.fault(cureOf(denied), "%s: %v", what, denied)
	case errors.Is(err, fs.ErrNotExist):
		f.fault("make it, or name another one", "%s: %s is not there", what, term.Path(full))
	case errors.Is(err, fs.ErrPermission):
		f.warning("run blockd doctor as root or as "+f.user.String(), "%s: %v", what, err)
	default:
		f.fault("", "%s: %v", what, err)
	}
}

// writes examines a folder that the daemon makes itself: the folder above must allow that.
func (f *files) writes(what, folder string) {
	if folder != "" {
		f.see(what, existing(folder), access.Write|access.Search)
	}
}

// existing is a folder, or the deepest existing one above it.
func existing(folder string) string {
	for {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}

// seeKept examines the files beside the index: a file that root has left there stops the
// daemon.
func (f *files) seeKept() {
	kept, err := filepath.Glob(f.Index.Path + "*")
	if err != nil {
		return
	}
	for _, path := range kept {
		switch info, err := os.Lstat(path); {
		case err != nil:
		case info.IsDir():
			f.see("index.path", path, access.Read|access.Write|access.Search)
		case info.Mode().IsRegular():
			f.see("index.path", path, access.Read)
		}
	}
}

// seeSockets examines the folders in which the daemon makes Unix sockets.
func (f *files) seeSockets() {
	for _, s := range []struct{ key, listen string }{{"milter.listen", f.Milter.Listen}, {"postfix.policy_listen", f.Postfix.PolicyListen},
		{"postfix.socketmap_listen", f.Postfix.SocketmapListen}, {"postfix.tcp_listen", f.Postfix.TCPListen}, {"http.socket", config.UnixPrefix + f.HTTP.Socket}} {
		path, ok := strings.CutPrefix(s.listen, config.UnixPrefix)
		if ok && filepath.IsAbs(path) && !heldFor(f.user, path) { // "auto" is beside the index
			f.see(s.key, filepath.Dir(path), access.Write|access.Search)
		}
	}
}

// heldFor reports whether a socket is there that the daemon's user has not made: that of a socket unit.
func heldFor(u access.User, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != u.UID
}

// seeList examines the files of a list. It ignores missing ones.
func (f *files) seeList(l config.List) {
	if closed := l.ClosedTo(f.user); closed != "" {
		f.looked++
		f.fault("open it to "+f.user.String()+", or keep lists where it may read, as in /etc/blockd/lists", "list %s: %s", l.Name, closed)
		return
	}
	paths, err := filepath.Glob(l.Path)
	if err != nil {
		f.fault("", "list %s: %v", l.Name, err)
	}
	for _, path := range paths {
		f.see("list "+l.Name, path, access.Read)
	}
}

// cureOf is the command that opens a closed path to the daemon, and to no other user.
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
