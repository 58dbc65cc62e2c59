package setup

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"blockd/lists"
	"blockd/sources/catalogue"
)

// ownTable is a list that is a file of this machine.
const ownTable = `
# %s
[[list]]
name = %q
path = %q
format = %q
`

// maxAddress bounds the address of a list.
const maxAddress = 2000

// AddList puts a list behind the text of a configuration: a list of the catalogue by its name,
// one that is fetched by its https address, any other by its file, or FORMAT=FILE, which is read to learn its
// format. taken are the names that the configuration has; the new one's is returned, and what
// there is to say of it. copies is the folder for what is fetched. The only other I/O is reading
// the file.
func AddList(ctx context.Context, text []byte, what, folder, copies string, taken []string, now time.Time) (changed []byte, name, said string, err error) {
	if l, err := catalogue.Named(what); err == nil {
		changed, err := catalogue.Subscribe(text, l, filepath.Join(copies, l.Name), now)
		return changed, l.Name, "it only watches; after a week: blockd subscribe " + l.Name, err
	}
	if strings.Contains(what, "://") {
		u, err := url.Parse(what)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return nil, "", "", fmt.Errorf("%.80q is no https address", what)
		}
		if len(what) > maxAddress || !utf8.ValidString(what) || strings.ContainsFunc(what, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
			return nil, "", "", fmt.Errorf("%.80q: want an address of at most %d octets, without blanks and control characters", what, maxAddress)
		}
		base := path.Base(u.Path)
		if base == "/" || base == "." {
			base = u.Hostname()
		}
		name = freeName(base, taken)
		changed, err := catalogue.Subscribe(text, catalogue.List{Name: name, URL: what, Format: "auto"}, filepath.Join(copies, name), now)
		return changed, name, "it only watches; after a week: blockd subscribe " + name, err
	}
	format := "auto"
	if before, after, ok := strings.Cut(what, "="); ok && lists.ParseFormat(before) == nil {
		format, what = before, after
	}
	file, err := filepath.Abs(what)
	if err != nil {
		return nil, "", "", err
	}
	sum, _, err := lists.Lint(ctx, file, lists.Settings{Format: format}, func(*lists.Item) error { return nil })
	if refused := (*lists.FileError)(nil); errors.As(err, &refused) {
		if refused.Class == lists.Missing {
			return nil, "", "", fmt.Errorf("%w; nor is it a name of blockd catalogue, or an https address", err)
		}
		return nil, "", "", fmt.Errorf("%w; a format before the file settles it, such as plain=%s", err, what)
	} else if err != nil {
		return nil, "", "", err
	}
	name = freeName(filepath.Base(file), taken)
	if inside, err := filepath.Rel(folder, file); err == nil && filepath.IsLocal(inside) {
		file = inside
	}
	said = fmt.Sprintf("%d entries, format %s", sum.Entries, sum.Format)
	comment := said
	if format == "auto" {
		comment = "Format guessed from the file: " + said
	}
	if sum.Errors > 0 {
		said += fmt.Sprintf("; %d lines are refused: blockd lint %s", sum.Errors, what)
	}
	return fmt.Appendf(slices.Clip(text), ownTable, comment, name, file, sum.Format), name, said, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9._-]+`)

// freeName makes the name of a list out of that of its file: without endings, and none that is taken.
func freeName(base string, taken []string) string {
	base = strings.ToLower(base)
	base = strings.TrimSuffix(base, ".gz")
	if ending := path.Ext(base); ending != base {
		base = strings.TrimSuffix(base, ending)
	}
	base = strings.Trim(notInNames.ReplaceAllString(base, "-"), "-._")
	base = base[:min(len(base), 40)]
	if base == "" {
		base = "list"
	}
	name := base
	for n := 2; slices.Contains(taken, name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}
