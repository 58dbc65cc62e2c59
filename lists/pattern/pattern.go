// Package pattern matches globs and regular expressions over whole addresses, ten
// thousand of them in some microseconds a sender.
//
// A pattern is written for the canonical text of an address, local@domain, in
// lower case and without controls: see package addr. Regular expressions are Go's
// (RE2), without look-around and back-references, so that every one of them ends
// in time that is linear in the text.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"blockd/mail/addr"

	"golang.org/x/text/unicode/norm"
)

// Kind tells how the text of a pattern is read.
type Kind uint8

// The kinds. Their numbers are the index file's: see docs/index-format.md.
const (
	Glob   Kind = 2
	Regexp Kind = 3
)

const (
	// MaxText bounds the text of a pattern in octets.
	MaxText = 1000

	// maxProgram bounds a compiled expression, in instructions: about what MaxText
	// octets come to without counted repetitions. A repetition of 1,000 takes a
	// thousand. On the longest sender such a program takes some 0.3 ms.
	maxProgram = 1100

	// maxCost bounds its instructions and the ranges of its classes, of which \pL has 660: each takes some 2 µs to
	// compile, and a range that is repeated is compiled as often. [a-z]{1000} has 5,000 of both.
	maxCost = 6000

	// maxFreeProgram is the bound for patterns without a usable literal, which run
	// for every sender.
	maxFreeProgram = 150
)

// The reasons for which a text is no pattern here. Errors wrap one of them.
var (
	ErrSyntax      = errors.New("no pattern")
	ErrUnsupported = errors.New("unsupported pattern")
	ErrTooLong     = errors.New("pattern too long")
)

// Pattern is one glob or regular expression. It never changes, so goroutines
// share it.
type Pattern struct {
	kind  Kind
	text  string
	needs []Need
	glob  glob           // of a glob
	lead  []string       // of a regular expression: texts that come first, in order
	re    *regexp.Regexp // and what comes anywhere behind them
	cost  int            // of re in memory and to compile: instructions, and ranges of classes
}

// Need is a set of texts of which every match of a pattern holds one at least.
type Need []string

// Parse reads a pattern: of kind Glob, "*" stands for any run of characters, "@"
// among them, "?" for one, and the whole address must match; of kind Regexp, the
// expression is searched for anywhere in the address. Case does not matter.
func Parse(k Kind, text string) (*Pattern, error) {
	switch {
	case len(text) > MaxText:
		return nil, fmt.Errorf("%w: %d octets, at most %d are read", ErrTooLong, len(text), MaxText)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("%w: octets that are not UTF-8", ErrSyntax)
	}
	p := &Pattern{kind: k, text: norm.NFC.String(text)}
	if k == Glob {
		p.text = addr.Fold(text)
		p.glob = parseGlob(p.text)
		p.needs = p.glob.needs()
		return p, nil
	}
	if err := p.compile(); err != nil {
		return nil, err
	}
	return p, nil
}

// compile makes the program of a regular expression.
func (p *Pattern) compile() error {
	tree, err := syntax.Parse(p.text, syntax.Perl|syntax.FoldCase)
	if err != nil {
		return refusal(p.text, err)
	}
	// What a repetition is written out to is not made before it is known to be small.
	if cost := weigh(tree); cost > 2*maxCost {
		return tooCostly(cost)
	}
	tree = trimAny(lowerTree(tree)).Simplify()
	prog, err := syntax.Compile(tree)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	p.needs = needsOf(tree)
	p.lead, tree = cutLead(tree)
	if limit := p.limit(); len(prog.Inst) > limit {
		return fmt.Errorf("%w: a program of %d steps, at most %d are run; write shorter repetitions", ErrUnsupported, len(prog.Inst), limit)
	}
	p.cost = len(prog.Inst)
	for i := range prog.Inst {
		p.cost += len(prog.Inst[i].Rune) / 2
	}
	if p.cost > maxCost {
		return tooCostly(p.cost)
	}
	if p.re, err = regexp.Compile(tree.String()); err != nil {
		return refusal(p.text, err)
	}
	return nil
}

