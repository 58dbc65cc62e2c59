package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/owners"
	"blockd/internal/durable"
	"blockd/internal/term"
)

// importSource is a program that import reads, and the flag that names its files.
type importSource struct {
	flag, what string
	read       func(context.Context, string) (*migration.Result, error)
	path       string
}

// importSources are all of them. domain completes users without one.
func importSources(domain *string) []importSource {
	type reader = func(context.Context, string, migration.Options) (*migration.Result, error)
	type ownersReader = func(context.Context, string, owners.Options) (*migration.Result, error)
	of := func(read reader) func(context.Context, string) (*migration.Result, error) {
		return func(ctx context.Context, path string) (*migration.Result, error) {
			return read(ctx, path, migration.Options{Hostname: config.MachineName()})
		}
	}
	owned := func(read ownersReader) func(context.Context, string) (*migration.Result, error) {
		return func(ctx context.Context, path string) (*migration.Result, error) {
			return read(ctx, path, owners.Options{Domain: *domain, Query: daemon.QueryTables})
		}
	}
	return []importSource{
		{flag: "from-postfix", what: "Postfix's `main.cf`, with master.cf and the tables that it names", read: of(migration.Postfix)},
		{flag: "from-rspamd", what: "rspamd's `multimap.conf`, with the maps that it names", read: of(migration.Rspamd)},
		{flag: "from-spamassassin", what: "SpamAssassin's `local.cf`, with the files that it includes", read: of(migration.SpamAssassin)},
		{flag: "amavis", what: "users' lists of amavisd-new or iRedMail: a `DSN`, or a dump of the tables users, mailaddr and wblist", read: owned(owners.Amavis)},
		{flag: "spamassassin-sql", what: "users' lists of SpamAssassin: a `DSN`, or a dump of the table userpref", read: owned(owners.SpamAssassinSQL)},
		{flag: "mailcow", what: "users' lists of mailcow: a `DSN`, or a dump of the table filterconf", read: owned(owners.Mailcow)},
		{flag: "user-prefs", what: "SpamAssassin's files user_prefs below a `folder`", read: owned(owners.UserPrefs)},
		{flag: "rspamd-settings", what: "rspamd's `settings.conf`", read: owned(owners.RspamdSettings)},
		{flag: "sieve", what: "the Sieve scripts below a `folder`", read: owned(owners.Sieve)},
		{flag: "csv", what: "a `file` with a header: owner,entry,action,reason", read: owned(owners.CSV)},
	}
}

func newImport() *cobra.Command {
	var out, domain string
	var asJSON, force bool
	sources := importSources(&domain)
	cmd := &cobra.Command{
		Use:   "import --from-postfix main.cf | --amavis DSN | ... [-o DIR] [--domain DOMAIN] [--force] [--json]",
		Short: "take over the lists of another program",
		Long: `Read which senders and clients another program refuses or lets pass, and say of each
entry, by file and line, what it meant and what it means in blockd: the same, which is the
same mail and the same reply, the same mail in other words, narrower, wider, or that it is
not carried over, and why.

With -o the result is written into a folder: config.toml, which runs as it is and has the
mail server ask blockd, the lists, and the report. Without it nothing is written. With
--force files that are there are replaced, and kept under a name that ends in .old.

postconf says what main.cf means, and rspamadm what multimap.conf means: Debian's packages
postfix and rspamd have them. Nothing that a configuration says is executed, and nothing is
fetched. Files that may be read are read.

--amavis, --spamassassin-sql, --mailcow, --user-prefs, --rspamd-settings, --sieve and --csv read the lists of users.
The result is a list with an owner for each entry, users.csv, and for what holds for every
recipient everyone.txt. A DSN is a URL (postgres://, mysql://, sqlite:PATH); a file whose one
line is a URL keeps its password out of the list of processes. A dump is one of mysqldump,
pg_dump or SQLite's .dump.

Ends with 0 when every entry means the same, 1 when one does not, 2 on an error.`,
		Example: `  blockd import --from-postfix /etc/postfix/main.cf
  blockd import --from-postfix /etc/postfix/main.cf -o /etc/blockd
  blockd import --from-rspamd /etc/rspamd/local.d/multimap.conf --json
  blockd import --amavis /etc/blockd/amavis.dsn -o /tmp/users
  blockd import --user-prefs /home --domain here.example -o /tmp/users`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			given := slices.DeleteFunc(slices.Clone(sources), func(s importSource) bool { return s.path == "" })
			var flags []string
			for _, s := range sources {
				flags = append(flags, "--"+s.flag)
			}
			if len(given) == 0 {
				return usagef("want one of %s", strings.Join(flags, ", "))
			} else if len(given) > 1 {
				return usagef("want --%s or --%s, not both", given[0].flag, given[1].flag)
			}
			r, err := given[0].read(cmd.Context(), given[0].path)
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			if asJSON {
				err = reportJSON(w, r)
			} else {
				err = reportText(w, term.NewPaint(cmd.OutOrStdout()), r)
			}
			if err == nil {
				err = w.Flush()
			}
			if err == nil && out != "" {
				err = writeImport(out, r, force)
			}
			if err != nil {
				return err
			}
			if r.Count(migration.Same) < len(r.Findings) {
				return answer(exitFault)
			}
			return nil
		}),
	}
	for i := range sources {
		cmd.Flags().StringVar(&sources[i].path, sources[i].flag, "", sources[i].what)
		must(cmd.MarkFlagFilename(sources[i].flag))
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`folder` for config.toml, the lists and the report")
	must(cmd.MarkFlagDirname("output"))
	cmd.Flags().StringVar(&domain, "domain", "", "`DOMAIN` of users whose names have none")
	cmd.Flags().BoolVar(&force, "force", false, "replace files that are there, and keep them as FILE.old")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an entry, and a summary")
	return cmd
}

