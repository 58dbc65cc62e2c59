package daemon

import (
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/audit"
	"blockd/records/letter"
	"blockd/reload"
)

// Hostname is the name of this machine in letters and events.
func Hostname(c config.Config) string {
	return wireName(cmp.Or(c.SMTP.Hostname, config.MachineName()), slog.New(slog.DiscardHandler))
}

// ReportFiles are what the files of a configuration tell for a letter, whether or not a daemon runs.
func ReportFiles(c config.Config, resolver *msgauth.Resolver) letter.Sources {
	s := letter.Sources{Host: Hostname(c), Version: version.String(), Aligned: aligned(resolver)}
	if c.History.Folder != config.None {
		s.History = c.HistoryFolder()
	}
	if folder := c.ReceiptsFolder(); folder != "" {
		s.Requests = func() ([]letter.OpenRequest, error) {
			key, err := receipt.OpenKey(folder)
			if err != nil {
				return nil, err
			}
			return openRequests(receipt.NewStore(folder, key))
		}
	}
	s.Proposals = proposed(c)
	s.Pending = func() ([]letter.Pending, error) {
		pins, err := c.Kept().Pins()
		return pending(pins), err
	}
	if c.Audit.Folder != config.None {
		s.Changes = func(ctx context.Context, since, until time.Time) ([]letter.Change, error) {
			return changes(ctx, c.AuditFolder(), since, until)
		}
	}
	if c.Live.Folder != config.None {
		s.Exceptions = func(since time.Time) []string {
			set, err := live.Read(c.LiveFolder())
			if err != nil {
				return nil
			}
			return exceptions(set, since)
		}
	}
	return s
}

// pending are the lists with something that waits to be adopted.
func pending(pins []kept.Pin) (all []letter.Pending) {
	for _, pin := range pins {
		p := pin.Proposal
		if p == nil {
			continue
		}
		all = append(all, letter.Pending{List: pin.List, Since: p.Waiting(), Changes: p.Counted(), Against: slices.Concat([]string{}, p.Findings, p.Weighed.Against())})
	}
	return all
}

// openRequests are those that wait for a person.
func openRequests(store *receipt.Store) (open []letter.OpenRequest, err error) {
	all, _, err := store.All()
	for _, r := range all {
		if r.State == receipt.Open {
			open = append(open, letter.OpenRequest{Ref: r.Ref, Sender: r.Sender, List: r.List, Time: r.Time, Note: r.Note})
		}
	}
	return open, err
}

// mostExceptions bounds the live entries that are looked at; few people add more in a period.
const mostExceptions = 100_000

// exceptions are the live entries that were added since a time to let senders in.
func exceptions(set *live.Set, since time.Time) (all []string) {
	for e := range set.All() {
		if e.Item.Action.Allows() && !e.Added.Before(since) && len(all) < mostExceptions {
			all = append(all, e.Text)
		}
	}
	return all
}

// mostPages bounds what is read of the journal: 100,000 lines.
const mostPages = 100

// changes counts what people and tokens have changed.
func changes(ctx context.Context, folder string, since, until time.Time) (all []letter.Change, err error) {
	q := audit.Query{Since: since, Until: until}
	at := map[string]int{}
	for range mostPages {
		found, err := audit.Search(ctx, folder, q)
		if err != nil {
			return all, err
		}
		for _, line := range found.Lines {
			if line.Action == audit.Start || line.Action == audit.ReportSend { // a letter is no reason for the next one
				continue
			}
			i, known := at[line.Action]
			if !known {
				i = len(all)
				at[line.Action], all = i, append(all, letter.Change{Action: line.Action})
			}
			all[i].Count++
			if len(all[i].By) < 5 && line.By != "" && !slices.Contains(all[i].By, line.By) {
				all[i].By = append(all[i].By, line.By)
			}
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b letter.Change) int { return strings.Compare(a.Action, b.Action) })
	return all, nil
}

// aligned is letter.Sources.Aligned; nil without a resolver.
func aligned(r *msgauth.Resolver) func(ctx context.Context, client netip.Addr, helo, sender string) bool {
	if r == nil {
		return nil
	}
	return func(ctx context.Context, client netip.Addr, helo, sender string) bool {
		spf := r.SPF(ctx, client, helo, sender)
		return spf.Proof == msgauth.Pass && r.HasDMARC(ctx, client, spf.Domain)
	}
}

