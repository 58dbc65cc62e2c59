package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/index"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/history"
)

func newReplay() *cobra.Command {
	var path, file, as, since string
	var asJSON bool
	var flags *listFlags
	cmd := &cobra.Command{
		Use:   "replay [-c config.toml] --list FILE [--as NAME] [--format F] [--since 7d] [--json]",
		Short: "say which past mail a list would have refused",
		Long: `Hold a list against the mail that was accepted lately, as the history has it, and
say what of it would have been refused had the list been in force: newly, since mail
that was refused then, or that today's lists refuse already, is counted apart.

The list is judged beside today's lists and live entries, by the rules of the daemon:
allow entries go before it, everybody may write to exempt recipients, and recipients
with a [[policy]] have the lists that it names. It needs no place in the
configuration; with --as it is judged as that [[list]], with its settings.

What the history does not know cannot be told: proofs of allow entries, addresses in
headers, and recipients where a milter accepted the sender for all of them.

Ends with 1 if the list would newly refuse a greater share of the last
[index] recent senders than max_recent_blocked, as the gate would, and with 2 on an error.`,
		Example: `  blockd replay --list new.txt --since 7d
  blockd replay --list /etc/blockd/lists/shadow.txt --as shadow
  blockd replay --list new.txt --json | jq .senders`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("want --list FILE")
			}
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			r := &replay{config: c, since: from}
			if err := r.candidate(file, as, flags); err != nil {
				return err
			}
			if err := r.run(cmd, path); err != nil {
				return err
			}
			report := r.report()
			if asJSON {
				err = term.JSON(cmd.OutOrStdout(), report)
			} else {
				err = report.print(cmd.OutOrStdout())
			}
			if err == nil && !report.Gate.Passes {
				err = answer(exitFault)
			}
			return err
		}),
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&file, "list", "", "the list in `FILE`")
	must(cmd.MarkFlagFilename("list"))
	cmd.Flags().StringVar(&as, "as", "", "judge it as the [[list]] `NAME`")
	must(cmd.RegisterFlagCompletionFunc("as", completion(&path, listNames)))
	cmd.Flags().StringVar(&since, "since", "7d", "mail since `TIME`: so long ago, such as 7d or 12h, or a date, such as 2027-01-31")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	flags = addListFlags(cmd)
	return cmd
}

// replay holds one list against past mail.
type replay struct {
	config config.Config
	since  time.Time
	name   string // of the list, for people
	source index.Source
	bound  float64 // max_recent_blocked

	list, now *policy.Checker // by the candidate alone, and by all that is in force
	entries   int

	counts  replayCounts
	senders map[string]bool // who were accepted
	recent  int             // the newest of them, as many as the gate remembers
	stopped struct {
		recent                      int
		senders, domains, entriesOf map[string]*replayed
	}
}

// candidate says what is to be judged, and how.
func (r *replay) candidate(file, as string, flags *listFlags) (err error) {
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	r.name = config.ListNameOf(file)
	// No [[list]] can have this name: a file that is called like one is not it, and has
	// neither its on_match nor its place in a [[policy]].
	r.source = index.Source{List: "(" + r.name[:min(len(r.name), 60)] + ")", Path: file}
	r.bound = r.config.Index.MaxRecentBlocked
	if as == "" {
		if r.source.Exceptions, err = flags.reach(); err != nil {
			return err
		}
		r.source.Settings, err = flags.settings()
		r.source.Settings.Guard = r.config.Guard(config.List{AllowPublicSuffix: &flags.allowPublicSuffix, Action: flags.action, Exceptions: flags.exceptions})
		return err
	}
	at := slices.IndexFunc(r.config.Lists, func(l config.List) bool { return l.Name == as })
	if at < 0 {
		return fmt.Errorf("--as: no [[list]] has the name %q", as)
	}
	l := r.config.Lists[at]
	r.name, r.source.List = as, as
	if l.MaxRecentBlocked != nil {
		r.bound = *l.MaxRecentBlocked
	}
	r.source.Settings, r.source.Exceptions = r.config.ListSettings(l), l.Reach()
	if flags.cmd.Flags().Changed("format") {
		own, err := flags.settings()
		if err != nil {
			return err
		}
		r.source.Settings.Format = own.Format
	}
	return nil
}

