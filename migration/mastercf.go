package migration

import (
	"fmt"
	"strings"
)

// service is one line of master.cf that runs smtpd.
type service struct {
	at      Place
	name    string // as the line begins: "smtp", "submission", "127.0.0.1:10025"
	mx      bool   // where mail from other servers comes in
	options map[string]parameter
	order   []string // of options
}

// parseMasterCF returns the smtpd services of a master.cf.
func parseMasterCF(file string, data []byte) (services []service, faults []string) {
	lines, orphan := logicalLines(data)
	if orphan > 0 {
		faults = append(faults, fmt.Sprintf("%s:%d: begins with a blank, but there is no line that it could continue", file, orphan))
	}
	for _, l := range lines {
		words, ok := tokens(l.text, " \t")
		if l.comment || len(words) == 0 {
			continue
		}
		if !ok || len(words) < 8 {
			faults = append(faults, fmt.Sprintf("%s:%d: want a service of 8 columns, have %q", file, l.line, shown(l.text)))
			continue
		}
		if words[7] != "smtpd" {
			continue
		}
		at := Place{file, l.line}
		s := service{at: at, name: words[0], options: map[string]parameter{}}
		port := s.name[strings.LastIndexByte(s.name, ':')+1:]
		s.mx = words[1] == "inet" && (port == "smtp" || port == "25") || words[1] == "pass"
		for i := 8; i < len(words); i++ {
			option, ok := strings.CutPrefix(words[i], "-o")
			if !ok {
				continue // -v, -S and the like
			}
			if option == "" && i+1 < len(words) {
				i++
				option = words[i]
			}
			if inner, rest, ok := braced(option); ok && rest == "" {
				option = inner
			}
			name, value, ok := strings.Cut(option, "=")
			if name = strings.TrimSpace(name); !ok || !isParameter(name) {
				faults = append(faults, fmt.Sprintf("%s: want -o NAME=VALUE, have %q", at, shown(option)))
				continue
			}
			if _, again := s.options[name]; !again {
				s.order = append(s.order, name)
			}
			s.options[name] = parameter{at: at, value: strings.TrimSpace(value)}
		}
		services = append(services, s)
	}
	return services, faults
}

// tokens cuts a text at any of the separators, outside braces. ok is false if a
// brace is not closed.
func tokens(text, separators string) (words []string, ok bool) {
	depth, start := 0, -1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case depth == 0 && strings.IndexByte(separators, c) >= 0:
			if start >= 0 {
				words = append(words, text[start:i])
			}
			start = -1
			continue
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		words = append(words, text[start:])
	}
	return words, depth == 0
}

// braced returns the inside of a text that begins with "{", and what follows.
func braced(text string) (inner, rest string, ok bool) {
	if !strings.HasPrefix(text, "{") {
		return text, "", false
	}
	if inner, rest, ok = bracketed(text); !ok {
		return text, "", false
	}
	return strings.TrimSpace(inner), strings.TrimSpace(rest), true
}
