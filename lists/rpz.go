package lists

import (
	"net/netip"
	"strings"
)

// rpzFile reads a response policy zone: names below the zone's own, each with what
// a name server is to answer instead of the truth.
type rpzFile struct {
	r      *reading
	origin zoneName // what relative names are below
	apex   zoneName // the zone's own name, where the file says it
	named  bool     // by its SOA: $ORIGIN says nothing about apex any more
	owner  zoneName // of the record before
	// Not known, since the line that says it was refused. What depends on it is
	// refused too, up to the next line that says it.
	noOrigin, noOwner bool
}

// zoneName is a name without its last dot. One that is not rooted is below the
// zone, whose own name a file need not say.
type zoneName struct {
	text   string
	rooted bool
}

// maxZoneName bounds the text of a name in octets: 253 characters, each perhaps
// written as \DDD. Without it, relative $ORIGIN lines would make ever longer ones.
const maxZoneName = 4 * 253

func readRPZ(r *reading) error {
	f := rpzFile{r: r, noOwner: true}
	zone := zoneFile{r: r}
	return zone.each(f.record, f.lost)
}

// lost forgets what a refused line may have said.
func (f *rpzFile) lost(text string) {
	f.noOwner = true
	f.noOrigin = f.noOrigin || hasFold(text, "$ORIGIN")
}

// record reads one record or directive.
func (f *rpzFile) record(words []string, indented bool) {
	switch {
	case words[0][0] == '$':
		f.directive(strings.ToUpper(words[0]), words[1:])
		return
	case !indented:
		owner, ok := f.absolute(words[0])
		if f.owner, f.noOwner = owner, !ok; !ok {
			f.r.fail(Syntax, words[0], "too long, or below an $ORIGIN that was not read")
			return
		}
		words = words[1:]
	case f.noOwner:
		f.r.fail(Syntax, "", "begins with a blank, but the owner that this would repeat was not read")
		return
	}
	switch kind, data := recordType(words); kind {
	case "":
		f.r.fail(Syntax, "", "no record: an owner, perhaps a TTL and a class, a type and its data")
	case "SOA":
		if f.named = true; f.owner.rooted {
			f.apex = f.owner
		}
		f.r.skip(Directive, "")
	case "CNAME", "A", "AAAA":
		f.policy(kind, data)
	default:
		f.r.skip(Directive, "a record of type "+kind)
		if name, ok := f.trigger(); ok && name != "" && name != "*" {
			f.is(strings.TrimPrefix(name, "*."), there)
		}
	}
}

// directive reads a line such as $ORIGIN. Files are never included: what they hold
// is not in this list.
func (f *rpzFile) directive(name string, words []string) {
	switch name {
	case "$TTL":
		f.r.skip(Directive, "")
	case "$ORIGIN":
		origin, ok := zoneName{}, false
		if len(words) == 1 {
			origin, ok = f.absolute(words[0])
		}
		if f.noOrigin = !ok; !ok {
			f.r.fail(Syntax, "", "no name, one that is too long, or below an $ORIGIN that was not read")
			return
		}
		if f.origin = origin; origin.rooted && !f.named && !f.apex.rooted {
			f.apex = origin
		}
		f.r.skip(Directive, "")
	case "$INCLUDE":
		f.r.fail(Unsupported, "", "other files are not read; declare each as a list")
	default:
		f.r.fail(Unsupported, "", "a directive that makes records")
	}
}

// absolute completes a name with what it is below; false if that is not known.
func (f *rpzFile) absolute(text string) (zoneName, bool) {
	if name, ok := strings.CutSuffix(text, "."); ok {
		return zoneName{name, true}, len(name) <= maxZoneName
	}
	name := f.origin
	switch {
	case text == "@":
	case name.text == "":
		name.text = text
	default:
		name.text = text + "." + name.text
	}
	return name, !f.noOrigin && len(name.text) <= maxZoneName
}

