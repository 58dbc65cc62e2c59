package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/reload"
)

// Check answers with its exit code as grep does.
const (
	exitBlocked = 0
	exitNone    = 1
	exitTrouble = 2
)

// checkError is any error of check: its 1 already means "none is blocked".
type checkError struct{ error }

func (e checkError) Unwrap() error { return e.error }
func (e checkError) exitCode() int { return exitTrouble }

func newCheck() *cobra.Command {
	var path, file string
	var asJSON, explain bool
	cmd := &cobra.Command{
		Use:   "check [-c config.toml | -i FILE.bdx] [--json] [--explain] SENDER... | -",
		Short: "say whether senders are listed, where, and what would be answered",
		Long: `Look senders up in the compiled index, by the rules that the daemon refuses by.
With - one sender a line is read from standard input and answered in order; an
empty line is the null sender <>.

A line of output has five columns, separated by tabs: the sender in canonical
form, blocked, allowed, clear or unknown, LIST:LINE, the entry, and the reason.
Clear senders have only the first two. A match of a list in shadow mode is shown
and does not count.

Ends with 0 if a sender is blocked, 1 if none is, 2 on an error.`,
		Example: `  blockd check someone@bad.example
  blockd check --explain someone@bad.example
  blockd check -i bad.bdx --json - <senders.txt | jq -r 'select(.verdict == "blocked").input'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want a SENDER, or - to read them from standard input")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && cmd.Flags().Changed("config") {
				return usagef("want -c or -i, not both")
			}
			code, err := check(cmd, path, file, args, asJSON, explain)
			if err != nil {
				return checkError{err}
			}
			if code != exitBlocked {
				return answer(code)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&file, "index", "i", "", "compiled index `file` to ask, with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&explain, "explain", false, "show people how the answer comes about")
	return cmd
}

func check(cmd *cobra.Command, path, file string, senders []string, asJSON, explain bool) (code int, err error) {
	ctx := cmd.Context()
	var settings policy.Settings
	var sources []index.Source // as configured; nil with -i
	if file == "" {
		c, err := load(path)
		if err != nil {
			return 0, err
		}
		file, settings = c.Index.Path, c.policy()
		if sources, err = reload.Sources(c.reload().Lists); err != nil {
			return 0, err
		}
	}
	ix, err := index.Open(file)
	if errors.Is(err, fs.ErrNotExist) && sources != nil {
		return 0, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile -c %s", shownPath(file), path)
	} else if err != nil {
		return 0, err
	}
	if stale := staleness(ctx, ix, sources); stale != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of %s\n", cmd.CommandPath(), stale, shownPath(file))
	}
	live := func() *index.Index { return ix }
	// Its log and metrics are a daemon's; here the output says it all.
	checker := policy.New(live, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())

	w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	print := printPlain
	switch {
	case asJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		print = func(_ io.Writer, input string, v policy.Verdict) error {
			return enc.Encode(answerOf(input, v, explain))
		}
	case explain:
		p := newPaint(cmd.OutOrStdout())
		print = func(w io.Writer, input string, v policy.Verdict) error {
			return explanation{w, p, ix, checker}.print(input, v)
		}
	}
	code = exitNone
	name := "" // the first that may be meant as a domain
	ask := func(q question) error {
		var v policy.Verdict
		if q.long {
			v = policy.Verdict{Kind: policy.Unknown, Decider: -1, Shadow: -1, Generation: ix.Generation(),
				Err: &addr.Error{Class: addr.TooLong, Input: q.text[:320], Reason: fmt.Sprintf("a line of more than %d octets", maxSender)}}
		} else {
			v = checker.Sender(q.text)
		}
		if v.Kind == policy.Blocked {
			code = exitBlocked
		}
		if err := print(w, q.text, v); err != nil {
			return err
		}
		if v.Internal() {
			return v.Err // no further answer would be worth anything
		}
		if isName(q.text) {
			name = cmp.Or(name, q.text)
		}
		return nil
	}
	err = each(ctx, senders, cmd.InOrStdin(), w, ask)
	if err := errors.Join(err, w.Flush()); err != nil {
		return 0, err
	}
	if name != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s is a sender without a domain; to ask about the domain, ask for x@%[2]s\n", cmd.CommandPath(), visible(name))
	}
	return code, nil
}

// isName reports a text that is more likely meant as a domain than as a
// local-part alone, which is what it is as a sender.
func isName(text string) bool {
	return !strings.ContainsAny(text, `@<"`) && strings.Contains(text, ".")
}

// staleness says in what the index is not what the configuration asks for now;
// "" if it is, or if nothing was configured. A list that is as long as it was
// and older than the index is not read again.
func staleness(ctx context.Context, ix *index.Index, sources []index.Source) string {
	rows := ix.Lists()
	for i, s := range sources {
		if len(rows) != len(sources) || !rows[i].Source.Equal(s) {
			return "the lists are configured otherwise by now"
		}
		if rows[i].Guard != s.Settings.Guard.ID() {
			return "what no entry may cover is configured otherwise by now"
		}
		was := rows[i].Summary
		if info, err := os.Stat(s.Path); err == nil && info.Size() == was.Size && info.ModTime().Before(ix.Built()) {
			continue
		}
		hash, err := lists.HashFile(ctx, s.Path)
		if err != nil && !s.Optional {
			return err.Error()
		}
		if hash != was.Hash {
			return shownPath(s.Path) + " has changed since"
		}
	}
	return ""
}

// maxSender bounds a line of standard input. The longest legal sender has 254
// octets; a longer line is read to its end, and is no sender.
const maxSender = 16 << 10

// question is a text to be looked up, or the beginning of one that is too long.
type question struct {
	text string
	long bool
}

// each asks about every sender of the command line, and about the lines of stdin
// in the place of "-".
func each(ctx context.Context, senders []string, stdin io.Reader, w *bufio.Writer, ask func(question) error) error {
	for _, s := range senders {
		err := ctx.Err()
		if s == "-" {
			err = eachLine(ctx, stdin, w, ask)
		} else if err == nil {
			err = ask(question{text: s})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachLine flushes what was answered whenever the input may stall, so that a
// program can write a line and wait for the answer.
func eachLine(ctx context.Context, stdin io.Reader, w *bufio.Writer, ask func(question) error) error {
	r := bufio.NewReaderSize(stdin, maxSender)
	for {
		if waiting, _ := r.Peek(r.Buffered()); bytes.IndexByte(waiting, '\n') < 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		line, err := r.ReadSlice('\n')
		q := question{
			text: string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))),
			long: errors.Is(err, bufio.ErrBufferFull),
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return err
		}
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := ask(q); err != nil {
			return err
		}
	}
}

// deciding returns the match to show for a verdict: the one that decided, or
// else the one that would have, had its list counted.
func deciding(v policy.Verdict) (m index.Match, shadow, ok bool) {
	switch {
	case v.Decider >= 0:
		return v.Matches[v.Decider], false, true
	case v.Shadow >= 0:
		return v.Matches[v.Shadow], true, true
	}
	return index.Match{}, false, false
}

// printPlain prints the five columns. Nothing in them has a tab or a line end.
func printPlain(w io.Writer, input string, v policy.Verdict) error {
	where, entry, reason := "", "", ""
	if m, shadow, ok := deciding(v); ok {
		where = fmt.Sprintf("%s:%d", v.Lists[m.Row].Source.List, m.Line)
		entry, reason = m.Key.Text, m.Reason
		if shadow {
			reason = strings.TrimSpace("shadow " + reason)
		}
	}
	if v.Err != nil {
		reason = v.Err.Error()
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", shownSender(input, v), v.Kind, where, visible(entry), visible(reason))
	return err
}

// jsonAnswer is an answer in the form that HTTP has too.
type jsonAnswer struct {
	policy.Answer
	Explain *policy.Explanation `json:"explain,omitempty"`
}

func answerOf(input string, v policy.Verdict, explain bool) jsonAnswer {
	a := jsonAnswer{Answer: v.Answer(input)}
	if explain {
		e := v.Explain()
		a.Explain = &e
	}
	return a
}

// shownSender is the canonical sender; "<>" for the null sender, and for what is
// no sender the text that was asked.
func shownSender(input string, v policy.Verdict) string {
	switch {
	case v.Kind == policy.Unknown && v.Sender.Null():
		return visible(input[:min(len(input), 320)])
	case v.Sender.Null():
		return "<>"
	}
	return visible(v.Sender.String())
}
