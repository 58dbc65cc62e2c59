package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// parameter is one setting as postconf says it, with all that it names put in.
type parameter struct {
	value string
	at    Place
	parts []physical // the lines of main.cf that it stands on
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

// parameters are those of main.cf, with the overrides of one service on top.
type parameters struct {
	dir      string               // the folder of main.cf
	set      map[string]parameter // what the files say
	defaults map[string]string    // what Postfix takes for asked, with what the files say
}

// asked are the parameters that an import needs even where the files do not say them.
var asked = [...]string{"access_map_defer_code", "access_map_reject_code", "default_database_type", "mynetworks",
	"parent_domain_matches_subdomains", "recipient_delimiter", "smtpd_delay_reject", "soft_bounce"}

// value returns what Postfix takes for a parameter.
func (p *parameters) value(name string) string {
	if v, ok := p.set[name]; ok {
		return v.value
	}
	return p.defaults[name]
}

// ask has postconf say what main.cf, and master.cf where it is, come to.
//
// The folder is named "." to it: the paths that begin with $config_directory begin with "./",
// whatever characters the folder's own name has. Without interfaces there is no name that it
// would ask DNS for: the default of mynetworks is this machine alone.
func (pf *postfix) ask(ctx context.Context, mainCF string, postconf runner) error {
	main, err := pf.files.load(mainCF, maxConfig)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(mainCF)
	if name != "main.cf" {
		return fmt.Errorf("%s: postconf reads the main.cf of a folder: give the file that name", mainCF)
	}
	pf.params = parameters{dir: filepath.Clean(dir), set: map[string]parameter{}, defaults: map[string]string{}}
	var mine map[string]parameter
	settings := func(flag string, names ...string) (lines []string, err error) {
		args := []string{"-c", ".", flag}
		for _, name := range slices.Sorted(maps.Keys(mine)) {
			args = append(args, "-o", name+"="+mine[name].value)
		}
		args = append(args, "-o", "inet_interfaces=loopback-only", "-o", "proxy_interfaces=")
		out, complaints, err := postconf(ctx, pf.params.dir, append(args, names...)...)
		for _, text := range complaints {
			if text, ok := strings.CutPrefix(text, "postconf: warning: ./"); ok && err == nil {
				pf.note("%s", shown(text))
			}
		}
		return strings.Split(out, "\n"), err
	}
	if mine, err = pf.services(settings); err != nil {
		return err
	}
	lines, err := settings("-nx")
	if err != nil {
		return err
	}
	stands := map[string]logical{}
	logicals, _ := logicalLines(main)
	for _, l := range logicals { // the last one counts
		if name, _, ok := strings.Cut(l.text, "="); ok && !l.comment {
			stands[strings.TrimSpace(name)] = l
		}
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " =")
		p, ours := mine[name]
		if l, ok := stands[name]; ok && !ours {
			p.at, p.parts = Place{mainCF, l.line}, l.parts
		} else if !ours {
			continue
		}
		p.value = strings.TrimSpace(value)
		pf.params.set[name] = p
	}
	if lines, err = settings("-x", asked[:]...); err != nil {
		return err
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " =")
		pf.params.defaults[name] = strings.TrimSpace(value)
	}
	return nil
}

// services returns the overrides of the smtpd that mail comes in by, not expanded.
func (pf *postfix) services(settings func(string, ...string) ([]string, error)) (map[string]parameter, error) {
	path := filepath.Join(pf.params.dir, "master.cf")
	data, err := pf.files.load(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		pf.note("%s: not read: %s; what it overrides is not known", path, unreadable(err))
		return nil, nil
	case err != nil:
		return nil, err
	}
	services, err := settings("-M")
	if err != nil {
		return nil, err
	}
	options, err := settings("-P")
	if err != nil {
		return nil, err
	}
	logicals, _ := logicalLines(data)
	var mine map[string]parameter
	for _, service := range services {
		f := strings.Fields(service)
		if len(f) < 8 || f[7] != "smtpd" {
			continue
		}
		at := Place{File: path}
		for _, l := range logicals {
			if words := strings.Fields(l.text); len(words) > 1 && words[0] == f[0] && words[1] == f[1] {
				at.Line = l.line
			}
		}
		port := f[0][strings.LastIndexByte(f[0], ':')+1:]
		first := mine == nil && (f[1] == "inet" && (port == "smtp" || port == "25") || f[1] == "pass")
		if first {
			mine = map[string]parameter{}
		}
		for _, option := range options {
			option, ours := strings.CutPrefix(option, f[0]+"/"+f[1]+"/")
			name, value, _ := strings.Cut(option, " =")
			value = strings.TrimSpace(value)
			if ours && first {
				mine[name] = parameter{value: value, at: at}
			}
			if !ours || !slices.Contains(phases[:], name) && name != "mynetworks" && !strings.HasPrefix(name, "smtpd_restriction_") {
				continue
			}
			f := pf.find(at, "-o "+name+"="+value, "in place of "+name+" of main.cf, for the service "+f[0])
			if first {
				f.Now = "taken in place of main.cf's"
			} else {
				f.lose("blockd stands where mail comes in (port 25); this service keeps its own restrictions")
			}
		}
	}
	return mine, nil
}

// isPath tells the path of a file from the name of a table.
func isPath(text string) bool { return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") }

// path returns where the file is that a Postfix path names. A copy of /etc/postfix
// in another folder is read as such: what stands beside main.cf goes before what
// this machine has in /etc/postfix.
func (p *parameters) path(name string) string {
	const home = "/etc/postfix"
	if !filepath.IsAbs(name) {
		return filepath.Join(p.dir, name)
	}
	if rest, ok := strings.CutPrefix(filepath.Clean(name), home+"/"); ok && p.dir != home {
		if beside := filepath.Join(p.dir, rest); exists(beside) {
			return beside
		}
	}
	return name
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

// unbraced returns the inside of a text in braces, and any other text as it is.
func unbraced(text string) string {
	for i, depth := 0, 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth <= 0 && (i < len(text)-1 || text[i] != '}') {
			return text
		}
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"))
}
