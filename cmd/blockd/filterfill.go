package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/doors/export"
	"blockd/internal/term"
)

// fillFlags are the flags that say which filter the lists become.
type fillFlags struct {
	*keyFlags
	path, file string // the configuration, or an index
	kind       string
	rate       float64
	lists      []string
}

// addFillFlags adds them to a command that makes filters of some kinds; doing is what indexFlag says of it.
func addFillFlags(cmd *cobra.Command, doing string, kinds []string, funnels ...string) *fillFlags {
	f := &fillFlags{}
	configFlag(cmd, &f.path)
	indexFlag(cmd, &f.file, doing)
	cmd.Flags().StringVar(&f.kind, "as", "", "`F`, the kind of filter: "+strings.Join(kinds, ", "))
	must(cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().Float64VarP(&f.rate, "rate", "p", 0.01, "`P`, the rate of false positives, such as 0.01")
	f.keyFlags = addKeyFlags(cmd, funnels...)
	cmd.Flags().StringArrayVar(&f.lists, "list", nil, "only the list `NAME`; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("list", completion(&f.path, listNames)))
	return f
}

// filling is a filter to be made of lists.
type filling struct {
	flags  *fillFlags
	kinds  export.KeyKinds
	funnel filter.Funnel
	sample filter.Filter // one of the kind, for one key
}

// parse reads the flags. kinds are those that the command makes.
func (f *fillFlags) parse(kinds []string) (w filling, err error) {
	if !slices.Contains(kinds, f.kind) {
		return w, usagef("want --as, one of %s", strings.Join(kinds, ", "))
	}
	w.flags = f
	if w.kinds, err = f.kinds(); err != nil {
		return w, err
	}
	if w.funnel, err = f.ofKeys(f.kind); err != nil {
		return w, err
	}
	if w.sample, err = filter.New(f.kind, 1, f.rate); err != nil {
		return w, usagef("-p: %v", err)
	}
	return w, nil
}

// job is what exportJob makes of the flags.
func (w *filling) job(outputs ...string) (export.Job, error) {
	return exportJob(w.flags.path, w.flags.file, w.flags.lists, outputs...)
}

// fill makes the filter of the keys of a job, and shows how far it is.
func (w *filling) fill(ctx context.Context, job export.Job, bar *term.Bar, sized func(n uint64) (filter.Filter, error)) (export.Filled, error) {
	stage := "count"
	job.Progress = func(done, total int64) {
		bar.Show(term.Step{Stage: stage, Done: done, Total: total, Things: true})
	}
	return job.Fill(ctx, w.kinds, w.funnel, func(n uint64) (filter.Filter, error) {
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
