package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"blockd/bloom/filter"
	"blockd/doors/export"
	"blockd/internal/term"
)

func newFilterCompare() *cobra.Command {
	var against string
	var names []string
	var asJSON bool
	var flags *keyFlags
	var at *redisFlags
	cmd := &cobra.Command{
		Use:   "compare --against FILE.bdx [--keys KINDS] [--funnel F] [--list NAME]... [--json] FILTER",
		Short: "hold a filter against an index",
		Long: `Ask a filter for every key of an index, and for a million keys that are in no list. A
key of the index that is absent is a false negative: the filter is older than the
lists, lacks some of them, or got its keys in another way. The first of them are shown
on standard error. The rate is the share of absent keys that are perhaps.

Ends with 0 if there are no false negatives, 1 if there are some, 2 on an error.`,
		Example: `  blockd filter compare bl.bf --against bad.bdx
  blockd filter compare bl.rbd --against bad.bdx --keys address,domain --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one FILTER to compare")
			}
			return nil
		},
		RunE: answering(func(cmd *cobra.Command, args []string) error {
			if against == "" {
				return usagef("want --against FILE.bdx")
			}
			kinds, err := flags.kinds()
			if err != nil {
				return err
			}
			f, err := at.open(cmd, args[0])
			if err != nil {
				return err
			}
			funnel, err := flags.ofKeys(f.Kind())
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			job, err := exportJob("", against, names)
			if err != nil {
				return err
			}
			bar := term.NewBar(cmd.ErrOrStderr())
			defer bar.Clear()
			job.Progress = func(done, total int64) {
				bar.Show(term.Step{Stage: "compare", Done: done, Total: total, Things: true})
			}
			c, err := compareFilter(ctx, f, funnel, job, kinds)
			if err != nil {
				return err
			}
			bar.Clear()
			return c.print(cmd, asJSON)
		}),
	}
	cmd.Flags().StringVar(&against, "against", "", "compiled index `file` that has the keys")
	must(cmd.MarkFlagFilename("against", "bdx"))
	flags = addKeyFlags(cmd, filter.Funnels()[:2]...)
	cmd.Flags().StringArrayVar(&names, "list", nil, "only the list `NAME`; may be repeated")
	at = addRedisFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// comparison is what came out.
type comparison struct {
	Keys           int     `json:"keys"`
	FalseNegatives int     `json:"false_negatives"`
	Asked          int     `json:"asked"` // absent keys
	Rate           float64 `json:"rate"`
	keys, absent   distinct
	missing        []string // the first of absent
	octets         []byte
	err            error
}

// compareFilter asks f for the keys of a job, and for absent ones.
func compareFilter(ctx context.Context, f filter.Filter, funnel filter.Funnel, job export.Job, kinds export.KeyKinds) (*comparison, error) {
	var c comparison
	has := c.asking(ctx, f, funnel)
	if _, err := job.Keys(ctx, kinds, func(key string) { c.key(key, has(key)) }); err != nil {
		return nil, err
	}
	c.Keys, c.FalseNegatives = c.keys.count(), c.absent.count()
	c.measure(has)
	return &c, c.err
}

// asking returns a function that asks f for a key. After an error or the end of ctx it
// asks no more: a filter of many links can take long over each key.
func (c *comparison) asking(ctx context.Context, f filter.Filter, funnel filter.Funnel) func(key string) bool {
	return func(key string) bool {
		if c.err == nil {
			c.err = ctx.Err()
		}
		if c.err == nil {
			c.octets, c.err = funnel(c.octets[:0], key)
		}
		return c.err == nil && f.Has(c.octets)
	}
}

// shownMissing is how many false negatives are shown.
const shownMissing = 10

// key notes a key of the index, which may come more than once.
func (c *comparison) key(key string, has bool) {
	if c.keys.add(key); has {
		return
	}
	if c.absent.add(key); len(c.missing) < shownMissing && !slices.Contains(c.missing, key) {
		c.missing = append(c.missing, key)
	}
}

// measure asks for made-up addresses below .invalid, which no list has (RFC 2606, section 2).
// They are the same each time.
func (c *comparison) measure(has func(key string) bool) {
	const absent = 1_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	perhaps := 0
	var key []byte
	for range absent {
		key = strconv.AppendUint(key[:0], rng.Uint64(), 36)
		key = strconv.AppendUint(append(key, '@'), rng.Uint64(), 36)
		if has(string(append(key, ".invalid"...))) {
			perhaps++
		}
	}
	c.Asked, c.Rate = absent, float64(perhaps)/absent
}

func (c *comparison) print(cmd *cobra.Command, asJSON bool) (err error) {
	for _, key := range c.missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s is absent\n", cmd.CommandPath(), term.Visible(key))
	}
	if asJSON {
		err = term.JSON(cmd.OutOrStdout(), c)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %s\n%s asked, %s of them perhaps\n", term.Counted(c.Keys, "key"),
			term.Counted(c.FalseNegatives, "false negative"), term.Counted(c.Asked, "absent key"), shownRate(c.Rate))
	}
	if err == nil && c.FalseNegatives > 0 {
		return answer(exitFault)
	}
	return err
}

// distinct counts different keys, by their hashes.
type distinct []uint64

func (d *distinct) add(key string) { *d = append(*d, xxh3.HashString(key)) }

func (d *distinct) count() int {
	slices.Sort(*d)
	*d = slices.Compact(*d)
	return len(*d)
}
