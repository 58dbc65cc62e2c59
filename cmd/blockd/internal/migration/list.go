package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// shelf is a list being written.
type shelf struct {
	*List
	out bytes.Buffer
	at  []*Finding // of each line; nil of comments
}

func newShelf(l *List, program string) *shelf {
	s := &shelf{List: l}
	s.comment(fmt.Sprintf("From %s, by blockd import --from-%s.", l.Comes, strings.ToLower(program)))
	return s
}

func (s *shelf) comment(text string) {
	s.out.WriteString(strings.TrimSpace("# "+original.Clean(strings.TrimLeft(text, "#?;! \t"))) + "\n")
	s.at = append(s.at, nil)
}

// put writes a line about an entry.
func (s *shelf) put(f *Finding, text string) {
	if unprintable(text) {
		f.Lose("it has control characters")
		return
	}
	s.out.WriteString(text + "\n")
	s.at = append(s.at, f)
	f.List = s.Name
}

// unprintable tells a text with control characters: no line of a list, no question to another program has them.
func unprintable(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == '\x7f' })
}

// listed adds a list, if it has entries. The gate is told to let pass what the other program had in force, and an
// entry that the list cannot hold is lost.
func (r *Result) listed(ctx context.Context, s *shelf, o Options) error {
	for again := true; again; {
		again = false
		guard, err := lists.NewGuard(s.guard(r.Hostname, r.Trusted, o))
		if err != nil {
			return err
		}
		yes := true
		settings := lists.Settings{Format: s.Format, Patterns: s.Patterns, Guard: guard}
		if s.Format == "postfix" {
			settings.Subdomains = &yes
		}
		s.Entries = 0
		_, err = lists.Read(ctx, bytes.NewReader(s.out.Bytes()), int64(s.out.Len()), s.Name, settings, func(it *lists.Item) error {
			if it.Line < 1 || it.Line > len(s.at) || s.at[it.Line-1] == nil {
				return nil
			}
			switch f := s.at[it.Line-1]; {
			case it.Kind == lists.Err && s.permit(it, f):
				again = true
			case it.Kind == lists.Err:
				f.Lose("no list can hold it: %s: %s", it.Class, it.Message)
			case it.Kind != lists.Skip && it.Kind != lists.Err:
				s.Entries++
			}
			return nil
		})
		if refused := (*lists.FileError)(nil); errors.As(err, &refused) && !again {
			for _, f := range s.at {
				if f != nil {
					f.Lose("%s", refused.Why())
				}
			}
			return nil // the list is not written
		} else if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	if s.Text = s.out.Bytes(); s.Entries > 0 {
		r.Lists = append(r.Lists, s.List)
	}
	return nil
}

// permit lets an entry pass the gate.
func (l *List) permit(it *lists.Item, f *Finding) bool {
	switch {
	case it.Class == lists.PublicSuffix && !l.AllowPublicSuffix:
		l.AllowPublicSuffix = true
		f.Remark("by allow_public_suffix: " + it.Message)
		return true
	case it.Class == lists.Protected:
		word, _ := cutBlank(it.Text)
		key, err := addr.DomainKey(strings.TrimLeft(word, "!@=."))
		name := key.Text
		if p, is := parseNet(strings.TrimPrefix(word, "!")); is == nil {
			name, err = unmapped(p).String(), nil
		}
		if err != nil || slices.Contains(l.Force, name) {
			return false
		}
		l.Force = append(l.Force, name)
		f.Remark("by force: " + it.Message)
		return true
	}
	return false
}

// guard is the gate that a list must pass, but for how wrong it may be as a whole.
func (l *List) guard(hostname string, trusted []netip.Prefix, o Options) lists.GuardSettings {
	g := lists.DefaultGuard()
	for _, n := range trusted {
		g.Own = append(g.Own, lists.OwnNetwork{Net: n, What: "of smtp.trusted"})
	}
	g.MaxProtected, g.MaxBadRatio = maxEntries, 1
	g.Force, g.AllowPublicSuffix, g.Frees = l.Force, l.AllowPublicSuffix, l.Excepts
	if hostname == "" {
		hostname = o.Hostname
	}
	if key, err := addr.DomainKey(hostname); err == nil && key.Labels > 1 {
		g.Protected = append(g.Protected, key.Text)
		if registered := lists.RegistrableDomain(key.Text); registered != "" {
			g.Protected = append(g.Protected, registered)
		}
	}
	return g
}

// listName makes a text fit for the name of a list.
func listName(text string) string {
	name := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, text)
	name = strings.TrimLeft(name, "._-")
	if name == "" {
		name = "list"
	}
	return name[:min(len(name), 50)]
}

// unique is a name that no other list has, in any case.
func (r *Result) unique(name string) string {
	if r.names == nil {
		r.names = map[string]int{}
	}
	name = listName(name)
	free, base := name, strings.ToLower(name)
	for r.names[strings.ToLower(free)] > 0 {
		r.names[base]++
		free = fmt.Sprintf("%s-%d", name, r.names[base])
	}
	r.names[strings.ToLower(free)] = 1
	return free
}

// expression is a line of a list of patterns, for an expression of Go over whole addresses.
func expression(expr string) (string, error) {
	if _, err := pattern.Parse(pattern.Regexp, expr); err != nil {
		return "", err
	}
	text := strings.ReplaceAll(expr, " ", `\x20`)
	if strings.HasPrefix(text, "/") {
		text = `\` + text
	}
	return "/" + text + "/", nil
}

// globExpression is the expression of a glob, in which "*" is any run of characters and "?" one.
func globExpression(glob string) string {
	return "^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(strings.ToLower(glob))) + "$"
}

// quoted is an address with quotes around a local-part that has marks of formats in it.
func quoted(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at > 0 && text[0] != '"' && strings.ContainsAny(text[:at], "!#$%&'*/?^`{|}~=") {
		return `"` + text[:at] + `"` + text[at:]
	}
	return text
}