func tooCostly(cost int) error {
	return fmt.Errorf("%w: a program with %d steps and ranges of characters, at most %d; write shorter repetitions, or [a-z] for \\pL", ErrUnsupported, cost, maxCost)
}

// weigh is about what an expression takes once its repetitions are written out: steps, and ranges of its classes.
func weigh(re *syntax.Regexp) int {
	const enough = 1 << 20 // the product of two is no overflow
	cost := 1
	switch re.Op {
	case syntax.OpLiteral:
		cost = len(re.Rune)
	case syntax.OpCharClass:
		cost += len(re.Rune) / 2
	}
	for _, sub := range re.Sub {
		cost = min(cost+weigh(sub), enough)
	}
	if re.Op == syntax.OpRepeat {
		cost = min(cost*max(re.Min, re.Max, 1), enough)
	}
	return cost
}

func (p *Pattern) limit() int {
	if p.Free() {
		return maxFreeProgram
	}
	return maxProgram
}

// refusal says of an expression that Go cannot read whether anybody can.
func refusal(text string, err error) error {
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	e = &syntax.Error{Code: e.Code, Expr: clipped(e.Expr)}
	hint := ""
	switch e.Code {
	case syntax.ErrInvalidPerlOp:
		hint = "look-around and other Perl groups are not matched in linear time"
	case syntax.ErrInvalidNamedCapture:
		if !strings.HasPrefix(e.Expr, "(?<=") && !strings.HasPrefix(e.Expr, "(?<!") {
			return fmt.Errorf("%w: %s", ErrSyntax, e)
		}
		hint = "look-behind is not matched in linear time"
	case syntax.ErrInvalidEscape:
		hint = "back-references and Perl's other escapes are not known here"
	case syntax.ErrInvalidRepeatOp:
		hint = "there are no possessive repetitions"
	case syntax.ErrInvalidRepeatSize, syntax.ErrLarge, syntax.ErrNestingDepth:
		hint = "write shorter repetitions, at most 1000"
	default:
		return fmt.Errorf("%w: %s", ErrSyntax, e)
	}
	return fmt.Errorf("%w: %s: %s", ErrUnsupported, e.Expr, hint)
}

// maxQuoted bounds what an error has of an expression, in characters.
const maxQuoted = 60

func clipped(text string) string {
	at := 0
	for i := range text {
		if at++; at > maxQuoted {
			return text[:i] + "…"
		}
	}
	return text
}

// Kind returns the pattern's kind.
func (p *Pattern) Kind() Kind { return p.kind }

// Text returns the pattern as Parse takes it, of a glob in lower case.
func (p *Pattern) Text() string { return p.text }

// String returns the pattern as lint shows it: an expression between slashes.
func (p *Pattern) String() string {
	if p.kind == Regexp {
		return "/" + p.text + "/"
	}
	return p.text
}

// Needs returns the texts that a sender must hold to match, in this order and
// without overlap: one of each Need, of which the shortest has at least three
// octets. Without any the pattern is Free.
func (p *Pattern) Needs() []Need { return p.needs }

// Free reports whether the pattern has no text that a sender must hold: nothing
// saves it from being run for every sender.
func (p *Pattern) Free() bool { return len(p.needs) == 0 }

// Steps is the length of an expression's program, to which the time of a match is
// proportional, times the address's length, and the ranges of its classes, which take
// memory and time to compile; 0 for a glob.
func (p *Pattern) Steps() int { return p.cost }

// Match reports whether the pattern matches an address in canonical form. It does
// not allocate.
func (p *Pattern) Match(address string) bool {
	if p.kind == Glob {
		return p.glob.match(address)
	}
	rest := address
	for _, n := range p.needs {
		end := n.end(rest)
		if end < 0 {
			return false
		}
		rest = rest[end:]
	}
	rest = address
	for _, text := range p.lead {
		i := strings.Index(rest, text)
		if i < 0 {
			return false
		}
		rest = rest[i+len(text):]
	}
	return p.re.MatchString(rest)
}

// end returns where the first place of text ends that holds one of n, or -1.
func (n Need) end(text string) int {
	first := -1
	for _, s := range n {
		if i := strings.Index(text, s); i >= 0 && (first < 0 || i+len(s) < first) {
			first = i + len(s)
		}
	}
	return first
}

