package doctor

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/access"
	"blockd/sources/mirror"
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
	if unlogged, is := errors.AsType[*mirror.Unlogged](err); is {
		r.warning(unlogged.Hint, "list %s: its %s is read whole each time: %s", l.Name, l.Source.Kind, unlogged.Why)
	} else if err != nil {
		hint := mirror.Hint(err)
		if hint == "" {
			hint = "blockd source test " + l.Name + " shows more"
		}
		serves := "the copy serves on"
		if l.Asked() {
			serves = "what its filter holds is still asked for"
		}
		r.fault(hint, "list %s: its %s cannot be read, and %s: %v", l.Name, l.Source.Kind, serves, err)
	} else if l.Asked() {
		d.checkAsked(ctx, r, l, source)
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

// sampled is how many entries of a list that is asked are tried.
const sampled = 20

// checkAsked asks a store for entries that it has, as mail would, and tells how long that takes.
func (d *doctor) checkAsked(ctx context.Context, r *report, l config.List, source mirror.Source) {
	c := d.Config
	c.Lists = []config.List{l}
	sets := daemon.OpenAsked(c, slog.New(slog.DiscardHandler))
	defer daemon.CloseAsked(sets)
	daemon.LoadFilters(c, sets)
	set := sets.All()[0]

	var entries []string
	enough := errors.New("enough")
	if _, err := source.All(ctx, func(row mirror.Row) error {
		if _, no := mirror.Say(row, c.ListSettings(l)); no == nil && row.Item == nil {
			entries = append(entries, row.Entry)
		}
		if len(entries) == sampled {
			return enough
		}
		return nil
	}); err != nil && len(entries) < sampled { // else it is how reading was ended, in a driver's words
		r.fault("blockd source test "+l.Name+" shows more", "list %s: its %s cannot be read: %v", l.Name, l.Source.Kind, err)
		return
	}
	longest, absent, passed, told := time.Duration(0), 0, 0, 0
	if _, err := set.Store.Ask(ctx, []string{"doctor.invalid"}); err != nil { // which opens the connection
		r.fault("blockd source test "+l.Name+" shows more", "list %s: its %s does not answer a question: %v", l.Name, l.Source.Kind, err)
		return
	}
	for _, e := range entries {
		began := time.Now()
		answers, err := set.Store.Ask(ctx, []string{e})
		if err != nil {
			r.fault("blockd source test "+l.Name+" shows more", "list %s: its %s does not answer a question: %v", l.Name, l.Source.Kind, err)
			return
		}
		longest = max(longest, time.Since(began))
		if len(answers) != 1 || len(answers[0].Rows) == 0 {
			absent++
		}
		if covered, ok := set.Covers(e); ok {
			if told++; !covered {
				passed++
			}
		}
	}
	switch n := len(entries); {
	case n == 0:
		r.warning("blockd source test "+l.Name+" shows more", "list %s: its %s has no entries", l.Name, l.Source.Kind)
	case absent > 0:
		r.fault("write entries in lower case, and domains as A-labels", "list %s: %d of %d entries are not found when they are asked for", l.Name, absent, n)
	case passed > 0:
		r.fault("restart blockd, which builds the filter anew, and see changes in docs/ask.md", "list %s: its filter lacks %d of %d entries, which are never asked for", l.Name, passed, n)
	case told == 0 && ownFilter(l):
		r.warning("blockd serve builds it", "list %s: its %s answers in %s, but there is no filter yet, so nothing is asked", l.Name, l.Source.Kind, longest.Round(10*time.Microsecond))
	case longest > set.Timeout/2:
		r.warning("a store nearer by, or a longer source.timeout", "list %s: its %s takes up to %s for a question, of %s that it may take", l.Name, l.Source.Kind, longest.Round(10*time.Microsecond), set.Timeout)
	default:
		r.ok("list %s: its %s answers in %s at most, and knows the %d entries that were tried", l.Name, l.Source.Kind, longest.Round(10*time.Microsecond), n)
	}
}

// ownFilter reports whether blockd makes the filter of a list.
func ownFilter(l config.List) bool {
	kind, _ := l.Source.FilterFrom()
	return kind == "keys"
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
