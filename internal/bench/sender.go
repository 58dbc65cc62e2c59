package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// otherKinds makes an index hold every kind of key that a sender can have, so
// that all of a sender's keys are hashed and asked for.
const otherKinds = "offers@\ntest\nq.test\nq.q.test\nq.q.q.test\n"

// askSenders measures a sender from its text to its matches, as a front door
// asks: parsed, all keys hashed, filter, store.
func askSenders(ctx context.Context, s settings, dir string, k *keys, r *report) error {
	others := filepath.Join(dir, "other-kinds.txt")
	if err := os.WriteFile(others, []byte(otherKinds), 0o600); err != nil {
		return err
	}
	addresses := index.Source{List: "addresses", Path: k.present, Settings: lists.Settings{Format: "plain"}}
	mixed := index.Source{List: "other-kinds", Path: others, Settings: lists.Settings{Format: "plain"}}
	var all []contestant
	for _, c := range []struct {
		name    string
		sources []index.Source
	}{
		{"**lists of all kinds**: address, `local@`, domain, parents", []index.Source{addresses, mixed}},
		{"lists of addresses only: one key a sender", []index.Source{addresses}},
	} {
		draft, err := index.Build(ctx, filepath.Join(dir, "senders.bdx"), c.sources, index.Options{})
		if err != nil {
			return err
		}
		ix := draft.Index()
		if err := ix.Promote(ctx); err != nil {
			return err
		}
		all = append(all, local(c.name+", `LookupBatch` of 256", k, batches(ix)), local(c.name+", `Lookup`", k, lookups(ix)))
		draft.Discard() // the mapping stays
	}
	columns := map[question]int{absent: sendersAbsent, absentTwo: sendersAbsentTwo, listed: sendersListed, listedTwo: sendersListedTwo}
	perSecond := func(secondsEach float64) float64 { return 1 / secondsEach }
	return contest(all, s.rounds, k, &r.senders, columns, perSecond, exactly(k, r))
}

func lookups(ix *index.Index) probe {
	now := time.Now()
	return func(texts []string) (found int, err error) {
		dst := make([]index.Match, 0, 4)
		for _, text := range texts {
			a, err := addr.Parse(text)
			if err != nil {
				return found, err
			}
			matches, err := ix.Lookup(dst, a, now)
			if err != nil {
				return found, err
			}
			found += len(matches)
		}
		return found, nil
	}
}

// together is how many senders are looked up at once, as the front doors for many
// do.
const together = 256

func batches(ix *index.Index) probe {
	now := time.Now()
	return func(texts []string) (found int, err error) {
		var b index.Batch
		senders := make([]addr.Addr, 0, together)
		for part := range slices.Chunk(texts, together) {
			senders = senders[:0]
			for _, text := range part {
				a, err := addr.Parse(text)
				if err != nil {
					return found, err
				}
				senders = append(senders, a)
			}
			n, err := countBatch(ix, &b, senders, now)
			if err != nil {
				return found, err
			}
			found += n
		}
		return found, nil
	}
}

func countBatch(ix *index.Index, b *index.Batch, senders []addr.Addr, now time.Time) (found int, err error) {
	ix.LookupBatch(b, senders, now)
	for i := range senders {
		matches, err := b.Matches(i)
		if err != nil {
			return found, err
		}
		found += len(matches)
	}
	return found, nil
}
