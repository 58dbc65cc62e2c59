package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"blockd/cmd/blockd/internal/trial"
	"blockd/internal/durable"
	"blockd/internal/term"
)

// importSource is a program that import reads, and the flag that names its files.
type importSource struct {
	flag, what string
	read       func(context.Context, string, migration.Options) (*migration.Result, error)
	path       string
}

func importSources() []importSource {
	return []importSource{
		{flag: "from-postfix", what: "Postfix's `main.cf`, with master.cf and the tables that it names", read: migration.Postfix},
		{flag: "from-rspamd", what: "rspamd's `multimap.conf`, with the maps that it names", read: migration.Rspamd},
		{flag: "from-spamassassin", what: "SpamAssassin's `local.cf`, with the files that it includes", read: migration.SpamAssassin},
		{flag: "amavis", what: "users' lists of amavisd-new or iRedMail: a `DSN`, or a dump of the tables users, mailaddr and wblist", read: owners.Amavis},
		{flag: "spamassassin-sql", what: "users' lists of SpamAssassin: a `DSN`, or a dump of the table userpref", read: owners.SpamAssassinSQL},
		{flag: "mailcow", what: "users' lists of mailcow: a `DSN`, or a dump of the table filterconf", read: owners.Mailcow},
		{flag: "user-prefs", what: "SpamAssassin's files user_prefs below a `folder`", read: owners.UserPrefs},
		{flag: "rspamd-settings", what: "rspamd's `settings.conf`", read: owners.RspamdSettings},
		{flag: "sieve", what: "the Sieve scripts below a `folder`", read: owners.Sieve},
		{flag: "csv", what: "a `file` with a header: owner,entry,action,reason", read: owners.CSV},
	}
}

// importCommand is what the flags of import say.
type importCommand struct {
	sources       []importSource
	out, domain   string
	asJSON, force bool
}

func newImport() *cobra.Command {
	c := importCommand{sources: importSources()}
	cmd := &cobra.Command{
		Use:   "import --from-postfix main.cf | --amavis DSN | ... [-o DIR] [--domain DOMAIN] [--force] [--json]",
		Short: "take over the lists of another program",
		Long: `Read which senders and clients another program refuses or lets pass, and make a list of
each of its tables. Then ask the other program and the lists about the same mails: for
every key of every table the key itself, a name below it and an address at it. The report
says of each entry whether both answer alike, and of each mail that they do not, what both
answer. Nothing is called the same that was not asked.

With -o the result is written into a folder: config.toml, which runs as it is and has the
mail server ask blockd, the lists, and the report. Without it nothing is written. With
--force files that are there are replaced, and kept under a name that ends in .old.

postconf says what main.cf means, and postmap what a table has; rspamadm says what
multimap.conf means, and rspamd answers by its rules: Debian's packages postfix and rspamd
have them. SpamAssassin's globs, and a portal's rows, are asked by their own meaning.
Nothing that a configuration says is executed, and nothing is fetched. Files that may be
read are read.

--amavis, --spamassassin-sql, --mailcow, --user-prefs, --rspamd-settings, --sieve and --csv read the lists of users.
The result is a list with an owner for each entry, users.csv, and for what holds for every
recipient everyone.txt. A DSN is a URL (postgres://, mysql://, sqlite:PATH); a file whose one
line is a URL keeps its password out of the list of processes. A dump is one of mysqldump,
pg_dump or SQLite's .dump.

Ends with 0 when all was asked and is the same, 1 when something was not, 2 on an error.`,
		Example: `  blockd import --from-postfix /etc/postfix/main.cf
  blockd import --from-postfix /etc/postfix/main.cf -o /etc/blockd
  blockd import --from-rspamd /etc/rspamd/local.d/multimap.conf --json
  blockd import --amavis /etc/blockd/amavis.dsn -o /tmp/users
  blockd import --user-prefs /home --domain here.example -o /tmp/users`,
		Args: noArgs,
		RunE: answering(c.run),
	}
	for i := range c.sources {
		cmd.Flags().StringVar(&c.sources[i].path, c.sources[i].flag, "", c.sources[i].what)
		must(cmd.MarkFlagFilename(c.sources[i].flag))
	}
	cmd.Flags().StringVarP(&c.out, "output", "o", "", "`folder` for config.toml, the lists and the report")
	must(cmd.MarkFlagDirname("output"))
	cmd.Flags().StringVar(&c.domain, "domain", "", "`DOMAIN` of users whose names have none")
	cmd.Flags().BoolVar(&c.force, "force", false, "replace files that are there, and keep them as FILE.old")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object an entry, and a summary")
	return cmd
}

