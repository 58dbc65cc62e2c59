package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/export"
	"blockd/index"
	"blockd/index/live"
	"blockd/internal/durable"
	"blockd/internal/spelling"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/mail/addr"
)

func newExport() *cobra.Command {
	var path, file, format, out, owner string
	var names []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export [-c config.toml | -i FILE.bdx] --format F [--list NAME]... [--owner OWNER] [-o FILE] [--json]",
		Short: "write the lists in another program's format",
		Long: `Write what the compiled index holds as a list in the format of another program:
` + strings.Join(lists.WritableFormats(), ", ") + `.

What is written refuses less than blockd, not more. An entry that the format has no
words for is left out; a name with all names below it becomes the name alone where the
format knows no more; and a block is left out as far as an exception covers it that
cannot be written, or that the other program would not put first. All of this is
counted on standard error, and makes it end with 1. So are exceptions that cannot be
written: of one for a single address, the block of its domain stays. An exception for
senders that wants proof ([[list]] require) is such a one in every format. What
[[policy]] says of some recipients is not written.

Lists in shadow mode are written only if --list names them, and so are those whose
on_match does not refuse (quarantine, tag) or whose match leaves the envelope out,
where a configuration tells of it.

Entries with owners are in none of these. --format csv:entry writes them alone, those of
lists and live ones (blockd add --owner, blockd junk), as a CSV with the header
owner,entry,action,reason: a list with per_recipient = true reads it, and so does blockd
import --csv. With --owner those of one owner. Entries that end by themselves are left
out: the format has no end for them.

Standard error has a note for each list whose licence is known not to let everybody pass
it on, by its file, [[list]] licence or the catalogue.

Ends with 0 when the file says all that the lists say, 1 when it says less, 2 on an
error.`,
		Example: `  blockd export --format postfix -o /etc/postfix/sender_access
  blockd export -i bad.bdx --format rpz >bad.zone
  blockd export --format hosts --list malware --list scam
  blockd export --format csv:entry -o users.csv`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			formats := append(lists.WritableFormats(), export.OwnedFormat)
			switch {
			case !slices.Contains(formats, format):
				return usagef("want --format, one of %s", strings.Join(formats, ", "))
			case owner != "" && format != export.OwnedFormat:
				return usagef("--owner is for --format %s", export.OwnedFormat)
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			var outputs []string
			if out != "" {
				outputs = append(outputs, out)
			}
			job, err := exportJob(path, file, names, outputs...)
			if err != nil {
				return err
			}
			if format == export.OwnedFormat {
				return exportOwned(ctx, cmd, job, path, file, owner, out, asJSON)
			}
			job.Format = format
			told, err := writeExport(ctx, cmd, out, job)
			if err != nil {
				return err
			}
			if asJSON {
				if err := term.JSON(cmd.ErrOrStderr(), told.Told()); err != nil {
					return err
				}
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), told)
				for _, r := range told.Restricted() {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: the licence of %s may not let you pass it on: %s\n", cmd.CommandPath(), r.List, term.Visible(r.Licence))
				}
			}
			if told.Partial() {
				return answer(exitFault)
			}
			return nil
		}),
	}
	configFlag(cmd, &path)
	indexFlag(cmd, &file, "export")
	cmd.Flags().StringVar(&format, "format", "", "format `F` to write")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(append(lists.WritableFormats(), export.OwnedFormat), cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringArrayVar(&names, "list", nil, "only the list `NAME`; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("list", completion(&path, listNames)))
	cmd.Flags().StringVar(&owner, "owner", "", "of `OWNER` alone, a mailbox or a domain")
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write, put in place when it is whole; without it standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "say on standard error what became of the entries as a JSON object")
	return cmd
}

