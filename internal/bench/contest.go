package main

import (
	"fmt"
	"sync"
	"time"
)

// question is what a round asks.
type question int

// The questions. The samples that they ask for are those of keys.
const (
	absent    question = iota // all of the clear sample
	listed                    // all of the listed sample
	absentTwo                 // absent, half on each of two threads
	listedTwo
)

// contestant answers questions within this process, or in one that waits for
// them. ask returns how many keys it found, and errUnasked for what it is not
// asked.
type contestant struct {
	name string
	ask  func(question) (found int, err error)
}

// probe counts the keys that are found, or perhaps found.
type probe func(keys []string) (found int, err error)

// local is a contestant of this process.
func local(name string, k *keys, p probe) contestant {
	return contestant{name, func(q question) (int, error) {
		switch q {
		case absent:
			return p(k.clear)
		case listed:
			return p(k.listed)
		case absentTwo:
			return halves(k.clear, p)
		}
		return halves(k.listed, p)
	}}
}

// halves runs p on both halves of keys at once.
func halves(keys []string, p probe) (found int, err error) {
	var other int
	var otherErr error
	var wait sync.WaitGroup
	wait.Go(func() { other, otherErr = p(keys[len(keys)/2:]) })
	found, err = p(keys[:len(keys)/2])
	wait.Wait()
	if err == nil {
		err = otherErr
	}
	return found + other, err
}

// contest lets everybody answer the questions in turn, one round unmeasured.
// figure turns seconds a key into what the table's column of a question shows;
// check sees how many keys each has found.
func contest(all []contestant, rounds int, k *keys, t *table, columns map[question]int, figure func(float64) float64,
	check func(c contestant, q question, found int) error) error {
	for round := range rounds + 1 {
		for q := absent; q <= listedTwo; q++ {
			column, asked := columns[q]
			for _, c := range all {
				if !asked {
					continue
				}
				begun := time.Now()
				found, err := c.ask(q)
				elapsed := time.Since(begun)
				if err == errUnasked {
					continue
				}
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if err := check(c, q, found); err != nil {
					return err
				}
				if round > 0 {
					t.add(c.name, column, figure(elapsed.Seconds()/float64(len(k.clear))))
				}
			}
		}
	}
	return nil
}

// exactly is the check of who may not err.
func exactly(k *keys, r *report) func(contestant, question, int) error {
	return func(c contestant, q question, found int) error {
		want := 0
		if q == listed || q == listedTwo {
			want = len(k.listed)
		}
		if found != want {
			return fmt.Errorf("%s: found %d of %d keys, want %d", c.name, found, len(k.listed), want)
		}
		r.verdicts += len(k.listed)
		return nil
	}
}
