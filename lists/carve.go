package lists

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/zeebo/xxh3"

	"blockd/mail/addr"
)

// In the formats of name servers the most specific name decides: a line about a name
// takes it, perhaps with all below, out of what a line about a name above it blocks,
// wherever in the file the two stand. Entries know no such order, so what is taken out
// becomes an exception. To find these a file is read three times before it is read for
// its entries: for the names that are blocked with those below; for the names within
// them of which a line says otherwise; and for what is said of these and around them.
//
// An exception covers every name below it. Where a line blocks a name within an
// exception, one of the two must go: an exception that a line names stands, and the block
// within it is refused; one that only follows from the rules for wildcards is narrowed,
// or left out.

// says is what the lines of a file say of one name, in bits.
type says uint8

const (
	blocksTree says = 1 << iota // the name and all below
	blocksSub                   // all below
	blocksName                  // the name alone
	frees                       // an exception for the name and all below
	freesSub                    // one for all below
	freesName                   // one for the name alone
	there                       // the name exists, and nothing else is said of it
	firmly                      // with blocksTree or frees: no data below count; see unbound.go and dnsmasq.go

	blocksAny = blocksTree | blocksSub | blocksName
	freesAny  = frees | freesSub | freesName
)

// maxCarved bounds the names that are taken out, at about 100 octets each; the names
// above them come on top.
const maxCarved = 1 << 17

// carving is what a file says of the names that it takes out of others. Workers read it
// once it is made.
type carving struct {
	stage carvingStage
	names map[string]*carved // those that are taken out, and those above them
	wide  nameBits
	cut   int  // names that are taken out
	full  bool // there are more than maxCarved
	zone  bool // the names of a zone file: each one that is there stops a wildcard above it
}

type carvingStage uint8

const (
	findWide carvingStage = iota
	findCut
	weigh
)

// carved is what is said of one name.
type carved struct {
	says  says
	cut   bool // it may be taken out of a name above it
	below bool // something below it is blocked
	line  int  // that takes it out
}

// carve returns the before of a format that read reads. may tells a line that may take
// something out of a block: most files have none, and are looked through once for that.
func carve(zone bool, may func(text string) bool, read func(*reading) error) func(*reading, func(*reading) error) error {
	return func(r *reading, open func(*reading) error) error {
		if r.settings.Action == Allow {
			return nil // nothing is blocked
		}
		if any, err := r.hasLine(may, open); err != nil || !any {
			return err
		}
		c := &carving{names: map[string]*carved{}, wide: newNameBits(r.size), zone: zone}
		for c.stage = findWide; c.stage <= weigh; c.stage++ {
			if c.stage == findCut && !c.wide.any || c.stage == weigh && c.cut == 0 {
				return nil
			}
			pass := &reading{settings: Settings{MaxBytes: r.settings.MaxBytes}, bare: r.bare, shared: &sofar{}, survey: c, emit: func(*Item) error { return nil }}
			if err := open(pass); err != nil {
				return err
			}
			if err := read(pass); err != nil {
				return err
			}
		}
		r.carving = c
		return nil
	}
}

// hasLine reports whether the text has a line such as is asks for.
func (r *reading) hasLine(is func(string) bool, open func(*reading) error) (bool, error) {
	look := &reading{settings: Settings{MaxBytes: r.settings.MaxBytes}}
	if err := open(look); err != nil {
		return false, err
	}
	look.lines.cutter.lend = true // of no line more is kept than the answer
	for {
		l, ok := look.lines.next()
		if !ok {
			return false, look.end()
		}
		if !l.long && is(l.text) {
			return true, nil
		}
	}
}

// noted takes what the line in hand says of a name, if the file is read for that alone.
func (r *reading) noted(name string, s says) bool {
	if r.survey == nil {
		return false
	}
	if key, err := addr.DomainKey(name); err == nil {
		r.survey.note(key.Text, s, r.at.number)
	}
	return true
}

