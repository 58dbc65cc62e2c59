package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// mailDiff is what blockd diff --mail --json prints.
type mailDiff struct {
	List      string     `json:"list"`
	From      time.Time  `json:"from"`
	To        time.Time  `json:"to"`
	Waits     bool       `json:"waits"`
	Since     time.Time  `json:"since"` // of the mail
	Decisions int        `json:"decisions"`
	Refused   int        `json:"refused"` // decisions: by the one content, and not by the other
	Passed    int        `json:"passed"`
	Refuses   []replayed `json:"refuses"` // senders, most mail first
	Passes    []replayed `json:"passes"`
}

// mailFor is how far back mail is looked at.
const mailFor = 7 * 24 * time.Hour

// diffMail says which past decisions would differ.
func diffMail(cmd *cobra.Command, c config.Config, path, list, since string, asJSON bool) error {
	if c.History.Folder == config.None {
		return errNoHistory
	}
	ctx, store := cmd.Context(), c.Kept()
	from, to, waits, err := control.Sides(c, list, since)
	if err != nil {
		return err
	}
	d := mailDiff{List: list, From: from.Time, To: to.Time, Waits: waits, Since: time.Now().Add(-mailFor).UTC().Truncate(time.Second)}
	aside, done, err := asideFolder()
	if err != nil {
		return err
	}
	defer done()
	var by [2]*policy.Checker
	for i, content := range []kept.Content{from.Content, to.Content} {
		if err := store.Unpack(ctx, content); err != nil {
			return err
		}
		if by[i], err = checkerOf(ctx, c, filepath.Join(aside, fmt.Sprint(i)), list, store, content); err != nil {
			return err
		}
	}
	senders := [2]map[string]*replayed{{}, {}}
	_, err = history.Walk(ctx, c.HistoryFolder(), d.Since, func(mail *history.Record) bool {
		d.Decisions++
		was, is := by[0].Past(mail, mail.Recipient), by[1].Past(mail, mail.Recipient)
		switch before, after := blocks(was), blocks(is); {
		case before == after:
		case after:
			d.Refused++
			countMail(senders[0], mail, is)
		default:
			d.Passed++
			countMail(senders[1], mail, was)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return control.HistoryError(c, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d.Refuses, d.Passes = most(senders[0]), most(senders[1])
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(d)
	}
	return d.print(cmd.OutOrStdout())
}

func blocks(d policy.Decision) bool {
	return d.Verdict != nil && d.Verdict.Kind == verdict.Blocked && !d.Exempt
}

// checkerOf decides by one content of a list alone.
func checkerOf(ctx context.Context, c config.Config, path, list string, store *kept.Store, content kept.Content) (*policy.Checker, error) {
	var sources []index.Source
	for _, l := range c.Reload().Lists {
		if l.Name != list {
			continue
		}
		for _, f := range content {
			sources = append(sources, index.Source{List: list, Path: string(f.Path), Settings: l.Settings, Exceptions: l.Exceptions, Kept: store.Whole(f)})
		}
	}
	draft, err := index.Build(ctx, path, sources, index.Options{Memory: c.Reload().Memory})
	if err != nil {
		return nil, err
	}
	defer draft.Discard()
	ix := draft.Index()
	return policy.New(func() *index.Index { return ix }, c.Policy(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()), nil
}

func countMail(all map[string]*replayed, mail *history.Record, by policy.Decision) {
	key := shownAddress(mail.Sender)
	m := by.Verdict.Matches[by.Verdict.Decider]
	at := all[key]
	if at == nil {
		key = strings.Clone(key)
		at = &replayed{Name: key, Last: mail.Time, Entry: fmt.Sprintf("%s (line %d)", m.Name(), m.Line), senders: map[string]bool{key: true}}
		all[key] = at
	}
	at.Mails++
}

func (d *mailDiff) print(w io.Writer) error {
	p := term.NewPaint(w)
	for _, side := range []struct {
		mark string
		all  []replayed
	}{{"+ ", d.Refuses}, {"- ", d.Passes}} {
		for _, r := range side.all {
			text := fmt.Sprintf("%s%s\t%s\tby %s", side.mark, r.Name, term.Counted(r.Mails, "decision"), r.Entry)
			if side.mark == "+ " {
				text = p.Red(text)
			}
			if _, err := fmt.Fprintln(w, text); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "of %s since %s: %s newly refused (+), %s no longer (-)\n", term.Counted(d.Decisions, "decision"), term.Moment(d.Since), term.Grouped(d.Refused), term.Grouped(d.Passed))
	return err
}
