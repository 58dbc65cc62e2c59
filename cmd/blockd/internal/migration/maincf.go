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

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// parameter is one setting as postconf says it, with all that it names put in.
type parameter struct {
	value string
	at    Place
	parts []physical // the lines of main.cf that it stands on
}

// place returns the line on which a word stands, the first one from *from on, and moves *from there; a word that came
// by another parameter is where the last one was.
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
	over     map[string]parameter // the -o of the service on port 25; nil if there is none
	set      map[string]parameter // what the files say, with them
	defaults map[string]string    // what Postfix takes for needed, with what the files say
}

// needed are the parameters that an import needs even where the files do not say them.
var needed = [...]string{"access_map_defer_code", "access_map_reject_code", "default_database_type", "mynetworks",
	"parent_domain_matches_subdomains", "recipient_delimiter", "smtpd_delay_reject", "soft_bounce"}

// value returns what Postfix takes for a parameter.
func (p *parameters) value(name string) string {
	if v, ok := p.set[name]; ok {
		return v.value
	}
	return p.defaults[name]
}

// read has postconf say what main.cf, and master.cf where it is, come to.
//
// The folder is named "." to it: the paths that begin with $config_directory begin with "./", whatever characters the
// folder's own name has. Without interfaces there is no name that it would ask DNS for: the default of mynetworks is
// this machine alone.
func (pf *postfix) read(ctx context.Context, mainCF string, postconf runner) error {
	main, err := pf.files.load(mainCF, maxConfig)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(mainCF)
	if name != "main.cf" {
		return fmt.Errorf("%s: postconf reads the main.cf of a folder: give the file that name", mainCF)
	}
	pf.params = parameters{dir: filepath.Clean(dir), set: map[string]parameter{}, defaults: map[string]string{}}
	if err := pf.services(ctx, postconf); err != nil {
		return err
	}
	lines, err := pf.postconf(ctx, postconf, "-nx")
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
		name, value := cutSetting(line)
		p, ok := pf.params.over[name]
		if l, there := stands[name]; there && !ok {
			p, ok = parameter{at: Place{mainCF, l.line}, parts: l.parts}, true
		}
		if p.value = value; ok {
			pf.params.set[name] = p
		}
	}
	lines, err = pf.postconf(ctx, postconf, "-x", needed[:]...)
	for _, line := range lines {
		name, value := cutSetting(line)
		pf.params.defaults[name] = value
	}
	return err
}

// postconf runs postconf, and returns the lines that it prints.
func (pf *postfix) postconf(ctx context.Context, run runner, flag string, names ...string) ([]string, error) {
	args := []string{"-c", ".", flag}
	for _, name := range slices.Sorted(maps.Keys(pf.params.over)) {
		args = append(args, "-o", name+"="+pf.params.over[name].value)
	}
	args = append(args, "-o", "inet_interfaces=loopback-only", "-o", "proxy_interfaces=")
	out, complaints, err := run(ctx, pf.params.dir, "", append(args, names...)...)
	for _, text := range complaints {
		if text, ok := strings.CutPrefix(text, "postconf: warning: ./"); ok {
			pf.Note("%s", original.Shown(text))
		}
	}
	return strings.Split(out, "\n"), err
}

// cutSetting takes "name = value" apart.
func cutSetting(line string) (name, value string) {
	name, value, _ = strings.Cut(line, " =")
	return name, strings.TrimSpace(value)
}

// services takes the overrides of the smtpd that mail comes in by.
func (pf *postfix) services(ctx context.Context, run runner) error {
	path := filepath.Join(pf.params.dir, "master.cf")
	data, err := pf.files.load(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		pf.Note("%s: not read: %s; what it overrides is not known", path, unreadable(err))
		return nil
	case err != nil:
		return err
	}
	services, err := pf.postconf(ctx, run, "-M")
	if err != nil {
		return err
	}
	options, err := pf.postconf(ctx, run, "-P")
	if err != nil {
		return err
	}
	logicals, _ := logicalLines(data)
	for _, service := range services {
		f := strings.Fields(service)
		if len(f) < 8 || f[7] != "smtpd" {
			continue
		}
		at := Place{File: path}
		if i := slices.IndexFunc(logicals, func(l logical) bool {
			words := strings.Fields(l.text)
			return len(words) > 1 && slices.Equal(words[:2], f[:2])
		}); i >= 0 {
			at.Line = logicals[i].line
		}
		port := f[0][strings.LastIndexByte(f[0], ':')+1:]
		mine := pf.params.over == nil && (f[1] == "inet" && (port == "smtp" || port == "25") || f[1] == "pass")
		if mine {
			pf.params.over = map[string]parameter{}
		}
		for _, option := range options {
			if option, ok := strings.CutPrefix(option, f[0]+"/"+f[1]+"/"); ok {
				pf.override(at, f[0], option, mine)
			}
		}
	}
	return nil
}

// override takes one -o of a service, which is not expanded.
func (pf *postfix) override(at Place, service, option string, mine bool) {
	name, value := cutSetting(option)
	if mine {
		pf.params.over[name] = parameter{value: value, at: at}
	}
	if !slices.Contains(phases[:], name) && name != "mynetworks" && !strings.HasPrefix(name, "smtpd_restriction_") {
		return
	}
	why := "taken in place of main.cf's"
	if !mine {
		why = "blockd stands where mail comes in (port 25); this service keeps its own restrictions"
	}
	pf.Find(at, "-o "+name+"="+value, "in place of "+name+" of main.cf, for the service "+service).stays(why)
}

// isPath tells the path of a file from the name of a table.
func isPath(text string) bool { return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") }

// path returns where the file is that a Postfix path names. A copy of /etc/postfix in another folder is read as such:
// what stands beside main.cf goes before what this machine has in /etc/postfix.
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

// tokens cuts a text at any of the separators, outside braces. ok is false if a brace is not closed.
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
