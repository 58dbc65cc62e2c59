package migration

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// maxDepth bounds how deep parameters may name one another, and braces may nest.
const maxDepth = 64

// maxValue bounds the expansion of one parameter, in octets, and maxNamed the
// parameters that it names on the way. Ten parameters of ten times the one before are
// a gigabyte, and sixty that name the next one twice never end, even if all are empty.
const (
	maxValue = 1 << 20
	maxNamed = 10_000
)

// parameter is one setting of main.cf, or of an -o in master.cf.
type parameter struct {
	at    Place
	value string // not expanded
	parts []physical
}

// place returns the line on which a word stands, the first one from *from on, and
// moves *from there; a word that came by another parameter is where the last one was.
func (p parameter) place(word string, from *int) Place {
	for i := *from; i < len(p.parts); i++ {
		if strings.Contains(p.parts[i].text, word) {
			*from = i
			break
		}
	}
	if *from < len(p.parts) {
		return Place{p.at.File, p.parts[*from].line}
	}
	return p.at
}

// parameters are those of main.cf, with overrides of one service on top.
type parameters struct {
	dir  string // the folder of main.cf, $config_directory
	set  map[string]parameter
	over map[string]parameter
}

// parseMainCF reads the text of main.cf. Lines without "=" are no parameters: they
// come as faults, "FILE:LINE: what".
func parseMainCF(file string, data []byte) (set map[string]parameter, faults []string) {
	set = map[string]parameter{}
	lines, orphan := logicalLines(data)
	if orphan > 0 {
		faults = append(faults, fmt.Sprintf("%s:%d: begins with a blank, but there is no line that it could continue", file, orphan))
	}
	for _, l := range lines {
		if l.comment {
			continue
		}
		name, value, ok := strings.Cut(l.text, "=")
		name = strings.TrimSpace(name)
		if !ok || !isParameter(name) {
			faults = append(faults, fmt.Sprintf("%s:%d: want NAME = VALUE, have %q", file, l.line, shown(l.text)))
			continue
		}
		set[name] = parameter{Place{file, l.line}, strings.TrimSpace(value), l.parts} // the last one counts
	}
	return set, faults
}

func isParameter(name string) bool {
	return name != "" && strings.IndexFunc(name, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
	}) < 0
}

// defaults are the values of what main.cf does not say, as far as an import asks
// for it.
var defaults = map[string]string{
	"alternate_config_directories":     "",
	"access_map_defer_code":            "450",
	"access_map_reject_code":           "554",
	"default_database_type":            "hash",
	"mynetworks":                       "127.0.0.0/8 [::1]/128",
	"parent_domain_matches_subdomains": "debug_peer_list,fast_flush_domains,mynetworks,permit_mx_backup_networks,qmqpd_authorized_clients,relay_domains,smtpd_access_maps",
	"postscreen_blacklist_action":      "ignore",
	"postscreen_denylist_action":       "$postscreen_blacklist_action",
	"postscreen_access_list":           "permit_mynetworks",
	"smtpd_delay_reject":               "yes",
	"smtpd_relay_restrictions":         "permit_mynetworks, permit_sasl_authenticated, defer_unauth_destination",
}

// lookup returns a parameter as it stands, and whether the files say it.
func (p *parameters) lookup(name string) (parameter, bool) {
	if v, ok := p.over[name]; ok {
		return v, true
	}
	v, ok := p.set[name]
	return v, ok
}

// value returns a parameter with all that it names put in.
func (p *parameters) value(name string) (string, error) {
	x := expansion{params: p}
	return x.parameter(name)
}

// expansion is one text being expanded.
type expansion struct {
	params *parameters
	depth  int
	size   int // octets put in so far
	named  int // parameters put in so far
}

func (x *expansion) parameter(name string) (string, error) {
	if x.named++; x.named > maxNamed {
		return "", fmt.Errorf("more than %d parameters are named on the way", maxNamed)
	}
	v, ok := x.params.lookup(name)
	switch {
	case ok:
	case name == "config_directory":
		return x.params.dir, nil
	case name == "mydomain":
		host, err := x.parameter("myhostname")
		if _, domain, more := strings.Cut(host, "."); more && err == nil {
			return domain, nil
		}
		return "", err
	default:
		v.value = defaults[name]
	}
	text, err := x.text(v.value)
	if err != nil && ok {
		return "", fmt.Errorf("%s: %s: %w", v.at, name, err)
	}
	return text, err
}

