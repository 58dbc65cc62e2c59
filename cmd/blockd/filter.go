package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/doors/export"
	"blockd/internal/spelling"
)

func newFilter() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter size|export|push|check|compare|seen",
		Short: "work with the Bloom filters of other programs",
		Long: `Write what the lists hold as a Bloom filter of another program, ask such a filter,
hold it against an index, or tell how large one is: Guava's BloomFilter.writeTo,
RedisBloom's BF.SCANDUMP, Redisson's RBloomFilter, and bits-and-blooms for Go. push puts
one into a Redis; seen remembers in a file which keys have come.

A filter says "perhaps" or "surely not". Ask blockd about what is perhaps listed:
docs/filters.md says which keys a program must look up.`,
		Example: `  blockd filter size -n 10M -p 0.001
  blockd filter export --as guava -p 0.01 -o bl.bf
  blockd filter push --as redisson redis://localhost bl
  blockd filter check bl.bf someone@bad.example
  blockd filter compare bl.bf --against bad.bdx
  blockd filter seen urls.bds add-if-absent <urls.txt`,
		Args: cobra.ArbitraryArgs, // RunE says better what is wrong with them
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want size, export, push, check, compare or seen")
			}
			return usagef("unknown command %q%s", args[0], spelling.Hint(args[0], "", []string{"size", "export", "push", "check", "compare", "seen"}))
		},
	}
	for _, sub := range []*cobra.Command{newFilterSize(), newFilterExport(), newFilterPush(), newFilterCheck(), newFilterCompare(), newFilterSeen()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

// keyFlags are the flags that say which keys are in a filter, and as which octets.
type keyFlags struct {
	keys, funnel string
}

func addKeyFlags(cmd *cobra.Command, funnels ...string) *keyFlags {
	f := &keyFlags{}
	cmd.Flags().StringVar(&f.keys, "keys", "address,local,domain", "`KINDS` of keys: some of address, local, domain")
	cmd.Flags().StringVar(&f.funnel, "funnel", "utf8", "`F`, how a Guava filter gets its keys: "+strings.Join(funnels, ", "))
	must(cmd.RegisterFlagCompletionFunc("funnel", cobra.FixedCompletions(funnels, cobra.ShellCompDirectiveNoFileComp)))
	return f
}

// kinds are those of --keys.
func (f *keyFlags) kinds() (export.KeyKinds, error) {
	kinds, err := export.ParseKeyKinds(f.keys)
	if err != nil {
		return kinds, usagef("--keys: %v", err)
	}
	return kinds, nil
}

// numbers reports whether --funnel takes numbers, which no sender is.
func (f *keyFlags) numbers() bool { return f.funnel == "int" || f.funnel == "long" }

// of returns --funnel for a kind of filter. Others than Guava take octets.
func (f *keyFlags) of(kind string) (filter.Funnel, error) {
	funnel, err := filter.ParseFunnel(f.funnel)
	if err != nil {
		return nil, usagef("--funnel: %v", err)
	}
	if kind != "guava" && f.funnel != "utf8" {
		return nil, usagef("--funnel %s goes with Guava; this filter is of kind %s", f.funnel, kind)
	}
	return funnel, nil
}

// ofKeys is of for the keys of lists.
func (f *keyFlags) ofKeys(kind string) (filter.Funnel, error) {
	if f.numbers() {
		return nil, usagef("--funnel %s takes numbers, and keys of lists are texts: utf8 or utf16", f.funnel)
	}
	return f.of(kind)
}

// interruptible ends a long command by a signal.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
}

// shownRate shows a share as people read it.
func shownRate(p float64) string { return fmt.Sprintf("%.3g %%", p*100) }
