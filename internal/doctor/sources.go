package doctor

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"

	"blockd/access"
	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/mirror"
)

// checkSources asks the source of each list how it would be read, all of them at once.
func (d *doctor) checkSources(ctx context.Context, r *report) {
	var all []*report
	var group sync.WaitGroup
	for _, l := range d.Lists {
		if l.Source == nil {
			continue
		}
		own := &report{check: r.check}
		all = append(all, own)
		group.Go(func() { d.checkSource(ctx, own, l) })
	}
	group.Wait()
	for _, own := range all {
		r.found = append(r.found, own.found...)
	}
}

func (d *doctor) checkSource(ctx context.Context, r *report, l config.List) {
	source, err := daemon.OpenSource(l)
	if err == nil {
		defer source.Close()
		_, err = source.Fingerprint(ctx)
	}
	if planner, ok := source.(interface {
		Plan(context.Context) (string, error)
	}); ok && err == nil {
		_, err = planner.Plan(ctx)
	}
	if err != nil {
		hint := mirror.Hint(err)
		if hint == "" {
			hint = "blockd source test " + l.Name + " shows more"
		}
		r.fault(hint, "list %s: its %s cannot be read, and the copy serves on: %v", l.Name, l.Source.Kind, err)
	} else {
		r.ok("list %s: its %s answers", l.Name, l.Source.Kind)
	}
	if info, err := os.Stat(l.Source.DSNFile); err == nil && l.Source.DSNFile != "" && info.Mode().Perm()&0o007 != 0 {
		r.warning("chmod 0600 "+l.Source.DSNFile, "list %s: every user of this machine may read source.dsn_file", l.Name)
	}
	if dsn, err := l.Source.ReadDSN(); err == nil && readable(dsn) {
		r.warning("let its URL ask for TLS that is verified (docs/sources.md)", "list %s: what its %s sends, and the password, cross the network without TLS, or to an unverified server", l.Name, l.Source.Kind)
	}
}

// readable reports whether a URL lets a connection to another machine go without TLS that is verified. The drivers
// want such TLS unless the URL says otherwise; those of a scheme that is plain by itself do not.
func readable(dsn string) bool {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" || near(u.Hostname()) {
		return false
	}
	q := u.Query()
	switch u.Scheme {
	case "postgres", "postgresql":
		mode := q.Get("sslmode")
		return mode != "" && !strings.HasPrefix(mode, "verify-")
	case "mysql":
		return q.Get("tls") == "false" || q.Get("tls") == "skip-verify"
	case "ldap":
		return !strings.Contains(u.RawQuery, "starttls") || strings.Contains(u.RawQuery, "skip-verify")
	case "ldaps":
		return strings.Contains(u.RawQuery, "skip-verify")
	case "redis", "redis-sentinel", "s3+http":
		return true
	}
	return q.Get("tls") == "skip-verify"
}

// near reports whether a host is this machine.
func near(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// seeSource examines the file of a list's URL.
func (f *files) seeSource(l config.List) {
	if l.Source != nil {
		f.see("source.dsn_file of list "+l.Name, l.Source.DSNFile, access.Read)
	}
}
