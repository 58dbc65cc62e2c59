package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// An include as an object of its own (the parameter prefix) whose file has a brace too many ends rspamadm 3.4 with a
// segmentation fault, or keeps it from ending. So rspamadm gets a configuration only if this package has seen all
// files that it may include, and if all includes in them are plain. What looks like an include and is none counts as
// well.

var (
	// include is where an include may begin: at a name of a macro, before its parameters.
	include = regexp.MustCompile(`(?i)\.(?:try_)?include[a-z_]*[\s\v(]`)

	// plainInclude is one that can do no more than read its file. Group 1 or 2 is the name.
	plainInclude = regexp.MustCompile(`(?i)^\.(?:try_)?include[a-z_]*\s*` +
		`(?:\((?:\s*(?:try|glob|priority|duplicate)\s*[=:]\s*"?-?[a-z0-9]+"?\s*[,;]?)*\s*\))?` +
		`(?:\s|#.*\n)*` + `(?:"([^"\\\[]*)"|([$/]?[\w.-][\w$./-]*)(?:[\s;,]|$))`)
)

// variables are the folders that a name of an include may begin with in a file of a folder, as Debian's rspamd has
// them. rspamadm is given them too, so that it reads what was seen here.
func (rs *rspamd) variables(folder string) map[string]string {
	return map[string]string{"DBDIR": "/var/lib/rspamd", "RUNDIR": "/run/rspamd", "LOGDIR": "/var/log/rspamd", "PREFIX": "/usr", "SHAREDIR": "/usr/share/rspamd",
		"PLUGINSDIR": "/usr/share/rspamd/plugins", "RULESDIR": "/usr/share/rspamd/rules", "WWWDIR": "/usr/share/rspamd/www",
		"CONFDIR": rs.home, "LOCAL_CONFDIR": rs.home, "CURDIR": folder}
}

// seeIncludes looks at a file and all files that it includes. They are at most maxFiles, and have
// maxConfig octets together.
func (rs *rspamd) seeIncludes(file string) error {
	seen, size := map[string]bool{}, 0
	for waiting := []string{file}; len(waiting) > 0; {
		path, err := filepath.EvalSymlinks(waiting[0])
		waiting = waiting[1:]
		if err != nil || seen[path] {
			continue // rspamadm cannot open it either
		}
		seen[path] = true
		text, err := rs.files.load(path, maxConfig)
		switch size += len(text); {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
			continue
		case err != nil:
			return err
		case size > maxConfig:
			return fmt.Errorf("%s: %w: with the files that it includes it has over %d MiB", file, ErrTooBig, maxConfig>>20)
		}
		included, err := rs.includes(path, string(text))
		if err != nil {
			return err
		}
		waiting = append(waiting, included...)
	}
	return nil
}

// includes returns the files that a text in the file at path may include.
func (rs *rspamd) includes(path, text string) (files []string, err error) {
	variables := rs.variables(filepath.Dir(path))
	unknown := func(name string) string { return map[bool]string{false: "$"}[variables[name] != ""] }
	for _, at := range include.FindAllStringIndex(text, -1) {
		m := plainInclude.FindStringSubmatch(text[at[0]:])
		if m == nil || strings.Contains(os.Expand(m[1]+m[2], unknown), "$") {
			return nil, fmt.Errorf("%s:%d: only a plain .include is read, with a name in quotes and no other parameters than try, glob, priority and duplicate: put the rules into the file itself",
				path, 1+strings.Count(text[:at[0]], "\n"))
		}
		name := os.Expand(m[1]+m[2], func(name string) string { return variables[name] })
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		files = append(files, name)
		if strings.ContainsAny(name, "*?") {
			many, _ := filepath.Glob(name)
			files = append(files, many...)
		}
	}
	return files, nil
}
