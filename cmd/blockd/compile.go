package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/machine"
	"blockd/internal/term"
	"blockd/mail/digest"
	"blockd/records/audit"
	"blockd/reload"
	"blockd/sources/remote"
)

func newCompile() *cobra.Command {
	var path, out string
	var asJSON, accept, offline bool
	var flags *listFlags
	cmd := &cobra.Command{
		Use:   "compile [-c config.toml] [--accept [LIST...]] | -o FILE.bdx [--format F] LIST...",
		Short: "build the index file of the lists",
		Long: `Build an index file: the lists of a configuration, or those on the command line.
A daemon that serves the same configuration takes the new file up by itself, within
index.poll (30 s), or at once by SIGHUP; with --accept it is asked to at once. What root compiles belongs to the owner of
the index's folder, as whom the daemon runs.

The old file stays as it is until the new one is whole, and when any list is refused:
by its own faults, or because it is too unlike what the old file has of it.
With --accept it is taken this once, and so are its entries that the daemon holds
back because they would refuse senders who wrote lately, or correspondents (blockd lint --held): of the
lists named behind it, or of all. Other lists that are bad have what they had.
A list with a url is fetched first if its copy is missing, or was last looked
after longer ago than its every.

Ends with 0 when the file was written, 1 when it was not, 2 on wrong usage.`,
		Example: `  blockd compile -c /etc/blockd/config.toml
  blockd compile --accept own
  blockd compile -o bad.bdx lists/*.txt
  blockd compile -o bad.bdx --format hosts --json ads.hosts.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, named := args, []string(nil)
			if accept && out == "" {
				files, named = nil, args
			}
			job, err := newJob(flags, path, out, files, offline, accept)
			if err != nil {
				return err
			}
			if err := wantLists("--accept", named, job.lists); err != nil {
				return err
			}
			job.accept, job.named = accept, named
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop() // the draft is removed; a second signal ends at once
			report, err := job.run(ctx, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if accept && out == "" { // it is to act now; a daemon that cannot be asked looks by itself
				_, _ = control.Reload(ctx, path, userName())
			}
			if asJSON {
				return report.json(cmd.OutOrStdout())
			}
			return report.text(cmd.OutOrStdout())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&out, "output", "o", "", "index `file` to write, for lists on the command line")
	must(cmd.MarkFlagFilename("output", "bdx"))
	flags = addListFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "report as one JSON object")
	cmd.Flags().BoolVar(&accept, "accept", false, "take a list that is empty, or shrank or grew too much, or is old, this once, and its entries that are held back")
	cmd.Flags().BoolVar(&offline, "offline", false, "fetch nothing: compile the copies of remote lists and of sources that are there")
	return cmd
}

// job is one index to build.
type job struct {
	path    string
	sources []index.Source
	lists   []reload.List   // what the gate holds them to
	copies  *remote.Fetcher // nil: nothing is fetched
	fetched []string        // where copies are
	memory  int64           // octets for records; 0 = index's default
	cache   string          // folder of what was read of sources; "" = none
	hashes  digest.Set      // of addresses
	accept  bool
	journal *audit.Log // nil without a configuration
	named   []string   // lists that accept is about; none: all
	held    []string   // what is to be said of lists that do not follow their files

	settings *reload.Settings // of a daemon of the same configuration; nil without one
	pins     []kept.Pin
	config   *config.Config
	unread   error // what cannot be read of lists that nobody has accepted

	// What a load may let pass; nil without a configuration or a history.
	refusals func(context.Context) (reload.Past, error)
	judge    reload.Judge
}

// accepts reports whether a person has accepted a list as it is.
func (j *job) accepts(list string) bool {
	return j.accept && (len(j.named) == 0 || slices.Contains(j.named, list))
}

// newJob says what to build where, from one of the two forms.
func newJob(flags *listFlags, path, out string, files []string, offline, accept bool) (*job, error) {
	if out == "" {
		return configuredJob(flags, path, files, offline, accept)
	}
	return listedJob(flags, out, files, offline)
}

// configuredJob is the index of a configuration.
func configuredJob(flags *listFlags, path string, files []string, offline, accept bool) (*job, error) {
	for _, name := range []string{"format", "action", "subdomains", "patterns", "allow-public-suffix", "exceptions"} {
		if flags.cmd.Flags().Changed(name) {
			return nil, usagef("--%s goes with -o FILE.bdx LIST...; a configuration says it in its [[list]]", name)
		}
	}
	if len(files) > 0 {
		return nil, usagef("lists on the command line need -o FILE.bdx")
	}
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	return jobOf(flags.cmd.Context(), c, offline, accept)
}

// jobOf is the index of a configuration that was read. With accept a list that cannot be read is told of, and the
// others are built all the same.
func jobOf(ctx context.Context, c config.Config, offline, accept bool) (j *job, err error) {
	if err := daemon.MakeIndexFolder(c); err != nil {
		return nil, err
	}
	var unread error
	if !offline {
		if unread = daemon.ReadSources(ctx, c); unread != nil && !accept {
			return nil, unread
		}
	}
	settings := c.Reload()
	settings.Kept = c.Kept()
	j = &job{settings: &settings, config: &c, path: c.Index.Path, lists: settings.Lists, memory: settings.Memory, hashes: settings.Hashes, cache: c.Index.Path + index.CacheSuffix}
	if j.pins, err = settings.Kept.Pins(); err != nil {
		return nil, fmt.Errorf("which lists are held cannot be read: %w", err)
	}
	if j.sources, err = reload.PinnedSources(j.lists, j.pins, settings.Kept); err != nil && !accept {
		return nil, err
	}
	j.journal = c.Journal()
	j.held = standings(c, j.pins, nil)
	if j.unread = errors.Join(unread, err); unread != nil {
		j.held = append(j.held, strings.Split(unread.Error(), "\n")...)
	}
	if j.refusals = daemon.Refusals(c); j.refusals != nil {
		j.judge = c.Policy().Judge()
	}
	if offline {
		return j, nil
	}
	for _, l := range c.Lists {
		if l.URL != "" {
			j.fetched = append(j.fetched, l.Path)
		}
	}
	// What comes of a fetch the report tells, and what goes wrong its error.
	j.copies, err = daemon.NewFetcher(c, slog.New(slog.DiscardHandler), nil)
	return j, err
}

// listedJob is an index of files on the command line.
func listedJob(flags *listFlags, out string, files []string, offline bool) (*job, error) {
	switch {
	case offline:
		return nil, usagef("--offline goes with a configuration: nothing on the command line is fetched")
	case flags.cmd.Flags().Changed("config"):
		return nil, usagef("want -c or -o, not both")
	case len(files) == 0:
		return nil, usagef("want a LIST to compile into %s", out)
	}
	settings, err := flags.settings()
	if err != nil {
		return nil, err
	}
	reach, err := flags.reach()
	if err != nil {
		return nil, err
	}
	j, gate := &job{path: out}, config.Default().Index
	j.memory, _ = gate.Memory.Within(machine.Memory())
	for _, file := range files {
		if err := wantOutput(out, file, "list"); err != nil {
			return nil, err
		}
	}
	if index.Foreign(out) { // as after -o lists/*.txt, which gives -o the first of the lists
		return nil, usagef("-o: %s is there and is no index; want FILE.bdx in front of the lists", out)
	}
	for _, file := range files {
		name := config.ListNameOf(file)
		j.sources = append(j.sources, index.Source{List: name, Path: file, Settings: settings, Exceptions: reach})
		if !slices.ContainsFunc(j.lists, func(l reload.List) bool { return l.Name == name }) {
			j.lists = append(j.lists, reload.List{Name: name, Path: file, MaxShrink: gate.MaxShrink, MaxGrow: gate.MaxGrow})
		}
	}
	return j, nil
}

// waitForBuild is how long an acceptance waits for the build of another process.
const waitForBuild = 10 * time.Second

// sampledKeys are enough to tell 0.54 % from 0.56 %, and take 20 ms.
const sampledKeys = 1_000_000

// compileReport is what was built.
type compileReport struct {
	path       string
	generation string
	rate       float64 // of false positives of the filter, of sampled absent keys
	worth      []index.ListWorth
	overlaps   []index.Overlap
	held       int // entries that do not act
	index.Report
}

// run builds the index and puts it in its place. On a terminal a bar shows how
// far it is.
func (j *job) run(ctx context.Context, stderr io.Writer) (compileReport, error) {
	for _, text := range j.held {
		fmt.Fprintf(stderr, "note: %s\n", text)
	}
	if err := j.fetch(ctx, stderr); err != nil {
		return compileReport{}, err
	}
	bar := term.NewBar(stderr)
	progress := func(p index.Progress) { bar.Show(stepOf(p)) }
	if _, err := index.Open(j.path); err == nil && j.accept && j.settings != nil {
		draft, err := j.accepted(ctx, progress, bar.Clear, stderr)
		if err != nil {
			return compileReport{}, err
		}
		defer draft.Discard()
		return j.publish(draft, stderr)
	}
	if j.unread != nil {
		return compileReport{}, j.unread
	}
	draft, err := index.Build(ctx, j.path, j.sources, index.Options{Progress: progress, Memory: j.memory, Cache: j.cache, Hashes: j.hashes})
	bar.Clear()
	if refused := (*index.SourcesError)(nil); errors.As(err, &refused) {
		for _, err := range refused.Errs {
			fmt.Fprintln(stderr, err)
		}
		return compileReport{}, fmt.Errorf("%s refused; %s stays as it is", term.Counted(len(refused.Errs), "file"), term.Path(j.path))
	}
	if err != nil {
		return compileReport{}, err
	}
	defer draft.Discard()
	again, err := j.gate(ctx, draft, stderr)
	if err != nil {
		return compileReport{}, err
	}
	if !again.IsZero() {
		draft.Discard()
		rest := time.NewTimer(time.Until(again))
		defer rest.Stop()
		select {
		case <-ctx.Done():
			return compileReport{}, ctx.Err()
		case <-rest.C:
		}
		return j.run(ctx, stderr)
	}
	return j.publish(draft, stderr)
}

// accepted is the draft of a configuration's lists with those that a person accepts as they are. The others have what
// they had where they are refused, so that nothing stands between him and his own change.
func (j *job) accepted(ctx context.Context, progress func(index.Progress), clear func(), stderr io.Writer) (*index.Draft, error) {
	var past reload.Past
	if j.refusals != nil {
		past, _ = j.refusals(ctx) // where this user may not read them, nothing is judged by them
	}
	s := *j.settings
	s.Judge = j.judge
	s.Build = func(ctx context.Context, path string, sources []index.Source, o index.Options, _ bool) (*index.Draft, error) {
		o.Progress = progress
		return index.Build(ctx, path, sources, o)
	}
	refused, err := j.refusedThere(ctx)
	if err != nil {
		return nil, err
	}
	draft, taken, left, err := reload.AcceptedDraft(ctx, s, j.pins, past, refused, j.accepts)
	for until := time.Now().Add(waitForBuild); errors.Is(err, index.ErrLocked) && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(waitForBuild / 100): // the daemon builds what it refuses, too, and knows it then
		}
		if refused, err = j.refusedThere(ctx); err != nil {
			return nil, err
		}
		draft, taken, left, err = reload.AcceptedDraft(ctx, s, j.pins, past, refused, j.accepts)
	}
	clear()
	if err != nil {
		return nil, err
	}
	held, _ := reload.Held(j.path)
	takes := func(list string) bool { // something of the list, or of any with ""
		return slices.ContainsFunc(taken, func(d reload.Difference) bool { return list == "" || d.List == list }) ||
			slices.ContainsFunc(held, func(e reload.HeldEntry) bool { return j.accepts(e.List) && (list == "" || e.List == list) })
	}
	for _, d := range taken {
		fmt.Fprintf(stderr, "accepted: %v\n", d.Err)
	}
	unmet := 0
	for _, d := range left {
		fmt.Fprintf(stderr, "%v\n", d.Err)
		if draft == nil || j.accepts(d.List) && !takes(d.List) && (len(j.named) > 0 || !takes("")) {
			unmet++
		}
	}
	if unmet > 0 {
		if draft != nil {
			draft.Discard()
		}
		return nil, fmt.Errorf("%s refused; %s stays as it is", term.Counted(unmet, "file"), term.Path(j.path))
	}
	if len(left) > 0 {
		fmt.Fprintf(stderr, "note: %s refused; it has what it had\n", term.Counted(len(left), "file"))
	}
	return draft, nil
}

// refusedThere are the lists that the daemon refuses, with why, apart from those that are accepted. A daemon that is
// there and does not say so is an error: what it refuses must not become its last good.
func (j *job) refusedThere(ctx context.Context) (map[string]error, error) {
	refused := map[string]error{}
	now, err := control.Lists(ctx, *j.config, false)
	if errors.Is(err, control.ErrNoDaemon) && !errors.Is(err, fs.ErrPermission) {
		return refused, nil
	} else if err != nil {
		return nil, fmt.Errorf("which lists the daemon refuses is not known, so nothing is accepted: %w", err)
	}
	for _, l := range now.Worth {
		if l.Accept != "" && !j.accepts(l.List) {
			refused[l.List] = errors.New(l.Problems[0])
		}
	}
	return refused, nil
}

// publish puts a draft in its place, with the note of what a person has accepted.
func (j *job) publish(draft *index.Draft, stderr io.Writer) (compileReport, error) {
	ix := draft.Index()
	if j.accept {
		line := audit.Line{By: userName(), Action: audit.ListAccept, Subject: cmp.Or(strings.Join(j.named, " "), "all lists"), Detail: "generation " + ix.Generation()}
		if err := j.journal.Add(line); err != nil {
			return compileReport{}, err
		}
		if _, err := reload.Release(j.path, j.accepts); err != nil {
			return compileReport{}, err
		}
		if err := reload.Accept(j.path, ix.Generation(), j.named...); err != nil {
			return compileReport{}, err
		}
	}
	// Before a daemon sees the new file, and again for what comes behind it.
	if err := daemon.HandOver(j.path); err != nil {
		return compileReport{}, err
	}
	if err := draft.Publish(); err != nil {
		return compileReport{}, err
	}
	if err := daemon.HandOver(j.path); err != nil {
		return compileReport{}, err
	}
	rate, err := ix.SampleFalsePositives(sampledKeys)
	if err != nil {
		rate = ix.FalsePositiveRate() // the file is in its place by now
	}
	held, err := reload.Held(j.path)
	if err != nil {
		fmt.Fprintln(stderr, err) // the daemon says what that means
	}
	return compileReport{j.path, ix.Generation(), rate, ix.Worth(), ix.Overlaps(), len(held), draft.Report}, nil
}

// stepOf is what the bar shows of a build.
func stepOf(p index.Progress) term.Step {
	s := term.Step{Stage: p.Stage, Done: p.Done, Total: p.Total}
	if p.Stage == "read" {
		s.Text, s.More = fmt.Sprintf("read %s entries", term.Grouped(p.Entries)), ", "+filepath.Base(p.Source)
	}
	return s
}

// fetch brings copies up to date that are due. A server that is away is told of,
// and the copy that is there is compiled; without one the build says what misses.
func (j *job) fetch(ctx context.Context, stderr io.Writer) error {
	if j.copies == nil {
		return nil
	}
	err := j.copies.FetchDue(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		for text := range strings.SplitSeq(err.Error(), "\n") { // an error a list
			fmt.Fprintf(stderr, "%s; its copy stays as it is\n", text)
		}
	}
	for _, path := range j.fetched {
		folder := filepath.Dir(path) // it may have been made now, as well
		for _, made := range []string{folder, path, filepath.Join(folder, remote.HiddenFolder)} {
			if err := daemon.HandOver(made); err != nil {
				return err
			}
		}
	}
	return nil
}

// gate holds what was built against the index at the job's path, as the daemon
// does before it swaps. What --accept takes is told all the same. again is when a file that was emptied a moment ago
// rests, and is to be read once more; zero: all do.
func (j *job) gate(ctx context.Context, draft *index.Draft, stderr io.Writer) (again time.Time, err error) {
	old, err := index.Open(j.path)
	if err != nil {
		return again, nil // there is no generation to compare with
	}
	refused, acceptable := 0, true
	odd := reload.Compare(j.lists, old, draft.Report.Lists)
	if j.refusals != nil {
		// Where this user may not read the history the daemon asks, of an index that was
		// compiled without --accept.
		if past, err := j.refusals(ctx); err == nil {
			odd = append(odd, reload.Freed(j.lists, old, draft.Index(), past, j.judge)...)
		}
	}
	odd = slices.DeleteFunc(odd, func(d reload.Difference) bool { // an operator has said what it is to hold
		return slices.ContainsFunc(j.pins, func(p kept.Pin) bool { return p.List == d.List })
	})
	for _, d := range odd {
		if again = d.Rests; !again.IsZero() && !j.accepts(d.List) {
			return again, nil
		}
		how := ""
		if d.Acceptable && j.accepts(d.List) {
			how = "accepted: "
		} else {
			refused++
			acceptable = acceptable && d.Acceptable
		}
		fmt.Fprintf(stderr, "%s%v\n", how, d.Err)
	}
	if refused == 0 {
		return time.Time{}, nil
	}
	hint := ""
	if acceptable {
		hint = "; --accept takes it this once"
	}
	return time.Time{}, fmt.Errorf("%s refused; %s stays as it is%s", term.Counted(refused, "list"), term.Path(j.path), hint)
}

// ofOneCopy reports whether two files are of the copy of one list.
func ofOneCopy(a, b index.Source) bool {
	return a.List == b.List && filepath.Dir(a.Path) == filepath.Dir(b.Path) && filepath.Ext(a.Path) == ".ent" && filepath.Ext(b.Path) == ".ent"
}

func (r compileReport) text(w io.Writer) error {
	var t term.Table
	t.Add("list", "file", "format", "lines", "entries", "errors", "skipped", "read")
	var networks int
	for i := 0; i < len(r.Lists); {
		l := r.Lists[i]
		s, path := l.Summary, term.Path(l.Source.Path)
		networks += l.NetworkEntries
		n := 1
		for ; i+n < len(r.Lists) && ofOneCopy(l.Source, r.Lists[i+n].Source); n++ { // 64 files, which say nothing to people
			more := r.Lists[i+n].Summary
			s.Lines, s.Entries, s.Errors, s.Skipped, s.Size = s.Lines+more.Lines, s.Entries+more.Entries, s.Errors+more.Errors, s.Skipped+more.Skipped, s.Size+more.Size
			networks += r.Lists[i+n].NetworkEntries
		}
		if n > 1 {
			path = fmt.Sprintf("%s: %s", term.Path(filepath.Dir(l.Source.Path)), term.Counted(n, "file"))
		}
		t.Add(l.Source.List, path, s.Format, term.Grouped(s.Lines), term.Grouped(s.Entries), term.Grouped(s.Errors), term.Grouped(s.Skipped), term.Octets(s.Size))
		i += n
	}
	if err := t.Print(w, 3, 4, 5, 6, 7); err != nil {
		return err
	}
	var facts term.Table
	facts.Add("index", fmt.Sprintf("%s, %s", term.Path(r.path), term.Octets(r.Bytes)))
	facts.Add("keys", fmt.Sprintf("%s of %s entries", term.Grouped(r.Keys), term.Grouped(r.Entries)))
	if r.Digests > 0 {
		facts.Add("hashes", term.Grouped(r.Digests)+" more keys, for digests of addresses")
	}
	if networks > 0 {
		facts.Add("clients", term.Counted(networks, "entry")+" for client addresses")
	}
	facts.Add("filter", fmt.Sprintf("%.2g %% false positives", 100*r.rate))
	facts.Add("generation", r.generation)
	if r.held > 0 {
		facts.Add("held back", term.Counted(r.held, "entry")+": see blockd lint --held")
	}
	facts.Add("time", fmt.Sprintf("%.1f s: %s", r.Elapsed.Seconds(), r.stages()))
	if r.Cached > 0 {
		facts.Add("not parsed", term.Counted(r.Cached, "file")+" as at the last build")
	}
	memory := term.Octets(r.PeakMemory)
	if r.Spilled > 0 {
		memory += ", and " + term.Octets(r.Spilled) + " in a temporary file"
	}
	facts.Add("memory", memory)
	for _, note := range r.Notes {
		facts.Add("note", term.Visible(note))
	}
	fmt.Fprintln(w)
	return facts.Print(w)
}

// stages says what the time was spent on.
func (r compileReport) stages() string {
	var parts []string
	for _, s := range r.Stages {
		parts = append(parts, fmt.Sprintf("%s %.1f", s.Name, s.Elapsed.Seconds()))
	}
	return strings.Join(parts, ", ")
}

func (r compileReport) json(w io.Writer) error {
	type list struct {
		List     string `json:"list"`
		File     string `json:"file"`
		Format   string `json:"format"`
		Lines    int    `json:"lines"`
		Entries  int    `json:"entries"`
		Errors   int    `json:"errors"`
		Skipped  int    `json:"skipped"`
		Networks int    `json:"networks"` // of the entries: for client addresses
		Bytes    int64  `json:"bytes"`
		Verdict  string `json:"verdict"`
		Why      string `json:"why"`
	}
	o := struct {
		File       string  `json:"file"`
		Generation string  `json:"generation"`
		Keys       uint64  `json:"keys"`
		Entries    uint64  `json:"entries"`
		Digests    uint64  `json:"digests"` // keys for digests of addresses
		Bytes      int64   `json:"bytes"`
		FilterBits uint64  `json:"filter_bits"`
		Rate       float64 `json:"false_positive_rate"`
		Seconds    float64 `json:"seconds"`
		Duplicates uint64  `json:"duplicates"`
		Hash       string  `json:"hash"`
		Reseeds    int     `json:"reseeds"`

		Stages     map[string]float64 `json:"stages"` // seconds; they may overlap
		PeakMemory int64              `json:"peak_memory"`
		Spilled    int64              `json:"spilled"`
		Cached     int                `json:"cached"`
		Held       int                `json:"held"` // entries that are held back
		Notes      []string           `json:"notes"`

		Lists    []list            `json:"lists"`
		Worth    []index.ListWorth `json:"worth"`
		Overlaps []index.Overlap   `json:"overlaps"`
	}{File: r.path, Generation: r.generation, Keys: r.Keys, Entries: r.Entries, Digests: r.Digests, Bytes: r.Bytes, FilterBits: r.FilterBits,
		Rate: r.rate, Seconds: r.Elapsed.Seconds(), Duplicates: r.Duplicates, Hash: r.Hash, Reseeds: r.Reseeds,
		Stages: map[string]float64{}, PeakMemory: r.PeakMemory, Spilled: r.Spilled, Cached: r.Cached, Held: r.held,
		Notes: append([]string{}, r.Notes...), Lists: []list{},
		Worth: append([]index.ListWorth{}, r.worth...), Overlaps: append([]index.Overlap{}, r.overlaps...)}
	for _, s := range r.Stages {
		o.Stages[s.Name] = s.Elapsed.Seconds()
	}
	for _, l := range r.Lists {
		s := l.Summary
		o.Lists = append(o.Lists, list{l.Source.List, l.Source.Path, s.Format, s.Lines, s.Entries, s.Errors, s.Skipped,
			l.NetworkEntries, s.Size, string(s.Verdict), s.Why})
	}
	return term.JSON(w, o)
}
