package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
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
		all = append(all, local(c.name, k, lookups(draft.Index())))
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
