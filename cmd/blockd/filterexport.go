package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/filter"
	"blockd/internal/export"
	"blockd/internal/term"
)

func newFilterExport() *cobra.Command {
	var path, file, kind, out string
	var rate float64
	var names []string
	var flags *keyFlags
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
			switch {
			case !slices.Contains(filter.Kinds(), kind):
				return usagef("want --as, one of %s", strings.Join(filter.Kinds(), ", "))
			case out == "" || strings.HasSuffix(out, "/"):
				return usagef("want -o OUT, the file to write")
			}
			kinds, err := flags.kinds()
			if err != nil {
				return err
			}
			funnel, err := flags.ofKeys(kind)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			empty, err := filter.New(kind, 1, rate)
			if err != nil {
				return usagef("-p: %v", err)
			}
			var outputs []string
			for _, file := range empty.Files(out) {
				outputs = append(outputs, file.Path)
			}
			job, err := exportJob(path, file, names, outputs...)
			if err != nil {
				return err
			}
			bar := term.NewBar(cmd.ErrOrStderr())
			defer bar.Clear()
			filled, err := fillFilter(ctx, job, kinds, funnel, bar, func(n uint64) (filter.Filter, error) {
				f, err := filter.New(kind, n, rate)
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
	configFlag(cmd, &path)
	indexFlag(cmd, &file, "export")
	cmd.Flags().StringVar(&kind, "as", "", "`F`, the kind of filter: "+strings.Join(filter.Kinds(), ", "))
	must(cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(filter.Kinds(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().Float64VarP(&rate, "rate", "p", 0.01, "`P`, the rate of false positives, such as 0.01")
	flags = addKeyFlags(cmd, "utf8", "utf16")
	cmd.Flags().StringArrayVar(&names, "list", nil, "only the list `NAME`; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("list", completion(&path, listNames)))
	cmd.Flags().StringVarP(&out, "output", "o", "", "`OUT`, the file to write, put in place when it is whole")
	return cmd
}

// fillFilter makes a filter of the keys of a job, and shows how far it is.
func fillFilter(ctx context.Context, job export.Job, kinds export.KeyKinds, funnel filter.Funnel, bar *term.Bar, sized func(n uint64) (filter.Filter, error)) (export.Filled, error) {
	stage := "count"
	job.Progress = func(done, total int64) {
		bar.Show(term.Step{Stage: stage, Done: done, Total: total, Things: true})
	}
	return job.Fill(ctx, kinds, funnel, func(n uint64) (filter.Filter, error) {
		stage = "filter"
		return sized(n)
	})
}

// shownKeys says how many keys a filter has.
func shownKeys(filled export.Filled) string {
	if filled.About {
		return fmt.Sprintf("about %.3g million keys", float64(filled.Keys)/1e6)
	}
	return term.Counted(filled.Keys, "key")
}

// leftOut tells of patterns, of which a filter knows nothing.
func leftOut(cmd *cobra.Command, filled export.Filled) error {
	if filled.Patterns == 0 {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s left out: a filter has keys only, and says \"surely not\" about what they alone refuse\n", term.Counted(filled.Patterns, "pattern"))
	return answer(exitFault)
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
