package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/doors/export"
	"blockd/internal/term"
)

func newFilterExport() *cobra.Command {
	var out string
	var flags *fillFlags
	cmd := &cobra.Command{
		Use:   "export [-c config.toml | -i FILE.bdx] --as F [-p P] [--keys KINDS] [--funnel F] [--list NAME]... -o OUT",
		Short: "write the lists as a filter of another program",
		Long: `Write the keys of the compiled index as a Bloom filter of another program: ` + strings.Join(filter.Kinds(), ", ") + `.
Its size is that of the keys that are there. guava and bits write OUT, redisbloom
OUT.rbd, redisson OUT.bitmap and OUT.json.

Keys are canonical: someone@bad.example, offers@ (a local-part at any domain),
bad.example. --keys takes some of them; a program that asks for the others then
hears "surely not". Exceptions take nothing away: what is perhaps listed is to be
asked here. Lists in shadow mode, and those that do not refuse, are written only if
--list names them. Entries for clients have no place in a filter of senders.

Ends with 0 when the filter has all keys, 1 when the lists have patterns, which have
none (they are counted on standard error), 2 on an error.`,
		Example: `  blockd filter export --as guava -p 0.01 --funnel utf8 -o bl.bf --list spam
  blockd filter export -i bad.bdx --as redisson -p 0.001 --keys address,domain -o bl`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			what, err := flags.parse(filter.Kinds())
			if err != nil {
				return err
			}
			if out == "" || strings.HasSuffix(out, "/") {
				return usagef("want -o OUT, the file to write")
			}
			var outputs []string
			for _, file := range what.sample.Files(out) {
				outputs = append(outputs, file.Path)
			}
			job, err := what.job(outputs...)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			bar := term.NewBar(cmd.ErrOrStderr())
			defer bar.Clear()
			filled, err := what.fill(ctx, job, bar, func(n uint64) (filter.Filter, error) {
				f, err := filter.New(flags.kind, n, flags.rate)
				if err != nil {
					err = usagef("%v", err)
				}
				return f, err
			})
			if err != nil {
				return err
			}
			if err := writeFilter(ctx, cmd.ErrOrStderr(), bar, filled.Filter, out, shownKeys(filled)); err != nil {
				return err
			}
			return leftOut(cmd, filled)
		}),
	}
	flags = addFillFlags(cmd, "export", filter.Kinds(), "utf8", "utf16")
	cmd.Flags().StringVarP(&out, "output", "o", "", "`OUT`, the file to write, put in place when it is whole")
	return cmd
}

// writeFilter puts the files of a filter in place, and says how large they are.
func writeFilter(ctx context.Context, stderr io.Writer, bar *term.Bar, f filter.Filter, out, keys string) error {
	all, err := export.WriteFiles(ctx, f, out)
	bar.Clear()
	for _, file := range all {
		fmt.Fprintf(stderr, "%s: %s, %s\n", term.Path(file.Path), keys, term.Octets(file.Bytes))
	}
	return err
}
