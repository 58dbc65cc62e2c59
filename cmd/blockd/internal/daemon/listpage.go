package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	newlist "blockd/cmd/blockd/internal/setup"
	"blockd/doors/httpapi"
	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/sources/catalogue"
)

// The bounds of a replay over HTTP: how long it takes, how it shares a core with mail, and the names that it counts.
const (
	replayFor   = 20 * time.Second
	replayWorks = 5 * time.Millisecond
	replayRests = 5 * time.Millisecond
	replayNames = 20_000
	replayShown = 100
)

// replay holds a list, as it serves, against past mail.
func (d *daemon) replay(ctx context.Context, list string, since time.Time) (httpapi.Replay, error) {
	r := replay{list: list, senders: map[string]*httpapi.ReplayRow{}, domains: map[string]*httpapi.ReplayRow{}, entries: map[string]*httpapi.ReplayRow{}}
	r.Complete, r.Since = true, time.Now().UTC()
	serves := slices.ContainsFunc(d.lists.Live().Lists(), func(l index.ListInfo) bool { return l.Source.List == list })
	switch {
	case d.past == nil:
		return r.Replay, fmt.Errorf("list %s %w: no history is kept", list, httpapi.ErrNotReplayed)
	case !serves:
		return r.Replay, fmt.Errorf("list %s %w: it is not in the index", list, httpapi.ErrNotReplayed)
	}
	rules := *d.setup.rules.Load()
	rules.History, rules.Decided, rules.Repeats, rules.Completed, rules.Wants, rules.Stores = nil, nil, nil, nil, nil, nil
	rules.FirstSeen, rules.Correspondents, rules.Auth.Resolver = policy.FirstSeen{}, policy.Correspondents{}, nil
	r.checker = policy.New(d.lists.Live, rules, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if oldest := time.Now().Add(-time.Duration(d.config.History.Keep)); since.Before(oldest) {
		since = oldest
	}
	d.past.Settle()
	end, works := time.Now().Add(replayFor), time.Now()
	var err error
	r.Damaged, err = history.Walk(ctx, d.config.HistoryFolder(), since, func(mail *history.Record) bool {
		if now := time.Now(); now.Sub(works) > replayWorks {
			if now.After(end) {
				r.Complete = false
				return false
			}
			select {
			case <-time.After(replayRests):
			case <-ctx.Done():
				return false
			}
			works = time.Now()
		}
		r.take(mail)
		return true
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	r.Senders = len(r.senders)
	r.BySender, r.ByDomain, r.ByEntry = mostReplayed(r.senders), mostReplayed(r.domains), mostReplayed(r.entries)
	return r.Replay, cmp.Or(err, ctx.Err())
}

// replay is one that is under way.
type replay struct {
	httpapi.Replay
	list                      string
	checker                   *policy.Checker
	senders, domains, entries map[string]*httpapi.ReplayRow
}

func (r *replay) take(mail *history.Record) {
	if mail.Outcome == history.Listed {
		return
	}
	r.Decisions++
	if mail.Time.Before(r.Since) {
		r.Since = mail.Time
	}
	switch {
	case mail.Outcome == policy.Refuse.String() && mail.List == r.list:
		r.RefusedThen += int(mail.Times())
		return
	case mail.Outcome != policy.Accept.String() && mail.Outcome != policy.Mark.String() || mail.Source != "":
		return
	}
	r.Accepted++
	now := r.checker.Past(mail, mail.Recipient)
	v := now.Verdict
	switch {
	case v == nil:
	case v.Internal():
		r.Unchecked++
	default:
		r.judge(mail, now, v)
	}
}

// judge counts mail on which a list has an entry.
func (r *replay) judge(mail *history.Record, now policy.Decision, v *verdict.Verdict) {
	blocks := false
	for i := range v.Matches {
		blocks = blocks || v.ListName(i) == r.list && !v.Matches[i].Action.Allows()
	}
	by := v.Shadow
	if v.Kind == verdict.Blocked {
		by = v.Decider
	}
	switch {
	case !blocks:
	case now.Exempt:
		r.Exempt++
	case by >= 0 && v.ListName(by) == r.list:
		r.Refused++
		r.count(r.senders, cmp.Or(mail.Sender, "<>"), mail)
		r.count(r.domains, cmp.Or(mail.Sender[strings.LastIndexByte(mail.Sender, '@')+1:], "<>"), mail)
		r.count(r.entries, v.Matches[by].Name(), mail)
	case v.Overruled(r.list), v.Frees():
		r.Allowed++
	case v.Kind == verdict.Blocked:
		r.AlreadyListed++
	default:
		r.NotCounted++
	}
}

func (r *replay) count(all map[string]*httpapi.ReplayRow, name string, mail *history.Record) {
	row := all[name]
	if row == nil {
		if len(all) >= replayNames {
			r.Complete = false
			return
		}
		row = &httpapi.ReplayRow{Name: strings.Clone(name), Last: mail.Time}
		all[row.Name] = row
	}
	row.Mails++
}

// mostReplayed are those with the most mail.
func mostReplayed(all map[string]*httpapi.ReplayRow) []httpapi.ReplayRow {
	rows := []httpapi.ReplayRow{}
	for _, row := range slices.SortedFunc(maps.Values(all), func(a, b *httpapi.ReplayRow) int {
		return cmp.Or(cmp.Compare(b.Mails, a.Mails), strings.Compare(a.Name, b.Name))
	}) {
		if len(rows) < replayShown {
			rows = append(rows, *row)
		}
	}
	return rows
}

// listSettings says how the configuration has a list read.
func (d *daemon) listSettings(list string) (lists.Settings, bool) {
	c := d.setup.now.Load()
	l := listOf(*c, list)
	return c.ListSettings(l), l.Name != ""
}

// offer is what lists there could be.
func (d *daemon) offer() *httpapi.Offer {
	return &httpapi.Offer{
		Lists: func() (offered []httpapi.OfferedList, err error) {
			all, err := catalogue.Lists()
			for _, l := range all {
				has := slices.ContainsFunc(d.setup.now.Load().Lists, func(c config.List) bool { return c.Name == l.Name || c.URL == l.URL })
				offered = append(offered, httpapi.OfferedList{Name: l.Name, What: l.What, URL: l.URL, Licence: l.Licence, Format: l.Format, Cadence: l.Cadence,
					Complaints: l.Complaints, Judged: l.Judged.String(), Entries: l.Entries, Refused: l.Refused, Configured: has})
			}
			return offered, err
		},
		Text: func(what string) (n httpapi.NewList, err error) {
			if _, err := catalogue.Named(what); err == nil {
				n.Command = "blockd subscribe " + what
			} else if !strings.HasPrefix(what, "https://") {
				return n, fmt.Errorf("what: want a name of /v1/catalogue, or an https address, have %q", what)
			}
			taken := []string{}
			for _, l := range d.setup.now.Load().Lists {
				if l.Name == what || l.URL == what {
					return n, fmt.Errorf("what: the configuration has it already, as %q", l.Name)
				}
				taken = append(taken, l.Name)
			}
			copies, err := filepath.Abs(filepath.Join(filepath.Dir(d.config.Index.Path), "subscribed"))
			if err != nil {
				return n, err
			}
			text, name, said, err := newlist.AddList(context.Background(), nil, what, "", copies, taken, time.Now())
			n.Name, n.Text, n.Said = name, string(text), said
			return n, err
		},
	}
}
