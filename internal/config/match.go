package config

import (
	"fmt"
	"slices"
	"strings"

	"blockd/policy"
)

// sources are the words of match as package policy has them; a list without
// faults only.
func (l List) sources() policy.Sources {
	s, _ := policy.ParseSources(l.Match)
	return s
}

// validateMatch checks which addresses a list is asked about.
func (l List) validateMatch(f *Faults, key string) {
	if _, err := policy.ParseSources(l.Match); err != nil {
		f.add(key+".match", "%v", err)
	} else if len(l.Match) == 0 {
		f.add(key+".match", `is empty: the list would never be asked; want one or more of "%s"`, strings.Join(policy.SourceWords(), `", "`))
	}
	for i, word := range l.Match {
		if slices.Contains(l.Match[:i], word) {
			f.add(fmt.Sprintf("%s.match[%d]", key, i), "%q stands there twice", word)
		}
	}
}

// matchWarnings are about lists for headers, which the SMTP door and the milter see.
func (c Config) matchWarnings() (w []string) {
	for _, l := range c.Lists {
		switch s := l.sources(); {
		case !s.Header():
		case c.SMTP.Open() || c.Milter.Open():
			if c.Postfix.Open() {
				w = append(w, fmt.Sprintf("list %q: header fields are not matched by [postfix], which hears of envelopes alone", l.Name))
			}
		case !s.Has(policy.EnvelopeSource):
			w = append(w, fmt.Sprintf("list %q matches header fields alone, and no door that is open sees a message: it will never match", l.Name))
		default:
			w = append(w, fmt.Sprintf("list %q matches header fields, and no door that is open sees a message", l.Name))
		}
	}
	return w
}

// milterWarnings are about what is set in [smtp] or [[list]] and the milter does
// not do.
func (c Config) milterWarnings() (w []string) {
	if !c.Milter.Open() || c.SMTP.Open() {
		return nil // else it acts at the SMTP door
	}
	if c.SMTP.Helo != "off" {
		w = append(w, "smtp.helo acts at the SMTP door alone, which is shut: behind the milter it is the mail server's part")
	}
	if c.SMTP.PTR != "off" {
		w = append(w, "smtp.ptr acts at the SMTP door alone, which is shut: behind the milter it is the mail server's part")
	}
	for _, l := range c.Lists {
		if l.Tarpit > 0 {
			w = append(w, fmt.Sprintf("list %q: tarpit acts at the SMTP door alone, which is shut: a milter that waits holds a process of the mail server", l.Name))
		}
	}
	return w
}