// exportOwned writes the entries with owners, of the named lists or of all, and live ones where a configuration tells of them.
func exportOwned(ctx context.Context, cmd *cobra.Command, job export.Job, path, file, owner, out string, asJSON bool) error {
	o := export.Owned{Index: job.Index}
	if len(job.Lists) > 0 {
		for _, name := range listsOf(job.Index) {
			o.Rows = append(o.Rows, slices.Contains(job.Lists, name))
		}
	}
	if owner != "" {
		var err error
		if o.Owner, err = addr.ParseOwner(owner); err != nil {
			return usagef("--owner: %v", err)
		}
	}
	if file == "" && (len(job.Lists) == 0 || slices.Contains(job.Lists, live.ListName)) {
		c, err := config.Load(path)
		if err == nil {
			o.Live, err = control.ReadLive(c)
		}
		if err != nil {
			return err
		}
	}
	var told export.OwnedResult
	write := func(w io.Writer) (err error) {
		told, err = o.Write(ctx, w)
		return err
	}
	err := error(nil)
	if out == "" {
		err = write(cmd.OutOrStdout())
	} else {
		err = durable.Replace(out, 0o600, write) // who blocks whom is nobody else's
	}
	switch {
	case err != nil:
		return err
	case asJSON:
		err = term.JSON(cmd.ErrOrStderr(), told)
	default:
		fmt.Fprintln(cmd.ErrOrStderr(), told)
	}
	if err == nil && told.Partial() {
		return answer(exitFault)
	}
	return err
}

// exportJob opens the index file, or that of the configuration at path, to export the named
// lists; without names those that refuse. Files that cannot take the outputs are found
// before the work.
func exportJob(path, file string, names []string, outputs ...string) (export.Job, error) {
	var c config.Config
	if file == "" {
		var err error
		if c, err = config.Load(path); err != nil {
			return export.Job{}, err
		}
		file = c.Index.Path
	} else {
		path = ""
	}
	ix, err := control.OpenIndex(file, path)
	if err != nil {
		return export.Job{}, err
	}
	for _, out := range outputs {
		if err := wantOutput(out, file, "index"); err != nil {
			return export.Job{}, err
		}
	}
	for _, name := range names {
		if known := listsOf(ix); !slices.Contains(known, name) {
			return export.Job{}, fmt.Errorf("no list %q in the index%s", name, spelling.Hint(name, "", known))
		}
	}
	return export.Job{Index: ix, Lists: names, Rules: c.Policy().Lists, IgnoreSenders: c.Auth.UnverifiedAllow == "ignore"}, nil
}

// wantOutput refuses a file to write that would take the place of a file that is read, which
// what names, of a folder or of a device.
func wantOutput(out, read, what string) error {
	there, err := os.Stat(out)
	if err != nil {
		return nil // to write it will tell
	}
	switch input, err := os.Stat(read); {
	case there.IsDir():
		return usagef("-o: %s is a folder; want the name of a file", out)
	case !there.Mode().IsRegular():
		return usagef("-o: %s is no regular file, and cannot be put in place", out)
	case err == nil && os.SameFile(there, input):
		return usagef("-o: %s is the %s that is read", out, what)
	}
	return nil
}

// writeExport writes a file, "" = standard output, and shows how far it is.
func writeExport(ctx context.Context, cmd *cobra.Command, out string, job export.Job) (told *export.Result, err error) {
	bar := term.NewBar(cmd.ErrOrStderr())
	if out == "" && term.IsTerminal(cmd.OutOrStdout()) {
		bar = term.NewBar(io.Discard) // the lines are to be seen
	}
	defer bar.Clear()
	job.Progress = func(done, total int64) {
		bar.Show(term.Step{Stage: "export", Done: done, Total: total, Things: true})
	}
	if out == "" {
		return job.Write(ctx, cmd.OutOrStdout())
	}
	// Other programs watch such files as blockd does: they must see it whole.
	err = durable.Replace(out, 0o644, func(w io.Writer) (err error) {
		told, err = job.Write(ctx, w)
		return err
	})
	return told, err
}

func listsOf(ix *index.Index) (names []string) {
	for _, row := range ix.Lists() {
		names = append(names, row.Source.List)
	}
	return names
}