func (c *carving) note(name string, s says, line int) {
	switch c.stage {
	case findWide:
		if s&(blocksTree|blocksSub) != 0 || c.zone && s&freesSub != 0 {
			c.wide.add(name)
		}
	case findCut:
		if c.zone {
			c.noteZone(name, s, line)
		} else if s&freesAny != 0 && (c.wide.has(name) || c.within(name)) {
			c.take(name, line)
		}
	case weigh:
		c.weigh(name, s)
	}
}

// noteZone takes a name of a zone, and the ones between it and the topmost wildcard
// above it, which are there because it is.
func (c *carving) noteZone(name string, s says, line int) {
	if s&freesSub != 0 {
		c.take(name, line)
	}
	top := ""
	for above := range namesAbove(name) {
		if c.wide.has(above) {
			top = above
		}
	}
	for at := name; top != "" && len(at) > len(top); at, _ = cutLabel(at) {
		c.take(at, line)
	}
}

// weigh notes what is said of a name that may be taken out, and of what is below one.
func (c *carving) weigh(name string, s says) {
	if n := c.names[name]; n != nil {
		n.says |= s
	}
	if s&blocksAny == 0 {
		return
	}
	for above := range namesAbove(name) {
		if n := c.names[above]; n != nil {
			n.below = true
		}
	}
}

// take notes a name that may be taken out by a line.
func (c *carving) take(name string, line int) {
	n := c.names[name]
	if n != nil && n.cut {
		return
	}
	if c.cut == maxCarved {
		c.full = true
		return
	}
	if n == nil {
		n = &carved{}
		c.names[strings.Clone(name)] = n
	}
	n.cut, n.line = true, line
	c.cut++
	for above := range namesAbove(name) {
		if c.names[above] != nil {
			return // and so are those above it
		}
		c.names[strings.Clone(above)] = &carved{}
	}
}

// within reports whether a name above this one may be blocked with all below.
func (c *carving) within(name string) bool {
	for above := range namesAbove(name) {
		if c.wide.has(above) {
			return true
		}
	}
	return false
}

// frees reports whether an exception for name takes it out of something. data: it is one
// by what is answered for it, which some blocks do not heed.
func (c *carving) frees(name string, data bool) bool {
	n := c.names[name]
	switch {
	case n == nil || !n.cut:
		return false
	case n.says&blocksTree != 0:
		return n.says&firmly == 0
	}
	for above := range namesAbove(name) {
		switch n := c.names[above]; {
		case n == nil:
		case n.says&(blocksTree|blocksSub) != 0:
			return !data || n.says&firmly == 0
		case n.says&(frees|freesSub) != 0:
			return false // the exception above is enough
		}
	}
	return false
}

// exceptionAbove returns the line of an exception that covers what is said of name.
func (c *carving) exceptionAbove(name string) (line int, ok bool) {
	if n := c.names[name]; n != nil && n.says&frees != 0 && n.says&blocksTree != 0 && c.frees(name, false) {
		return n.line, true
	}
	for above := range namesAbove(name) {
		if n := c.names[above]; n != nil && n.cut && (n.says&(frees|freesSub) != 0 && c.frees(above, false) || c.zone && n.says&freesSub != 0) {
			return n.line, true
		}
	}
	return 0, false
}

// blocked queues the entry of a name that is blocked, or refuses the line if an exception
// covers it.
func (r *reading) blocked(name string, s Scope) bool {
	if r.carving == nil {
		return r.name(name, s)
	}
	if key, err := addr.DomainKey(name); err == nil {
		if line, ok := r.carving.exceptionAbove(key.Text); ok {
			return r.fail(Unsupported, name, fmt.Sprintf("within the exception of line %d, which goes before every block here", line))
		}
	}
	return r.name(name, s)
}