// trigger returns the owner relative to the zone, "" for the zone itself; false if
// it is not in the zone, or nobody knows.
func (f *rpzFile) trigger() (string, bool) {
	name, apex := f.owner.text, f.apex.text
	switch at := len(name) - len(apex) - 1; {
	case !f.owner.rooted:
		return name, true
	case !f.apex.rooted:
		return "", false
	case apex == "":
		return name, true
	case strings.EqualFold(name, apex):
		return "", true
	case at > 0 && name[at] == '.' && strings.EqualFold(name[at+1:], apex):
		return name[:at], true
	}
	return "", false
}

// is notes what a record says of a name, in a pass for that, or queues the exceptions that
// follow from the name's being there. It reports whether the pass was for that alone.
func (f *rpzFile) is(name string, said says) (noted bool) {
	if f.r.noted(name, said) {
		return true
	}
	f.r.wildcardStops(name)
	return false
}

// policy queues the entry of a record that changes an answer.
func (f *rpzFile) policy(kind string, data []string) {
	r := f.r
	name, ok := f.trigger()
	below, sub := strings.CutPrefix(name, "*.")
	switch strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]) {
	case "rpz-ip", "rpz-client-ip", "rpz-nsip", "rpz-nsdname":
		r.fail(Unsupported, name, "judges answers or clients of name servers, not names")
		return
	}
	switch {
	case !ok:
		r.fail(Syntax, f.owner.text, "not below the zone; an SOA or $ORIGIN before it says the zone's name")
	case name == "":
		r.skip(Directive, "data of the zone itself")
	case name == "*":
		r.fail(TooBroad, name, "this covers every name")
	case !r.utf8(name):
	case sub:
		r.apart = true // what follows from the name is so too if the record is refused
		f.entry(below, Sub, r.rpzAction(name, kind, data))
	default:
		r.apart = true
		f.entry(name, r.bare, r.rpzAction(name, kind, data))
	}
}

// entry queues the entry of a name that the line's action, if it has one, is for.
func (f *rpzFile) entry(name string, s Scope, acts bool) {
	r, said := f.r, there
	switch {
	case !acts:
	case r.action == Allow:
		said = freeOf[s]
	default:
		said = blockOf[s]
	}
	switch {
	case f.is(name, said), !acts:
	case r.action == Allow:
		r.name(name, s)
	default:
		r.blocked(name, s)
	}
}

// rpzAction reads what is answered. Nearly everything but the truth is a refusal:
// that there is no such name, a landing page, an address.
func (r *reading) rpzAction(name, kind string, data []string) bool {
	if len(data) != 1 {
		return r.fail(Syntax, "", "a record of type "+kind+" has one word of data")
	}
	target := strings.ToLower(data[0])
	if kind != "CNAME" {
		a, err := netip.ParseAddr(target)
		if err != nil || a.Is4() != (kind == "A") {
			return r.fail(Syntax, data[0], "no address for a record of type "+kind)
		}
		return true
	}
	switch {
	case target == "rpz-passthru.", strings.EqualFold(strings.TrimSuffix(target, "."), name):
		return r.except() // the name itself is how older zones write it
	case target == "rpz-passthru":
		return r.fail(Syntax, data[0], "without its last dot this is a name below the zone, and no exception")
	case target == "rpz-drop.":
		return true
	case strings.HasPrefix(target, "rpz-") && strings.Count(strings.TrimSuffix(target, "."), ".") == 0:
		return r.fail(Unsupported, data[0], "an action that refuses nothing")
	}
	return true
}

// hasStar tells a line that may have a wildcard.
func hasStar(text string) bool { return strings.IndexByte(text, '*') >= 0 }

// rpzMark tells an SOA and a CNAME to a policy target of a zone file.
func rpzMark(text string) bool {
	words := strings.Fields(text)
	for i, w := range words[:max(len(words)-1, 0)] {
		switch target := words[i+1]; strings.ToUpper(w) {
		case "SOA":
			return i > 0
		case "CNAME":
			return i > 0 && (target == "." || target == "*." || strings.HasPrefix(target, "rpz-"))
		}
	}
	return false
}
