package lists

import (
	"errors"
	"fmt"
	"strings"

	"blockd/lists/pattern"
)

const (
	// maxPatterns bounds the patterns of one file. Ten thousand cost a sender some
	// microseconds, and the build half a second.
	maxPatterns = 10_000

	// maxSteps bounds the programs of all expressions of one file; of ordinary ones
	// each has 20 to 60 steps. A hostile list whose expressions all run for a sender
	// of 254 octets takes 1.5 s of it with so many, and took minutes with ten
	// thousand that are each as long as one may be.
	maxSteps = 500_000

	// maxFree bounds those among them that nothing saves from being tried on every
	// sender. An index holds as many of all lists together.
	maxFree = 100
)

// expression queues a regular expression, or refuses it in a list that declares no
// patterns. text is what the line has of it, marks included.
func (r *reading) expression(text, expr string) bool {
	if r.settings.Patterns {
		return r.pattern(pattern.Regexp, text, expr)
	}
	return r.fail(Unsupported, text, "a regular expression")
}

// wildcard queues a glob over whole addresses, or refuses it with the message in a
// list that declares no patterns.
func (r *reading) wildcard(text, glob, message string) bool {
	if !r.settings.Patterns {
		return r.fail(Unsupported, text, message)
	}
	return addGlob(r, text, glob)
}

// addGlob queues a glob over whole addresses, in whatever list. text is what the line has of it.
func addGlob(r *reading, text, glob string) bool {
	at, closed := lastAt(glob)
	switch {
	case !closed:
		return r.fail(Syntax, text, "a quote that is not closed")
	case at >= 0 && strings.ContainsAny(glob[:at], `@" ,;`), at < 0 && strings.ContainsAny(glob, `" ,;`):
		return r.fail(Syntax, text, "more than one address")
	case at == 0:
		return r.fail(Syntax, text, `nothing before the "@"`)
	case at == len(glob)-1:
		glob += "*" // a local-part at any domain
	case !isNamePattern(glob[at+1:]):
		return r.fail(Syntax, text, "a pattern of a name has letters of ASCII, digits, dots, hyphens, underscores and wildcards; write others as xn--")
	}
	return r.pattern(pattern.Glob, text, strings.TrimSuffix(glob, "."))
}

// isNamePattern tells what canonical names and literals may match.
func isNamePattern(text string) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i] | 0x20; {
		case 'a' <= c && c <= 'z', '0' <= text[i] && text[i] <= '9', strings.IndexByte("-_.*?:[]", text[i]) >= 0:
		default:
			return false
		}
	}
	return !strings.Contains(text, "..")
}

// namePattern queues a glob that a format's marks were taken off: a name, with a
// "*" in it. As a tree it is the name alone, since the "*" reaches over dots.
func (r *reading) namePattern(text string, s Scope) bool {
	glob := "*@" + text
	if s == Sub {
		glob = "*@*." + text
	}
	return r.wildcard(text, glob, `a "*" inside a name`)
}

// pattern queues the entry of one pattern. part is what the line has of it.
func (r *reading) pattern(k pattern.Kind, part, text string) bool {
	p, err := pattern.Parse(k, text)
	message := ""
	if err != nil {
		_, message, _ = strings.Cut(err.Error(), ": ") // the class says the rest
	}
	switch {
	case errors.Is(err, pattern.ErrUnsupported):
		return r.fail(Unsupported, part, message)
	case errors.Is(err, pattern.ErrTooLong):
		return r.fail(TooLong, part, message)
	case err != nil:
		return r.fail(Syntax, part, message)
	case p.TooBroad():
		return r.fail(TooBroad, part, "a pattern that matches every sender, or nearly")
	}
	kind := Glob
	if k == pattern.Regexp {
		kind = Regexp
	}
	it := r.add(kind, Exact)
	it.Pattern, it.pattern = p.String(), p
	return true
}