// contentsOf is what serves of each list, but for live entries, whose changes are people's.
func contentsOf(ix *index.Index) map[string]letter.Content {
	all := map[string]letter.Content{}
	for _, row := range ix.Lists() {
		if row.Source.List == live.ListName {
			continue
		}
		sum := fnv.New64a()
		io.WriteString(sum, row.Source.Path)
		sum.Write(row.Summary.Hash[:])
		one := all[row.Source.List]
		one.Entries += row.Entries()
		one.Hash = one.Hash*31 + sum.Sum64()
		all[row.Source.List] = one
	}
	return all
}

// noteLoads makes the diary learn of each generation that serves, and of each list that is refused.
func (d *daemon) noteLoads(s *reload.Settings) {
	d.diary = letter.NewDiary()
	served := s.Served
	s.Served = func(ix *index.Index) {
		if served != nil {
			served(ix)
		}
		d.diary.Served(contentsOf(ix))
	}
	s.Refused = func(r reload.Refusal) { d.diary.Refused(r.List, r.Text) }
}

// reportSources are ReportFiles with what the daemon knows.
func (d *daemon) reportSources() letter.Sources {
	s := ReportFiles(d.config, d.resolver)
	s.Host = d.hostname
	if d.past == nil {
		s.History = ""
	}
	s.Exceptions = nil
	if d.entries != nil {
		s.Exceptions = func(since time.Time) []string { return exceptions(d.entries, since) }
	}
	s.Allowed = func(sender string) bool {
		batch := policy.Batch{Uncounted: true}
		v := d.checker.AskAll(&batch, []policy.Question{{Text: sender}})
		return len(v) == 1 && v[0].Kind == verdict.Allowed
	}
	s.Pending = func() ([]letter.Pending, error) { return pending(d.lists.Status().Pins), nil }
	s.Loads = func() []letter.Load {
		status := d.lists.Status()
		return d.diary.Loads(status.Stale, status.Held)
	}
	s.Problems = func() (lines []string) {
		_, problems := d.state()
		for _, p := range problems {
			lines = append(lines, p.Text)
		}
		return lines
	}
	return s
}

// makeLetter makes a letter, one at a time: each reads the whole period.
func (d *daemon) makeLetter(ctx context.Context, since, until time.Time) (letter.Letter, error) {
	select {
	case d.gathering <- struct{}{}:
		defer func() { <-d.gathering }()
	case <-ctx.Done():
		return letter.Letter{}, ctx.Err()
	}
	if d.past != nil {
		d.past.Settle() // what cannot be written is counted, and cannot be reported
	}
	return letter.Gather(ctx, d.reportSources(), since, until)
}

// openReport makes what [report] asks for.
func (d *daemon) openReport() {
	d.gathering = make(chan struct{}, 1)
	d.postman = Postman{config: d.config, host: d.hostname, log: d.log, own: &d.own}
	if d.config.Report.To == "" {
		return
	}
	d.courier = &letter.Courier{Every: time.Duration(d.config.Report.Every), Path: d.config.ReportPath(), Make: d.makeLetter, Diary: d.diary, Host: d.hostname,
		Send: func(ctx context.Context, l *letter.Letter, id string) error {
			_, err := d.postman.Send(ctx, l, id)
			return err
		}}
	d.courier.Register(d.log, d.metrics)
}

// runReport sends letters until ctx, or the daemon's, ends.
func (d *daemon) runReport(ctx, daemon context.Context) error {
	if d.courier == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(daemon, cancel)()
	d.settle(ctx)
	return d.courier.Run(ctx)
}

// How long a start may take before a letter tells of what is wrong, and how often it is looked at.
const (
	settleTime = 30 * time.Second
	settleLook = 100 * time.Millisecond
)

// settle waits until the daemon is ready: before, a letter that is due would say that the next server was not tried yet.
func (d *daemon) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(settleLook)
	defer tick.Stop()
	for ctx.Err() == nil {
		if s, _ := d.state(); s.Ready {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// reportOverHTTP is what /v1/report shows and does.
func (d *daemon) reportOverHTTP() *httpapi.Report {
	return &httpapi.Report{Make: d.makeLetter, To: d.config.Report.To, Every: time.Duration(d.config.Report.Every),
		Send: func(ctx context.Context, l *letter.Letter) ([]httpapi.ReportDelivery, error) {
			if d.config.Report.To == "" {
				return nil, ErrNoRecipient
			}
			return d.postman.Send(ctx, l, "")
		}}
}
