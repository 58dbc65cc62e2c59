package config

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"blockd/addr"
	"blockd/internal/term"
	"blockd/lists"
)

// Guard is what no entry of l may cover: what ships, the domains of [index] and
// of the list itself, and those of this server.
func (c Config) Guard(l List) *lists.Guard { return newGuard(c.guardSettings(l)) }

func (c Config) guardSettings(l List) lists.GuardSettings {
	s := lists.GuardSettings{
		AllowPublicSuffix: or(l.AllowPublicSuffix, c.Index.AllowPublicSuffix),
		Force:             l.Force,
		MaxProtected:      or(l.MaxProtected, c.Index.MaxProtected),
		MaxBadRatio:       or(l.MaxBadRatio, c.Index.MaxBadRatio),
		Frees:             l.freesAll(),
	}
	for _, domains := range [][]string{lists.ShippedProtected(), c.Index.Protected, l.Protected, c.OwnDomains()} {
		s.Protected = append(s.Protected, domains...)
	}
	return s
}

// freesAll reports whether the exceptions of the list reach all lists.
func (l List) freesAll() bool { return l.Action == "allow" || l.Exceptions == "all" }

// newGuard makes a guard of domains that Validate has seen.
func newGuard(s lists.GuardSettings) *lists.Guard {
	g, err := lists.NewGuard(s)
	if err != nil {
		panic(err) // ours: what users write was checked
	}
	return g
}

// or is what a list says itself, or else what [index] says for all.
func or[T any](own *T, all T) T {
	if own != nil {
		return *own
	}
	return all
}

// OwnDomains are the server's own name and the domain that was registered for
// it: to block them is to block one's own users. A machine without a name of
// more than one label, such as a container, has none.
func (c Config) OwnDomains() []string {
	key, err := addr.DomainKey(cmp.Or(c.SMTP.Hostname, MachineName()))
	if err != nil || key.Labels < 2 {
		return nil
	}
	if registered := lists.RegistrableDomain(key.Text); registered != "" && registered != key.Text {
		return []string{registered, key.Text}
	}
	return []string{key.Text}
}

// validateForeign refuses a recipient of the open-relay test who is at home here: any server
// takes mail for its own domains.
func (c Config) validateForeign(f *Faults) {
	a, err := addr.Parse(c.SMTP.SelfTestRecipient)
	if err != nil {
		return // validateSelfTest has said so
	}
	for _, own := range c.OwnDomains() {
		if a.Domain() == own || strings.HasSuffix(a.Domain(), "."+own) {
			f.add("smtp.selftest_recipient", "want a recipient at a domain that is not yours, have %s", a.Domain())
			return
		}
	}
}

// The bounds of the gate. A list that is to grow by any factor says 1e6, which is
// from the least that is compared, 1,000 entries, to ten times the most that an
// index is made for.
const (
	mostProtected = 1_000_000
	mostGrow      = 1e6

	// mostRecent senders take 400 MB; a day's of a large provider.
	mostRecent = 1_000_000

	// leastAge: no list is written more often, and the poll must see it.
	leastAge = time.Minute
	mostAge  = 3650 * day
)

func (x Index) validateGate(f *Faults) {
	f.domains("index.protected", x.Protected)
	f.bounds("index", &x.MaxProtected, &x.MaxBadRatio, &x.MaxShrink, &x.MaxGrow)
	f.timeBounds("index", &x.MaxAge, &x.MaxRecentBlocked, &x.MaxFreed)
	if x.Recent < 0 || x.Recent > mostRecent {
		f.add("index.recent", "want 0 to %d, have %d", mostRecent, x.Recent)
	}
}

func (l List) validateGate(f *Faults, key string) {
	f.domains(key+".protected", l.Protected)
	f.domains(key+".force", l.Force)
	f.bounds(key, l.MaxProtected, l.MaxBadRatio, l.MaxShrink, l.MaxGrow)
	f.timeBounds(key, l.MaxAge, l.MaxRecentBlocked, l.MaxFreed)
}

// timeBounds checks those of the gate's bounds that need a clock or a memory.
func (f *Faults) timeBounds(table string, age *Duration, recent, freed *float64) {
	if age != nil && *age != 0 {
		f.between(table+".max_age", *age, leastAge, mostAge)
	}
	if recent != nil && !(*recent >= 0 && *recent <= 1) { // TOML has a NaN
		f.add(table+".max_recent_blocked", "want 0 to 1, have %v", *recent)
	}
	if freed != nil && !(*freed >= 0 && *freed <= 1) {
		f.add(table+".max_freed", "want 0 to 1, have %v", *freed)
	}
}

// bounds checks those that are given.
func (f *Faults) bounds(table string, protected *int, ratio, shrink, grow *float64) {
	if protected != nil && (*protected < 0 || *protected > mostProtected) {
		f.add(table+".max_protected", "want 0 to %d, have %d", mostProtected, *protected)
	}
	for _, b := range []struct {
		key         string
		value       *float64
		least, most float64
	}{{"max_bad_ratio", ratio, 0, 1}, {"max_shrink", shrink, 0, 1}, {"max_grow", grow, 1, mostGrow}} {
		if b.value == nil {
			continue
		}
		if v := *b.value; !(v >= b.least && v <= b.most) { // TOML has a NaN
			f.add(table+"."+b.key, "want %.0f to %.0f, have %v", b.least, b.most, v)
		}
	}
}

func (f *Faults) domains(key string, texts []string) {
	for i, text := range texts {
		if _, err := addr.DomainKey(text); err != nil {
			f.add(fmt.Sprintf("%s[%d]", key, i), "want a domain, have %v", err)
		}
	}
}

// gateWarnings are the overrides of l that stay in force, each by its name.
func (l List) gateWarnings() (w []string) {
	may := "block"
	switch {
	case l.Action == "allow":
		may = "free"
	case l.Exceptions == "all":
		may = "block or free"
	}
	if len(l.Force) > 0 {
		w = append(w, fmt.Sprintf("list %q may %s all of %s: force", l.Name, may, strings.Join(l.Force, ", ")))
	}
	if l.AllowPublicSuffix != nil && *l.AllowPublicSuffix {
		w = append(w, fmt.Sprintf("list %q may %s whole top-level domains: allow_public_suffix", l.Name, may))
	}
	if l.Action == "allow" {
		return w
	}
	for _, b := range []struct {
		key   string
		value *float64
		off   float64
	}{{"max_bad_ratio", l.MaxBadRatio, 1}, {"max_shrink", l.MaxShrink, 0}, {"max_grow", l.MaxGrow, mostGrow},
		{"max_recent_blocked", l.MaxRecentBlocked, 1}, {"max_freed", l.MaxFreed, 1}} {
		if b.value != nil && *b.value == b.off {
			w = append(w, fmt.Sprintf("list %q is not judged by %s: it is %s", l.Name, b.key, shownFloat(b.off)))
		}
	}
	return w
}

func shownFloat(f float64) string {
	if f == math.Trunc(f) {
		return term.Grouped(uint64(f))
	}
	return fmt.Sprint(f)
}

// MachineName is what the system calls itself.
func MachineName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