// run reads the past.
func (r *replay) run(cmd *cobra.Command, path string) error {
	if r.config.History.Folder == config.None {
		return errors.New(`history.folder is "none": no history is kept`)
	}
	serves, now, _, err := openToCheck(cmd, path, "", "")
	if err != nil {
		return err
	}
	if d, err := control.FindDaemon(cmd.Context(), r.config); err == nil && d.Generation != serves.Generation() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: the daemon answers by another generation, %s; what follows is by that of %s\n",
			cmd.CommandPath(), cmp.Or(term.Visible(d.Generation), "none"), term.Path(r.config.Index.Path))
	}
	aside, err := os.MkdirTemp("", "blockd-replay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	draft, err := index.Build(cmd.Context(), filepath.Join(aside, "list.bdx"), []index.Source{r.source}, index.Options{Memory: r.config.Reload().Memory})
	if refused := (*index.SourcesError)(nil); errors.As(err, &refused) {
		return refused.Errs[0]
	} else if err != nil {
		return err
	}
	defer draft.Discard()
	ix := draft.Index()
	for _, row := range ix.Lists() {
		r.entries += row.Summary.Entries
	}
	r.now = now
	r.list = policy.New(func() *index.Index { return ix }, r.config.Policy(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return r.walk(cmd.Context())
}

func (r *replay) walk(ctx context.Context) (err error) {
	if oldest := time.Now().Add(-time.Duration(r.config.History.Keep)); r.since.Before(oldest) {
		r.since = oldest
	}
	r.senders = map[string]bool{}
	r.stopped.senders, r.stopped.domains, r.stopped.entriesOf = map[string]*replayed{}, map[string]*replayed{}, map[string]*replayed{}
	folder := r.config.HistoryFolder()
	r.counts.Damaged, err = history.Walk(ctx, folder, r.since, func(d *history.Record) bool {
		r.take(d)
		return ctx.Err() == nil
	})
	if err != nil {
		return control.HistoryError(r.config, err)
	}
	return ctx.Err()
}

// replayCounts are decisions, of a recipient each where the door heard of them.
type replayCounts struct {
	Decisions     int `json:"decisions"`
	Accepted      int `json:"accepted"`
	Refused       int `json:"refused"`        // newly: accepted then, and by today's lists
	OnMessage     int `json:"on_message"`     // newly tagged or set aside
	AlreadyListed int `json:"already_listed"` // the list has them, and so have today's lists by now
	Exempt        int `json:"exempt"`         // the list has the sender, and everybody may write to the recipient
	Allowed       int `json:"allowed"`        // an allow entry goes before the list
	WantsProof    int `json:"wants_proof"`    // an allow entry would, if its proof were there
	Unchecked     int `json:"unchecked"`      // could not be looked up
	AllRecipients int `json:"all_recipients"` // of refused: recipients are not known, some may be exempt
	Damaged       int `json:"damaged"`        // lines of the history that were left out
}

// take judges one past decision.
func (r *replay) take(d *history.Record) {
	r.counts.Decisions++
	if d.Outcome != policy.Accept.String() && d.Outcome != policy.Mark.String() || d.Source != "" {
		return
	}
	r.counts.Accepted++
	first := unlisted(d) && !r.senders[d.Sender]
	if first {
		r.senders[strings.Clone(d.Sender)] = true
	}
	ofLate := first && len(r.senders) <= r.config.Index.Recent
	if ofLate {
		r.recent++
	}
	by := r.list.Past(d, d.Recipient)
	if by.Verdict != nil && by.Verdict.Internal() {
		r.counts.Unchecked++
		return
	}
	if ofLate && r.newlyBlocks(d.Sender) {
		r.stopped.recent++
	}
	if by.Verdict == nil || by.Verdict.Kind != verdict.Blocked {
		return
	}
	if by.Exempt {
		r.counts.Exempt++
		return
	}
	switch now := r.now.Past(d, d.Recipient); {
	case now.Verdict == nil:
		r.stop(d, by)
	case now.Verdict.Internal():
		r.counts.Unchecked++
	case now.Verdict.Frees(), d.Verdict == string(verdict.Allowed) && allows(now.Verdict):
		r.counts.Allowed++
	case allows(now.Verdict):
		r.counts.WantsProof++
	case now.Verdict.Kind == verdict.Blocked:
		r.counts.AlreadyListed++
	default:
		r.stop(d, by)
	}
}

// newlyBlocks reports whether the list blocks a sender on which nothing is today, as the
// gate asks: wherever its mail comes from.
func (r *replay) newlyBlocks(sender string) bool {
	mail := &history.Record{Sender: sender}
	by, now := r.list.Past(mail, "").Verdict, r.now.Past(mail, "").Verdict
	return by != nil && by.Kind == verdict.Blocked && (now == nil || now.Kind == verdict.Clear)
}

// allows reports whether an allow entry that reaches all lists is there, whether or not
// its proof is.
func allows(v *verdict.Verdict) bool {
	for i, m := range v.Matches {
		if m.Action.Allows() && v.Lists[m.Row].Source.Mode == index.Enforce && v.ReachesAll(i) {
			return true
		}
	}
	return false
}

// stop counts mail that the list would newly refuse.
func (r *replay) stop(d *history.Record, by policy.Decision) {
	m := by.Verdict.Matches[by.Verdict.Decider]
	entry := fmt.Sprintf("%s (line %d)", m.Name(), m.Line)
	if by.Refuses() {
		r.counts.Refused++
	} else {
		r.counts.OnMessage++
	}
	reply := strings.ReplaceAll(by.Reply.String(), by.Ref, "ID")
	if d.Recipient == "" {
		r.counts.AllRecipients++
	}
	domain := shownAddress(d.Sender[strings.LastIndexByte(d.Sender, '@')+1:])
	for where, key := range map[*map[string]*replayed]string{&r.stopped.senders: shownAddress(d.Sender), &r.stopped.domains: domain, &r.stopped.entriesOf: entry} {
		at := (*where)[key]
		if at == nil {
			key = strings.Clone(key)
			at = &replayed{Name: key, Last: d.Time, Entry: entry, Reply: reply, senders: map[string]bool{}}
			(*where)[key] = at
		}
		at.Mails++
		at.senders[strings.Clone(d.Sender)] = true
	}
}

// replayed is what one sender, domain or entry has of the mail that would be refused.
type replayed struct {
	Name    string    `json:"name"`
	Mails   int       `json:"mails"`
	Senders int       `json:"senders"`
	Last    time.Time `json:"last"`
	Entry   string    `json:"entry"`           // the newest one's
	Reply   string    `json:"reply,omitempty"` // to the newest one, where it is refused

	senders map[string]bool
}

// unlisted reports whether r is accepted mail of a sender that was on no list.
func unlisted(r *history.Record) bool {
	return r.Sender != "" && r.Verdict == string(verdict.Clear) && r.Ref == "" && !r.Authenticated
}

// replayReport is what `blockd replay --json` prints.
type replayReport struct {
	List    string    `json:"list"`
	File    string    `json:"file"`
	Entries int       `json:"entries"`
	Since   time.Time `json:"since"`
	replayCounts
	AcceptedSenders int        `json:"accepted_senders"` // distinct, and on no list then
	RefusedSenders  int        `json:"refused_senders"`  // distinct
	Gate            replayGate `json:"gate"`
	Senders         []replayed `json:"senders"` // that most mail is of, as the next two
	Domains         []replayed `json:"domains"`
	ByEntry         []replayed `json:"by_entry"`
}

// replayGate is what the gate would say of the list, by the senders that it remembers.
type replayGate struct {
	Senders int     `json:"senders"` // of late
	Refused int     `json:"refused"` // of them
	Share   float64 `json:"share"`
	Bound   float64 `json:"max_recent_blocked"`
	Passes  bool    `json:"passes"` // with fewer than 100 senders, always
}

// shownReplayed is how many senders, domains and entries are shown, and reportedReplayed
// how many a program gets.
const (
	shownReplayed    = 10
	reportedReplayed = 1000

	// gateFrom is from how many senders on the gate judges (docs/operation.md).
	gateFrom = 100
)

func (r *replay) report() replayReport {
	g := replayGate{Senders: r.recent, Refused: r.stopped.recent, Bound: r.bound, Share: term.Share(uint64(r.stopped.recent), uint64(r.recent))}
	g.Passes = g.Senders < gateFrom || float64(g.Refused) <= g.Bound*float64(g.Senders)
	return replayReport{List: r.name, File: r.source.Path, Entries: r.entries, Since: r.since.UTC().Truncate(time.Second), replayCounts: r.counts,
		AcceptedSenders: len(r.senders), RefusedSenders: len(r.stopped.senders), Gate: g,
		Senders: most(r.stopped.senders), Domains: most(r.stopped.domains), ByEntry: most(r.stopped.entriesOf)}
}

// most are those with the most mail.
func most(all map[string]*replayed) []replayed {
	list := make([]replayed, 0, len(all))
	for _, r := range slices.Collect(maps.Values(all)) {
		r.Senders = len(r.senders)
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b replayed) int { return cmp.Or(b.Mails-a.Mails, strings.Compare(a.Name, b.Name)) })
	return list[:min(len(list), reportedReplayed)]
}

// print shows the report to people.
func (r replayReport) print(w io.Writer) error {
	p := term.NewPaint(w)
	n := func(n int) string { return term.Grouped(n) }
	fmt.Fprintf(w, "%s: %s, held against the mail since %s\n\n", term.Path(r.File), term.Counted(r.Entries, "entry"), term.Moment(r.Since))
	var t term.Table
	t.Add("accepted then", n(r.Accepted), "of "+term.Counted(r.AcceptedSenders, "unlisted sender"))
	refused := n(r.Refused)
	if r.Refused > 0 {
		refused = p.Red(refused)
	}
	t.Add("newly refused", refused, "of "+term.Counted(r.RefusedSenders, "sender"))
	for _, line := range []struct {
		name  string
		count int
		about string
	}{
		{"newly marked", r.OnMessage, "tagged or set aside, as on_match says"},
		{"refused by now", r.AlreadyListed, "today's lists have them too"},
		{"kept: exempt", r.Exempt, "everybody may write to the recipient"},
		{"kept: allowed", r.Allowed, "an allow entry goes before the list"},
		{"open: proof", r.WantsProof, "an allow entry would, with a proof that the history does not have"},
		{"not checked", r.Unchecked, "the index could not be read"},
	} {
		if line.count > 0 {
			t.Add(line.name, n(line.count), line.about)
		}
	}
	if err := t.Print(w, 1); err != nil {
		return err
	}
	if r.AllRecipients > 0 {
		fmt.Fprintf(w, "of the newly refused, %s at a door that did not know the recipients: some may be exempt\n", n(r.AllRecipients))
	}
	if r.Damaged > 0 {
		fmt.Fprintf(w, "left out %s of the history\n", term.Counted(r.Damaged, "damaged line"))
	}
	r.printMost(w, p)
	says := p.Green("lets it pass")
	switch {
	case r.Gate.Senders < gateFrom:
		says += fmt.Sprintf(" (it judges from %d senders on)", gateFrom)
	case !r.Gate.Passes:
		says = p.Red("refuses it")
	}
	_, err := fmt.Fprintf(w, "\nthe gate %s: %s of the last %s (%s), max_recent_blocked = %v\n", says,
		n(r.Gate.Refused), term.Counted(r.Gate.Senders, "sender"), finePercent(r.Gate.Share), r.Gate.Bound)
	return err
}

// printMost shows what is hit most.
func (r replayReport) printMost(w io.Writer, p term.Paint) {
	for _, part := range []struct {
		name string
		all  []replayed
	}{{"sender", r.Senders}, {"domain", r.Domains}, {"entry", r.ByEntry}} {
		if len(part.all) == 0 {
			continue
		}
		fmt.Fprintln(w)
		var t term.Table
		t.Add(p.Faint(part.name), p.Faint("mails"), p.Faint("senders"), p.Faint("last"), p.Faint("by"))
		for _, one := range part.all[:min(len(part.all), shownReplayed)] {
			by := term.Visible(one.Entry)
			if part.name == "entry" {
				by = term.Visible(one.Reply)
			}
			t.Add(term.Visible(one.Name), term.Grouped(one.Mails), term.Grouped(one.Senders), term.Moment(one.Last), by)
		}
		t.Print(w, 1, 2)
		if more := len(part.all) - shownReplayed; more > 0 {
			fmt.Fprintf(w, "%s more: --json\n", term.Grouped(more))
		}
	}
}

// finePercent is a share with what a bound of 1 % needs.
func finePercent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }
