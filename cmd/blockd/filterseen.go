package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/cmd/blockd/internal/config"
	"blockd/internal/spelling"
	"blockd/records/firstseen"
)

func newFilterSeen() *cobra.Command {
	var rotateAt float64
	var maxAge, size string
	cmd := &cobra.Command{
		Use:   "seen [--rotate-at F] [--max-age T] [--size N] FILE.bds add-if-absent",
		Short: "print the keys that have not come before",
		Long: `Read keys from standard input, one a line, print those that have not come before, and
remember them in FILE.bds. A line is a key, octet for octet.

The file is a Bloom filter of two halves that take turns: when the younger one is full,
or old, the older one is forgotten. So it never grows, and never forgets everything. It
remembers a key for --max-age after it last came, and for twice as long at most; or
until so many others have come that both halves were full. A half has room for a key in
one and a half octets: 64 MiB for 23 million keys in each. Of the keys that are new,
about 1 in 100 is taken for one that has come.

The file is saved when the input ends, each minute while it lasts, and on a signal to
end. After an error on standard output it is not: what was not printed comes again. One
process has a file at a time. A file that is no such set is put aside as
FILE.bds.unreadable, with a note, and an empty one begins.`,
		Example: `  blockd filter seen urls.bds add-if-absent <urls.txt >new-urls.txt
  tail -F senders.log | blockd filter seen --max-age 30d senders.bds add-if-absent`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("want FILE.bds and add-if-absent")
			}
			if args[1] != "add-if-absent" {
				return usagef("unknown word %q%s; want add-if-absent", args[1], spelling.Hint(args[1], "", []string{"add-if-absent"}))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := seenSettings(rotateAt, maxAge, size)
			if err != nil {
				return err
			}
			s, anew, err := firstseen.Open(args[0], set)
			if err != nil {
				return err
			}
			defer s.Close()
			if anew != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %v\n", cmd.CommandPath(), anew)
			}
			return addIfAbsent(cmd, s)
		},
	}
	cmd.Flags().Float64Var(&rotateAt, "rotate-at", 0.5, "`F`, the share of bits from which a half is full, 0.01 to 0.9; more keys fit, and more seem to have come")
	cmd.Flags().StringVar(&maxAge, "max-age", "", "`T`, how long a half takes new keys, such as 30d; without it until it is full")
	cmd.Flags().StringVar(&size, "size", "", "`N`, the memory for both halves, such as \"300 MiB\"; without it that of the file, 64 MiB for a new one")
	return cmd
}

// seenSettings reads the flags.
func seenSettings(rotateAt float64, maxAge, size string) (set filter.SeenSettings, err error) {
	if !(rotateAt >= 0.01 && rotateAt <= filter.MaxFill) {
		return set, usagef("--rotate-at: want a share from 0.01 to %g, have %g", filter.MaxFill, rotateAt)
	}
	set.RotateAt = rotateAt
	if maxAge != "" {
		if set.MaxAge, err = config.ParseDuration(maxAge); err != nil || set.MaxAge < time.Minute {
			return set, usagef("--max-age: want a time such as 30d or 12h, 1m or more, have %q", maxAge)
		}
	}
	if size != "" {
		var octets config.Octets
		if err := octets.UnmarshalText([]byte(size)); err != nil {
			return set, usagef("--size: %v", err)
		}
		if set.Octets = int64(octets); set.Octets < 64<<10 || set.Octets > filter.MaxSeen {
			return set, usagef("--size: want 64 KiB to 1 GiB, have %s", octets)
		}
	}
	return set, nil
}

// addIfAbsent copies new keys from standard input to standard output. What was printed is saved, also
// after an error of the input or a signal.
func addIfAbsent(cmd *cobra.Command, s *firstseen.Set) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	out := bufio.NewWriterSize(cmd.OutOrStdout(), blockSize)
	blocks, input := make(chan string), make(chan error, 1)
	go func() { // a read cannot be interrupted
		input <- eachBlock(cmd.InOrStdin(), func(lines []byte) error {
			select {
			case blocks <- string(lines):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	long := 0
	saved := time.NewTicker(firstseen.SaveEvery)
	defer saved.Stop()
	for {
		select {
		case lines := <-blocks:
			n, err := printNew(out, s, lines)
			if err != nil {
				return err
			}
			long += n
		case <-saved.C:
			if err := s.Save(); err != nil {
				return err
			}
		case err := <-input:
			if long > 0 && err == nil {
				err = fmt.Errorf("%d lines of %d octets or more were left out", long, maxSender)
			}
			return errors.Join(err, s.Save())
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.Save())
		}
	}
}

// printNew prints the new keys of some lines, at once: the reader of a pipe waits for them. It leaves out
// lines that are too long, and counts them.
func printNew(out *bufio.Writer, s *firstseen.Set, lines string) (long int, err error) {
	for line := range strings.Lines(lines) {
		key := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		switch {
		case len(key) >= maxSender:
			long++
		case key != "" && s.AddIfAbsent(key):
			out.WriteString(key) // Flush has the error
			out.WriteByte('\n')
		}
	}
	return long, out.Flush()
}