// lowerTree gives all literals of an expression their small letters, as the texts
// have that it is matched with. A literal without a folding flag is searched for
// many times faster. The parser has folded classes, and has put into literals the
// first of all letters that fold to one another.
func lowerTree(re *syntax.Regexp) *syntax.Regexp {
	if re.Op == syntax.OpLiteral {
		return lowerLiteral(re)
	}
	for i, sub := range re.Sub {
		re.Sub[i] = lowerTree(sub)
	}
	return re
}

func lowerLiteral(re *syntax.Regexp) *syntax.Regexp {
	plain := &syntax.Regexp{Op: syntax.OpLiteral}
	parts := []*syntax.Regexp{plain}
	for _, r := range re.Rune {
		small := smallOf(r, re.Flags&syntax.FoldCase != 0)
		if len(small) == 1 {
			plain.Rune = append(plain.Rune, small[0])
			continue
		}
		class := &syntax.Regexp{Op: syntax.OpCharClass}
		for _, s := range small {
			class.Rune = append(class.Rune, s, s)
		}
		plain = &syntax.Regexp{Op: syntax.OpLiteral}
		parts = append(parts, class, plain)
	}
	parts = slices.DeleteFunc(parts, func(p *syntax.Regexp) bool { return p.Op == syntax.OpLiteral && len(p.Rune) == 0 })
	if len(parts) == 1 {
		return parts[0]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: parts}
}

// smallOf returns the small letters that r stands for, ascending. Those of ASCII
// stand for themselves alone: U+017F folds to "s", but is another letter in a key.
func smallOf(r rune, fold bool) []rune {
	if r < utf8.RuneSelf || !fold {
		return []rune{unicode.ToLower(r)}
	}
	var small []rune
	for f := r; ; {
		if unicode.ToLower(f) == f {
			small = append(small, f)
		}
		if f = unicode.SimpleFold(f); f == r {
			break
		}
	}
	slices.Sort(small)
	switch {
	case len(small) == 0:
		return []rune{unicode.ToLower(r)}
	case small[0] < utf8.RuneSelf:
		return small[:1]
	}
	return small
}

// trimAny takes ".*" off both ends, with the anchor before or behind it: what is
// searched for anywhere matches the same texts without, and is found by its first
// literal. Texts have no line ends.
func trimAny(re *syntax.Regexp) *syntax.Regexp {
	if re.Op != syntax.OpConcat {
		return re
	}
	sub := re.Sub
	for {
		switch {
		case len(sub) > 1 && isAny(sub[0]):
			sub = sub[1:]
		case len(sub) > 2 && sub[0].Op == syntax.OpBeginText && isAny(sub[1]):
			sub = sub[2:]
		case len(sub) > 1 && isAny(sub[len(sub)-1]):
			sub = sub[:len(sub)-1]
		case len(sub) > 2 && sub[len(sub)-1].Op == syntax.OpEndText && isAny(sub[len(sub)-2]):
			sub = sub[:len(sub)-2]
		case len(sub) == 1:
			return sub[0]
		default:
			re.Sub = sub
			return re
		}
	}
}

// cutLead takes literals with ".*" behind them off the beginning of an expression
// that is searched for anywhere. Where each ends first leaves the most for the rest,
// which is then found by its own first literal: without it "@.*x" walks over all that
// follows the "@", some 3 µs of the longest sender.
func cutLead(re *syntax.Regexp) (lead []string, rest *syntax.Regexp) {
	for re.Op == syntax.OpConcat && len(re.Sub) > 2 && re.Sub[0].Op == syntax.OpLiteral && isAny(re.Sub[1]) && !looksBack(re) {
		lead = append(lead, string(re.Sub[0].Rune))
		re = trimAny(&syntax.Regexp{Op: syntax.OpConcat, Sub: re.Sub[2:]})
	}
	return lead, re
}

// looksBack reports whether an expression asks what stands before some place, so
// that the beginning of what it is matched with must not be moved.
func looksBack(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksBack)
}

// isAny tells ".*" and ".*?".
func isAny(re *syntax.Regexp) bool {
	return re.Op == syntax.OpStar && (re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL)
}
