package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"blockd/index/internal/segment"
	"blockd/lists"
	"blockd/mail/addr"
)

// selfTest holds the self-tests of all sources against the draft, as it will be
// looked up in, and returns the sources of which one fails, by row. A source is
// judged by its own entries alone, whatever its list's mode: so blockd lint, which
// sees one file, says the same.
func selfTest(ctx context.Context, ix *Index, rows []ListInfo, tests []segment.Test, at time.Time) (map[int]ListInfo, error) {
	failed := map[int]ListInfo{}
	more := map[int]int{}
	for _, test := range tests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, sender := range test.Senders {
			fault, err := ix.faultOf(test, sender, at)
			if err != nil {
				return nil, err
			}
			row, again := failed[test.Row]
			switch {
			case fault == "":
			case again:
				more[test.Row]++
			default:
				row = rows[test.Row]
				row.Refused = &lists.FileError{Path: row.Source.Path, Line: test.Line, Class: lists.SelfTest, Err: errors.New(fault)}
				failed[test.Row] = row
			}
		}
	}
	for i, row := range failed {
		fe := row.Refused.(*lists.FileError)
		if more[i] > 0 {
			fe.Err = fmt.Errorf("%w; %d more of its tests fail", fe.Err, more[i])
		}
		row.Summary.Verdict, row.Summary.Why, row.Summary.Hash = lists.Refused, fe.Why(), [16]byte{}
		row.Refused, row.NetworkEntries = &SourceError{List: row.Source.List, Err: fe}, 0
		failed[i] = row
	}
	return failed, nil
}

// faultOf says what the source of a test makes of a sender, "" if that is what
// the test asks for.
func (ix *Index) faultOf(test segment.Test, sender addr.Addr, at time.Time) (string, error) {
	matches, err := ix.Lookup(nil, sender, at)
	if err != nil {
		return "", err
	}
	own := slices.DeleteFunc(matches, func(m Match) bool { return m.Row != test.Row })
	exception := slices.IndexFunc(own, func(m Match) bool { return m.Action == lists.Allow })
	blocked := len(own) > 0 && exception < 0
	if blocked == test.Block {
		return "", nil
	}
	if crowded, err := ix.crowded(sender); crowded || err != nil {
		return "", err // what the source says of it may be among what was dropped
	}
	switch {
	case blocked:
		return fmt.Sprintf("<%s> shall pass, and line %d blocks it: %s", sender, own[0].Line, own[0].Name()), nil
	case exception >= 0:
		return fmt.Sprintf("<%s> shall be blocked, and line %d is an exception: %s", sender, own[exception].Line, own[exception].Name()), nil
	}
	return fmt.Sprintf("<%s> shall be blocked, and no line does", sender), nil
}

// crowded reports whether more sources have one of the sender's keys than a
// record holds: some that stand far behind were dropped from it.
func (ix *Index) crowded(sender addr.Addr) (crowded bool, err error) {
	err = ix.mapping.guarded(func() error {
		for _, key := range sender.Keys(nil) {
			c, found, err := ix.find(ix.file.Hash.SumString(key.Text), key.Text)
			if err != nil {
				return err
			}
			if found {
				_, dropped := c.Sources()
				crowded = crowded || dropped
			}
		}
		return nil
	})
	return crowded, err
}