func (c *importCommand) run(cmd *cobra.Command, _ []string) error {
	var flags, given []string
	var from importSource
	for _, s := range c.sources {
		flags = append(flags, "--"+s.flag)
		if s.path != "" {
			given, from = append(given, "--"+s.flag), s
		}
	}
	if len(given) == 0 {
		return usagef("want one of %s", strings.Join(flags, ", "))
	} else if len(given) > 1 {
		return usagef("want %s or %s, not both", given[0], given[1])
	}
	ctx, stop := interruptible(cmd) // what was started to be asked ends with it
	defer stop()
	r, err := from.read(ctx, from.path, migration.Options{Hostname: config.MachineName(), Domain: c.domain, Query: daemon.QueryTables})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := askBoth(ctx, cmd.ErrOrStderr(), r); err != nil {
		return err
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	if c.asJSON {
		err = reportJSON(w, r)
	} else {
		err = reportText(w, term.NewPaint(cmd.OutOrStdout()), r)
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil && c.out != "" {
		err = writeImport(c.out, r, c.force)
	}
	if err == nil && !r.Whole() {
		return answer(exitFault)
	}
	return err
}

// askBoth asks the other program and what would be written about all mails, with a bar on a terminal.
func askBoth(ctx context.Context, screen io.Writer, r *migration.Result) error {
	dir, err := os.MkdirTemp("", "blockd-import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeLists(dir, r, false, nil); err != nil {
		return err
	}
	here, err := trial.Open(ctx, filepath.Join(dir, "config.toml"), dir)
	if err != nil {
		return fmt.Errorf("what was written does not load: %w", err)
	}
	defer here.Close()
	ask := here.Mails
	if r.ByPolicy != nil {
		ask = here.Policy(r.ByPolicy)
	}
	bar := term.NewBar(screen)
	defer bar.Clear()
	return r.Ask(ctx, ask, func(entries int) {
		bar.Show(term.Step{Stage: "asked", Done: int64(entries), Total: int64(len(r.Findings)), Things: true})
	})
}

// reportText is the report for people: a row an entry, below it what is to be said of it, and at the end what
// differs.
func reportText(w *bufio.Writer, p term.Paint, r *migration.Result) error {
	head := []string{"where", "entry", "asks for", "now", "list"}
	inTables(w, p, head, r.Findings, func(f *migration.Finding) (cells []string, below string) {
		if f.Now != "" {
			below = p.Faint("= " + term.Visible(f.Now))
		}
		return []string{term.Visible(f.Place.String()), term.Clip(term.Visible(f.Text), 41), term.Clip(term.Visible(f.Meant), 61), outcomeCell(p, f.Outcome), term.Visible(f.List)}, below
	})
	for _, note := range r.Notes {
		fmt.Fprintf(w, "%s %s\n", p.Yellow("note:"), term.Visible(note))
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	if len(r.Differences) > 0 {
		inTables(w, p, []string{"mail", "of", r.Program, "blockd"}, r.Differences, func(d migration.Difference) ([]string, string) {
			return []string{term.Visible(d.Mail), term.Visible(d.Place.String()), term.Visible(d.There), term.Visible(d.Here)}, ""
		})
		if more := r.Asked - r.Alike - len(r.Differences); more > 0 {
			fmt.Fprintf(w, "... and %s mails more\n\n", term.Grouped(more))
		}
	}
	_, err := fmt.Fprintln(w, summaryOf(r))
	return err
}

// rowsAtOnce bounds the rows that are laid out together: a report may have a million.
const rowsAtOnce = 10_000

// inTables prints a row for each of all, with a line below it where there is something more to be said, and an empty
// line at the end.
func inTables[T any](w *bufio.Writer, p term.Paint, head []string, all []T, row func(T) (cells []string, below string)) {
	for chunk := range slices.Chunk(all, rowsAtOnce) {
		var t term.Table
		var bold, below []string
		for _, word := range head {
			bold = append(bold, p.Bold(word))
		}
		t.Add(bold...)
		for _, one := range chunk {
			cells, more := row(one)
			t.Add(cells...)
			below = append(below, more)
		}
		for i, line := range t.Lines() {
			fmt.Fprintln(w, line)
			if i > 0 && below[i-1] != "" {
				fmt.Fprintf(w, "  %s\n", below[i-1])
			}
		}
	}
	fmt.Fprintln(w)
}

// outcomeCell is the cell that says what became of an entry.
func outcomeCell(p term.Paint, o migration.Outcome) string {
	switch o {
	case migration.Same:
		return p.Green(o.String())
	case migration.Stays:
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
	text := fmt.Sprintf("%s: %s in %s; ", term.Visible(r.Source), term.Counted(held, "entry"), term.Counted(len(r.Lists), "list"))
	if r.Unasked != "" {
		return text + "nothing was asked: " + term.Visible(r.Unasked)
	}
	text += fmt.Sprintf("asked about %s: %s of %s the same", term.Counted(r.Asked, "mail"), term.Grouped(r.Alike), term.Grouped(r.Asked))
	if r.Wronged > 0 {
		text += fmt.Sprintf(", %s let pass there and not here", term.Grouped(r.Wronged))
	}
	between := "; of the entries "
	for _, o := range []migration.Outcome{migration.Same, migration.Reworded, migration.Differs, migration.Lost, migration.NotAsked} {
		if n := r.Count(o); n > 0 {
			text += fmt.Sprintf("%s%s %s", between, term.Grouped(n), strings.Replace(o.String(), "differs", "differ", 1))
			between = ", "
		}
	}
	return text
}

// reportJSON prints one object an entry, one a mail that is answered differently, and one at the end.
func reportJSON(w *bufio.Writer, r *migration.Result) error {
	if err := term.JSONLines(w, r.Findings); err != nil {
		return err
	}
	if err := term.JSONLines(w, r.Differences); err != nil {
		return err
	}
	type list struct {
		Name    string `json:"name"`
		Entries int    `json:"entries"`
	}
	end := struct {
		Program  string   `json:"program"`
		Source   string   `json:"source"`
		Lists    []list   `json:"lists"`
		Asked    int      `json:"asked"`
		Same     int      `json:"same"`
		Wronged  int      `json:"passed_there_alone"`
		Unasked  string   `json:"unasked,omitempty"`
		Words    int      `json:"entries_in_other_words"`
		Differs  int      `json:"entries_differ"`
		Lost     int      `json:"entries_not_carried_over"`
		NotAsked int      `json:"entries_not_asked"`
		Notes    []string `json:"notes"`
	}{r.Program, r.Source, []list{}, r.Asked, r.Alike, r.Wronged, r.Unasked, r.Count(migration.Reworded), r.Count(migration.Differs), r.Count(migration.Lost), r.Count(migration.NotAsked), append([]string{}, r.Notes...)}
	for _, l := range r.Lists {
		end.Lists = append(end.Lists, list{l.Name, l.Entries})
	}
	return term.JSON(w, end)
}

// listsFolder is where the lists of an import are, below its folder.
const listsFolder = "lists"

// writeImport writes the result into a folder. All names are looked at before the first file is written.
func writeImport(dir string, r *migration.Result, force bool) error {
	var report bytes.Buffer
	w := bufio.NewWriter(&report)
	if err := reportText(w, term.Paint{}, r); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return writeLists(dir, r, force, report.Bytes())
}

// writeLists writes the configuration and its lists, and a report unless it is nil.
func writeLists(dir string, r *migration.Result, force bool, report []byte) error {
	type file struct {
		path string
		text []byte
	}
	files := []file{{"config.toml", r.Config(listsFolder)}}
	if report != nil {
		files = append(files, file{"report.txt", report})
	}
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