// slashedExpression reads /…/flags. Flags that change nothing here are passed over:
// case never matters, and an address is one line.
func (r *reading) slashedExpression(text string) bool {
	end := strings.LastIndexByte(text, '/')
	if i := strings.IndexFunc(text[end+1:], func(c rune) bool { return !strings.ContainsRune("imsu", c) }); i >= 0 && r.settings.Patterns {
		return r.fail(Unsupported, text, "the flag "+text[end+1+i:end+2+i]+` of a regular expression; known are "i", "m", "s" and "u", which change nothing`)
	}
	return r.expression(text, text[1:end])
}

// countPatterns bounds the patterns of the file. It refuses the line in hand if it
// has one too many that is tried on every sender, and the file for one too many at
// all: half a list would be another list. A list that declares no patterns can only
// have exceptions among them, and one too many costs its own line.
func (r *reading) countPatterns() {
	for i := 0; i < len(r.queue); i++ {
		it := &r.queue[i]
		if it.pattern == nil || it.void {
			continue
		}
		r.lines.inTurn()
		if it.pattern.Free() {
			if r.shared.free++; r.shared.free > maxFree {
				r.drop(it, TooBroad, fmt.Sprintf("more than %d patterns without a text of three octets that a sender must hold; each is tried on every sender", maxFree))
				if !r.apart {
					return
				}
				i--
				continue
			}
		}
		if !r.settings.Patterns && r.shared.patterns >= maxPatterns { // an exception of a format with wildcards
			r.drop(it, Unsupported, fmt.Sprintf("more than %d exceptions with a \"*\" in one file", maxPatterns))
			if !r.apart {
				return
			}
			i--
			continue
		}
		r.shared.patterns++
		r.shared.steps += it.pattern.Steps()
		switch {
		case r.err != nil:
		case r.shared.patterns > maxPatterns:
			r.err = refusal(TooBig, "more than %d patterns in one file", maxPatterns)
		case r.shared.steps > maxSteps:
			r.err = refusal(TooBig, "expressions of more than %d steps in one file", maxSteps)
		}
	}
}

// probeLocals are local-parts of people. A pattern that matches one of them at a
// protected domain refuses strangers there.
var probeLocals = [...]string{"anna.weber", "jsmith84", "x"}

// suffixProbes are two names that nobody has, to be tried below public suffixes
// under which half of the world's mail is sent: a pattern that matches both covers
// the suffix.
var (
	suffixProbes = [...]string{"anna.weber@q3zvk.", "k7_x-1@mx.9j-wu0."}
	suffixes     = [...]string{
		"com", "net", "org", "info", "biz", "edu", "gov", "io", "co", "me", "tv", "app", "dev", "online", "shop", "site", "store",
		"top", "xyz", "club", "icu", "de", "uk", "co.uk", "fr", "nl", "it", "es", "pl", "ru", "cn", "com.cn", "jp", "co.jp", "br",
		"com.br", "in", "co.in", "au", "com.au", "ca", "us", "eu", "ch", "at", "be", "se", "no", "dk", "fi", "cz", "tr", "com.tr",
		"kr", "co.kr", "mx", "com.mx", "za", "co.za",
	}
)

// judgePattern is judge for a pattern that refuses senders. The first address that
// it must not match decides.
func (g *Guard) judgePattern(p *pattern.Pattern) (c Class, message string, pass bool) {
	for _, s := range suffixes {
		if !p.Match(suffixProbes[0]+s) || !p.Match(suffixProbes[1]+s) {
			continue
		}
		if !g.settings.AllowPublicSuffix {
			return PublicSuffix, "matches everybody's names below the public suffix " + s, false
		}
		c, message, pass = PublicSuffix, "matches everybody's names below the public suffix "+s, true
		break
	}
	for _, name := range g.sorted {
		for _, local := range probeLocals {
			switch {
			case !p.Match(local + "@" + name):
			case !g.force[name]:
				return Protected, fmt.Sprintf("matches %s@%s, at a protected domain", local, name), false
			case c == "":
				c, message, pass = Protected, fmt.Sprintf("matches %s@%s, at a protected domain, by force", local, name), true
			}
		}
	}
	return c, message, pass
}
