package owners

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/sources/mirror/preset"
)

// UserPrefs imports the files user_prefs of SpamAssassin below a folder: USER/.spamassassin/user_prefs as in home
// folders, DOMAIN/USER/… or USER@DOMAIN/… as spamd --virtual-config-dir has them.
func UserPrefs(ctx context.Context, folder string, o Options) (*migration.Result, error) {
	r := begin("SpamAssassin", folder, o)
	err := r.walk(ctx, folder, func(name string) bool { return name == "user_prefs" }, r.userPrefs)
	if err != nil {
		return nil, err
	}
	return r.end()
}

// userPrefs reads one file.
func (r *reading) userPrefs(path, owner string, data []byte) error {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		word := strings.ReplaceAll(strings.ToLower(strings.Fields(text)[0]), "-", "_")
		if !strings.Contains(word, "list_from") && !strings.Contains(word, "list_auth") && !strings.HasSuffix(word, "list_to") {
			continue
		}
		line := text
		if strings.HasPrefix(word, "unb") { // here it takes back what stands in the list for everyone
			line = "welcomelist_from" + text[len(word):]
		}
		named := strings.Fields(text)[1:]
		items := lists.ParseLine("spamassassin", line, lists.Settings{})
		for i, it := range items {
			f, err := r.find(migration.Place{File: path, Line: n}, text, "")
			if err != nil {
				return err
			}
			what := "100 points in favour of "
			if it.Action == lists.Block {
				what = "100 points for "
			}
			if f.Meant = what + original.Shown(it.Plain()); it.Plain() == "" {
				f.Meant = "points"
			}
			switch {
			case preset.TakesBackException(word):
				f.Lose("it takes back an exception; remove the exception's own line")
				continue
			case it.Kind == lists.Skip:
				f.Lose("it is not about senders")
				continue
			case strings.HasPrefix(word, "unb"):
				f.Remark("an exception, where the line takes back an entry for everyone alone")
			}
			if len(named) == len(items) && !strings.Contains(word, "_auth") {
				r.means(meaning{Finding: f, text: named[i], is: asGlob(named[i]), fate: fateOf(it.Action), takesBack: strings.HasPrefix(word, "unb")}, owner, false)
			}
			r.add(f, owner, it, fmt.Sprintf("user_prefs:%d", n))
		}
	}
	return nil
}

// walk reads the files below a folder that want names; symbolic links are not followed.
func (r *reading) walk(ctx context.Context, folder string, want func(name string) bool, read func(path, owner string, data []byte) error) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && path == folder:
			return err
		case err != nil:
			r.Note("%s: %s", path, err)
			return nil
		case !d.Type().IsRegular() || !want(d.Name()):
			return nil
		}
		data, err := r.load(path)
		if err != nil {
			if r.files > maxFiles {
				return err
			}
			r.Note("%s", err)
			return nil
		}
		within, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return read(path, ownerOf(within), data)
	})
}

// ownerOf says by the path of a file below a folder whose it is: a part with "@" is the mailbox, two parts of which
// the first has a dot are domain and user, and else the first part is the user.
func ownerOf(path string) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	name := parts[len(parts)-1]
	folders := parts[:len(parts)-1]
	for _, p := range parts {
		if p = strings.TrimSuffix(p, ".sieve"); strings.Contains(p, "@") {
			return p
		}
	}
	if base, ok := strings.CutSuffix(name, ".sieve"); ok && base != "" && base != ".dovecot" && len(folders) < 2 {
		if len(folders) == 1 && strings.Contains(folders[0], ".") {
			return base + "@" + folders[0] // DOMAIN/USER.sieve
		} else if len(folders) == 0 {
			return base
		}
	}
	switch {
	case len(folders) == 0:
		return ""
	case len(folders) > 1 && strings.Contains(folders[0], ".") && !strings.HasPrefix(folders[1], "."):
		return folders[1] + "@" + folders[0]
	}
	if strings.Contains(folders[0], ".") && len(folders) == 1 {
		return "" // a folder of a domain and no user
	}
	return folders[0]
}