// reportText is the report for people: a row an entry, and below it what is to be said
// of it.
func reportText(w *bufio.Writer, p term.Paint, r *migration.Result) error {
	var t term.Table
	t.Add(p.Bold("where"), p.Bold("entry"), p.Bold("meant"), p.Bold("now"), p.Bold("list"))
	for _, f := range r.Findings {
		t.Add(term.Visible(f.Place.String()), term.Clip(term.Visible(f.Text), 41), term.Clip(term.Visible(f.Meant), 61), outcomeCell(p, f.Outcome), term.Visible(f.List))
	}
	for i, line := range t.Lines() {
		fmt.Fprintln(w, line)
		if i > 0 && r.Findings[i-1].Now != "" {
			fmt.Fprintf(w, "  %s\n", p.Faint("= "+term.Visible(r.Findings[i-1].Now)))
		}
	}
	fmt.Fprintln(w)
	for _, note := range r.Notes {
		fmt.Fprintf(w, "%s %s\n", p.Yellow("note:"), term.Visible(note))
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, summaryOf(r))
	return err
}

// outcomeCell is the cell that says what became of an entry.
func outcomeCell(p term.Paint, o migration.Outcome) string {
	switch o {
	case migration.Same:
		return p.Green(o.String())
	case migration.Lost:
		return p.Faint(o.String())
	}
	return p.Yellow(o.String())
}

// summaryOf is the counts in one line.
func summaryOf(r *migration.Result) string {
	held := 0
	for _, l := range r.Lists {
		held += l.Entries
	}
	var parts []string
	for _, o := range []migration.Outcome{migration.Same, migration.Reworded, migration.Narrower, migration.Wider, migration.Lost} {
		parts = append(parts, fmt.Sprintf("%s %s", term.Grouped(r.Count(o)), o))
	}
	return fmt.Sprintf("%s: %s in %s; of what %s says of senders and clients: %s",
		term.Visible(r.Source), term.Counted(held, "entry"), term.Counted(len(r.Lists), "list"), r.Program, strings.Join(parts, ", "))
}

// reportJSON prints one object an entry and one at the end.
func reportJSON(w *bufio.Writer, r *migration.Result) error {
	if err := term.JSONLines(w, r.Findings); err != nil {
		return err
	}
	type list struct {
		Name    string `json:"name"`
		Entries int    `json:"entries"`
	}
	end := struct {
		Program string   `json:"program"`
		Source  string   `json:"source"`
		Lists   []list   `json:"lists"`
		Same    int      `json:"same"`
		Words   int      `json:"other_words"`
		Narrow  int      `json:"narrower"`
		Wide    int      `json:"wider"`
		Lost    int      `json:"not_carried_over"`
		Notes   []string `json:"notes"`
	}{r.Program, r.Source, []list{}, r.Count(migration.Same), r.Count(migration.Reworded), r.Count(migration.Narrower), r.Count(migration.Wider), r.Count(migration.Lost), append([]string{}, r.Notes...)}
	for _, l := range r.Lists {
		end.Lists = append(end.Lists, list{l.Name, l.Entries})
	}
	return term.JSON(w, end)
}

// listsFolder is where the lists of an import are, below its folder.
const listsFolder = "lists"

// writeImport writes the result into a folder. All names are looked at before the
// first file is written.
func writeImport(dir string, r *migration.Result, force bool) error {
	var report bytes.Buffer
	w := bufio.NewWriter(&report)
	if err := reportText(w, term.Paint{}, r); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	type file struct {
		path string
		text []byte
	}
	files := []file{{"config.toml", r.Config(listsFolder)}, {"report.txt", report.Bytes()}}
	for _, l := range r.Lists {
		if l.URL == "" {
			files = append(files, file{filepath.Join(listsFolder, l.File), l.Text})
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.path)
		if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fmt.Errorf("%s is there already; --force replaces it, and keeps it as %s", term.Path(path), filepath.Base(oldName(path)))
			}
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, listsFolder), 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := keepOld(filepath.Join(dir, f.path), f.text); err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(dir, f.path), f.text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// keepOld gives a file that is to be replaced by other text a second name, so that it stays.
func keepOld(path string, text []byte) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular() && info.Size() == int64(len(text)):
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
			return nil
		}
	}
	old := oldName(path)
	if err := os.Link(path, old); err != nil {
		return os.Rename(path, old) // a file system without second names
	}
	return nil
}

// oldName is the first of FILE.old, FILE.old.2 and so on that is free.
func oldName(path string) string {
	old := path + ".old"
	for n := 2; ; n++ {
		if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
			return old
		}
		old = fmt.Sprintf("%s.old.%d", path, n)
	}
}