// text expands $name, ${name}, $(name), ${name?text}, ${name:text},
// ${name?{text}:{text}} and ${{text} OP {text}?{text}:{text}} (postconf(5)).
func (x *expansion) text(text string) (string, error) {
	if x.depth++; x.depth > maxDepth {
		return "", fmt.Errorf("parameters name one another more than %d deep", maxDepth)
	}
	defer func() { x.depth-- }()
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:i])
		text = text[i+1:]
		var value string
		var err error
		switch c := text[0]; {
		case c == '$':
			value, text = "$", text[1:]
		case c == '{' || c == '(':
			inner, rest, ok := bracketed(text)
			if !ok {
				return "", fmt.Errorf("a bracket that is not closed: %q", shown("$"+text))
			}
			value, err = x.braces(inner)
			text = rest
		default:
			n := 0
			for n < len(text) && isParameter(text[n:n+1]) {
				n++
			}
			if n == 0 {
				return "", fmt.Errorf("no name behind the \"$\" of %q", shown("$"+text))
			}
			value, err = x.parameter(text[:n])
			text = text[n:]
		}
		if err != nil {
			return "", err
		}
		if x.size += len(value); x.size > maxValue {
			return "", fmt.Errorf("a value of more than %d octets", maxValue)
		}
		out.WriteString(value)
	}
}

// bracketed returns what the bracket that text begins with holds, and the rest.
func bracketed(text string) (inner, rest string, ok bool) {
	open, shut := text[0], byte('}')
	if open == '(' {
		shut = ')'
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case open:
			depth++
		case shut:
			if depth--; depth == 0 {
				return text[1:i], text[i+1:], true
			}
		}
	}
	return "", "", false
}

// braces expands the inside of ${…}.
func (x *expansion) braces(inner string) (string, error) {
	inner = strings.TrimSpace(inner)
	n := 0
	for n < len(inner) && isParameter(inner[n:n+1]) {
		n++
	}
	rest := strings.TrimSpace(inner[n:])
	var yes bool
	var value string
	var err error
	switch {
	case n > 0:
		if value, err = x.parameter(inner[:n]); err != nil || rest == "" {
			return value, err
		}
		yes = value != ""
	case strings.HasPrefix(inner, "{"):
		if yes, rest, err = x.compare(inner); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("no name in %q", shown("${"+inner+"}"))
	}
	then, otherwise, err := choices(rest)
	if err != nil {
		return "", err
	}
	if yes {
		return x.text(then)
	}
	return x.text(otherwise)
}

// choices takes "?then", ":otherwise" or "?{then}:{otherwise}" apart.
func choices(text string) (then, otherwise string, err error) {
	bad := fmt.Errorf("no choice in %q", shown(text))
	if text == "" || text[0] != '?' && text[0] != ':' {
		return "", "", bad
	}
	arm, body := text[0], strings.TrimSpace(text[1:])
	if strings.HasPrefix(body, "{") {
		inner, rest, ok := bracketed(body)
		if !ok {
			return "", "", bad
		}
		body = strings.TrimSpace(inner)
		if rest = strings.TrimSpace(rest); rest != "" {
			if arm != '?' || rest[0] != ':' {
				return "", "", bad
			}
			_, otherwise, err = choices(rest)
		}
	}
	if arm == ':' {
		return "", body, err
	}
	return body, otherwise, err
}

// compare judges {left} OP {right} at the start of text: as numbers where both are.
func (x *expansion) compare(text string) (yes bool, rest string, err error) {
	left, rest, ok := bracketed(text)
	rest = strings.TrimSpace(rest)
	op := ""
	for _, o := range [...]string{"==", "!=", "<=", ">=", "<", ">"} {
		if ok && strings.HasPrefix(rest, o) {
			op, rest = o, strings.TrimSpace(rest[len(o):])
			break
		}
	}
	if op == "" || !strings.HasPrefix(rest, "{") {
		return false, "", fmt.Errorf("no comparison in %q", shown(text))
	}
	right, rest, ok := bracketed(rest)
	if !ok {
		return false, "", fmt.Errorf("no comparison in %q", shown(text))
	}
	if left, err = x.text(strings.TrimSpace(left)); err == nil {
		right, err = x.text(strings.TrimSpace(right))
	}
	sign := strings.Compare(left, right)
	a, errA := strconv.ParseInt(left, 10, 64)
	b, errB := strconv.ParseInt(right, 10, 64)
	if errA == nil && errB == nil {
		sign = int(min(max(a-b, -1), 1))
	}
	return map[string]bool{"==": sign == 0, "!=": sign != 0, "<=": sign <= 0, ">=": sign >= 0, "<": sign < 0, ">": sign > 0}[op],
		strings.TrimSpace(rest), err
}

// path returns where the file is that a Postfix path names. A copy of /etc/postfix
// in another folder is read as such: what stands beside main.cf goes before what
// this machine has in /etc/postfix.
func (p *parameters) path(name string, exists func(string) bool) string {
	const home = "/etc/postfix/"
	if !filepath.IsAbs(name) {
		if strings.HasPrefix(name, p.dir+"/") { // by $config_directory
			return filepath.Clean(name)
		}
		return filepath.Join(p.dir, name)
	}
	if rest, ok := strings.CutPrefix(filepath.Clean(name), home); ok && filepath.Clean(p.dir) != filepath.Clean(home) {
		if beside := filepath.Join(p.dir, rest); exists(beside) {
			return beside
		}
	}
	return name
}