// What is said of a name by a block or an exception of a scope.
var (
	blockOf = [...]says{Exact: blocksName, Sub: blocksSub, Tree: blocksTree}
	freeOf  = [...]says{Exact: freesName, Sub: freesSub, Tree: frees}
)

// freed settles an exception for a name: takes it for what the line says, if the file is
// read for that alone, or queues it if it takes the name out of a block. ok is false if
// it does neither.
func (r *reading) freed(name string, s Scope, data bool) (ok bool) {
	return r.noted(name, freeOf[s]) || r.takenOut(name, s, data)
}

// takenOut queues an exception for a name that it takes out of a block. ok is false, and
// nothing was queued, if it takes it out of nothing.
func (r *reading) takenOut(name string, s Scope, data bool) (ok bool) {
	if r.carving == nil {
		return false
	}
	key, err := addr.DomainKey(name)
	if err != nil {
		return false
	}
	if !r.carving.frees(key.Text, data) {
		if r.carving.full && r.carving.names[key.Text] == nil && r.carving.within(key.Text) {
			return !r.fail(Unsupported, name, fmt.Sprintf("more than %d exceptions in one file", maxCarved))
		}
		return false
	}
	if s == Tree && r.carving.names[key.Text].says&blocksName != 0 {
		s = Sub // a line of its own blocks the name
	}
	action := r.action
	r.action = Allow
	r.name(name, s)
	r.action = action
	return true
}

// wildcardStops queues the exceptions that follow from a name of a zone: it is there, and
// so are the names between it and a wildcard above them, so that this wildcard is not
// asked for them or for what is below them (RFC 4592, section 2.2.1).
func (r *reading) wildcardStops(name string) {
	c := r.carving
	if c == nil {
		return
	}
	key, err := addr.DomainKey(name)
	if err != nil {
		return
	}
	action, reason := r.action, r.reason
	r.action, r.reason = Allow, ""
	for at, more := key.Text, true; more; at, more = cutLabel(at) {
		n := c.names[at]
		if n == nil || !n.cut || n.line != r.at.number || !c.wildcardAbove(at) {
			continue
		}
		free := n.says&(blocksName|freesName|blocksTree|frees) == 0 // the name itself, of which no line of its own says it
		open := n.says&(blocksSub|freesSub|blocksTree|frees) == 0   // what is below it
		switch below := open && !n.below; {
		case free && below:
			r.domain(at, Tree)
		case below:
			r.domain(at, Sub)
		case free && r.domain(at, Exact) && open:
			it := &r.queue[len(r.queue)-1]
			it.Class, it.Message = Narrowed, "names below it pass in the zone too, and not here, since some of them are blocked"
		}
	}
	r.action, r.reason = action, reason
}

func (c *carving) wildcardAbove(name string) bool {
	for above := range namesAbove(name) {
		if n := c.names[above]; n != nil && n.says&blocksSub != 0 {
			return true
		}
	}
	return false
}

// nameBits is a set of names that may say yes of one that it does not hold: a bit map
// with three bits a name, of at most 32 MiB for files of that size and more.
type nameBits struct {
	words []uint64
	any   bool
}

func newNameBits(octets int64) nameBits {
	octets = min(max(octets, 1<<12), 32<<20)
	return nameBits{words: make([]uint64, (1<<bits.Len64(uint64(octets-1)))/8)}
}

func (b *nameBits) places(name string) [3]uint64 {
	h := xxh3.HashString128(name)
	mask := uint64(len(b.words)*64 - 1)
	return [3]uint64{h.Lo & mask, h.Hi & mask, h.Lo >> 32 * 0x9e3779b1 & mask}
}

func (b *nameBits) add(name string) {
	b.any = true
	for _, at := range b.places(name) {
		b.words[at/64] |= 1 << (at % 64)
	}
}

func (b *nameBits) has(name string) bool {
	for _, at := range b.places(name) {
		if b.words[at/64]>>(at%64)&1 == 0 {
			return false
		}
	}
	return true
}
