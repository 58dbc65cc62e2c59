package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/doors/export"
	"blockd/internal/term"
	"blockd/mail/addr"
	"blockd/policy/printout"
)

func newFilterCheck() *cobra.Command {
	var raw, asJSON bool
	var flags *keyFlags
	var at *redisFlags
	cmd := &cobra.Command{
		Use:   "check [--keys KINDS] [--funnel F] [--raw] [--json] FILTER SENDER... | -",
		Short: "ask a filter about senders",
		Long: `Ask a filter about senders as a program must: for the address, its local-part at any
domain, its domain and each domain above it. A name such as bulk.test or @bulk.test
asks for the domain and those above. With - one sender a line is read from standard
input and answered in order. With --raw a text is one key, octet for octet; so it is
with --funnel int or long.

FILTER is a file, NAME of NAME.bitmap beside NAME.json (Redisson), or NAME of NAME.rbd, a
folder of NAME-ITERATOR.chunk files or FOLDER/NAME (RedisBloom), or one in a Redis, as
redis://HOST#NAME, which is read whole; URLs are those of push. The contents say which
kind it is, and if they do not, the ending: .bf, .rbd, .bitmap or .bits. Only the
operator knows how keys got into a Guava filter: --funnel says it.

A line of output has two columns, separated by a tab: what was asked, and perhaps or
absent. A text that is no sender, such as an IP address, is perhaps: no filter can
clear it.

Ends with 0 if any is perhaps, 1 if none is, 2 on an error.`,
		Example: `  blockd filter check bl.bf someone@bad.example
  blockd filter check --funnel utf16 --raw bl.bf Someone@Bad.Example
  blockd filter check dump.rbd - <senders.txt | grep -c perhaps`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("want a FILTER and a SENDER, or - to read them from standard input")
			}
			return nil
		},
		RunE: answering(func(cmd *cobra.Command, args []string) error {
			kinds, err := flags.kinds()
			if err != nil {
				return err
			}
			f, err := at.open(cmd, args[0])
			if err != nil {
				return err
			}
			asker := filterAsker{filter: f, kinds: kinds, raw: raw || flags.numbers(), json: asJSON}
			if asker.funnel, err = flags.of(f.Kind()); err != nil {
				return err
			}
			return filterCheck(cmd, &asker, args[1:])
		}),
	}
	flags = addKeyFlags(cmd, filter.Funnels()...)
	cmd.Flags().BoolVar(&raw, "raw", false, "take each text as one key, as it is")
	at = addRedisFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// nonePerhaps is an answer of filter check.
const nonePerhaps = answer(1)

func filterCheck(cmd *cobra.Command, asker *filterAsker, texts []string) error {
	out := cmd.OutOrStdout()
	for _, text := range texts {
		if text == "-" {
			if err := eachBlock(cmd.InOrStdin(), func(block []byte) error {
				return errors.Join(asker.answerLines(out, string(block)), cmd.Context().Err())
			}); err != nil {
				return err
			}
			continue
		}
		line, err := asker.answer(nil, text)
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	if !asker.any {
		return nonePerhaps
	}
	return nil
}

// filterAsker asks one filter.
type filterAsker struct {
	filter filter.Filter
	funnel filter.Funnel
	kinds  export.KeyKinds
	raw    bool // a text is one key
	json   bool
	any    bool // was perhaps

	keys            []addr.Key
	octets, answers []byte
}

// answerLines writes the answers about some lines. What was answered before an error is written.
func (a *filterAsker) answerLines(out io.Writer, lines string) (err error) {
	a.answers = a.answers[:0]
	for line := range strings.Lines(lines) {
		if a.answers, err = a.answer(a.answers, strings.TrimSuffix(line, "\n")); err != nil {
			break
		}
	}
	_, writing := out.Write(a.answers)
	return cmp.Or(err, writing)
}

// answer appends the line of a text.
func (a *filterAsker) answer(dst []byte, text string) ([]byte, error) {
	if !a.raw {
		text = strings.TrimSuffix(text, "\r")
	}
	perhaps, err := a.perhaps(text)
	if err != nil {
		return dst, err
	}
	a.any = a.any || perhaps
	word := "absent"
	if perhaps {
		word = "perhaps"
	}
	if a.json {
		var line strings.Builder
		err := term.JSON(&line, struct {
			Input  string `json:"input"`
			Answer string `json:"answer"`
		}{text, word})
		return append(dst, line.String()...), err
	}
	return fmt.Appendf(dst, "%s\t%s\n", term.Visible(text), word), nil
}

func (a *filterAsker) perhaps(text string) (bool, error) {
	if len(text) >= maxSender {
		return true, nil // its end was not read
	}
	if a.raw {
		return a.has(text)
	}
	keys, ok := keysOf(a.keys[:0], text)
	a.keys = keys
	if !ok {
		return true, nil
	}
	for _, key := range keys {
		if !a.kinds.Want(key) {
			continue
		}
		if has, err := a.has(key.Text); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

func (a *filterAsker) has(key string) (has bool, err error) {
	if a.octets, err = a.funnel(a.octets[:0], key); err != nil {
		return false, err
	}
	return a.filter.Has(a.octets), nil
}

// keysOf appends the keys that lists may hold a sender or a domain under. Of a text that is
// no sender they are those of all its readings; ok is false if it has none, and for a
// client.
func keysOf(keys []addr.Key, text string) (_ []addr.Key, ok bool) {
	if _, client := printout.ClientOf(text); client {
		return keys, false
	}
	if name, domain := printout.DomainOf(text); domain {
		key, err := addr.DomainKey(name)
		if err != nil {
			return keys, false
		}
		return key.AndParents(keys), true
	}
	if a, err := addr.Parse(text); err == nil && (a.Domain() != "" || a.Null()) {
		return a.Keys(keys), true
	}
	readings := addr.Readings(text)
	for _, r := range readings {
		if r.Domain.Text != "" {
			keys = r.Domain.AndParents(keys)
			continue
		}
		for _, key := range r.Addr.Keys(nil) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys, len(readings) > 0 || localOnly(text)
}

// localOnly reports whether text is a path without a domain ("root"), which is legal and
// has no keys.
func localOnly(text string) bool {
	a, err := addr.Parse(text)
	return err == nil && a.Domain() == ""
}
