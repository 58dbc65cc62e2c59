package config

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"

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

// mostGrow is how a list says that it may grow by any factor: from the least that is compared,
// 1,000 entries, to ten times the most that an index is made for.
const mostGrow = 1e6

func (l List) validateGate(f *Faults, key string) {
	f.domains(key+".protected", l.Protected)
	f.domains(key+".force", l.Force)
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
