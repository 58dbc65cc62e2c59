package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"blockd/index"
	"blockd/lists"
	"blockd/reload"
)

func newCompile() *cobra.Command {
	var path, out string
	var asJSON, accept bool
	var flags *listFlags
	cmd := &cobra.Command{
		Use:   "compile [-c config.toml] | -o FILE.bdx [--format F] LIST...",
		Short: "build the index file of the lists",
		Long: `Build an index file: the lists of a configuration, or those on the command line.
A daemon that serves the same configuration takes the new file up by itself. The
old file stays as it is until the new one is whole, and when any list is refused:
by its own faults, or because it is too unlike what the old file has of it.

Ends with 0 when the file was written, 1 when it was not, 2 on wrong usage.`,
		Example: `  blockd compile -c /etc/blockd/config.toml
  blockd compile -o bad.bdx lists/*.txt
  blockd compile -o bad.bdx --format hosts --json ads.hosts.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := newJob(cmd, path, out, flags, args)
			if err != nil {
				return err
			}
			job.accept = accept
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop() // the draft is removed; a second signal ends at once
			report, err := job.run(ctx, cmd.ErrOrStderr())
			if err != nil {
				return err
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
	cmd.Flags().BoolVar(&accept, "accept", false, "take a list that is empty, or shrank or grew too much, this once")
	return cmd
}

// job is one index to build.
type job struct {
	path    string
	sources []index.Source
	lists   []reload.List // what the gate holds them to
	accept  bool
}

// newJob says what to build where, from one of the two forms.
func newJob(cmd *cobra.Command, config, out string, flags *listFlags, files []string) (*job, error) {
	if out == "" {
		for _, name := range []string{"format", "action", "subdomains", "allow-public-suffix"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s goes with -o FILE.bdx LIST...; a configuration says it in its [[list]]", name)
			}
		}
		if len(files) > 0 {
			return nil, usagef("lists on the command line need -o FILE.bdx")
		}
		c, err := load(config)
		if err != nil {
			return nil, err
		}
		if err := c.makeIndexFolder(); err != nil {
			return nil, err
		}
		lists := c.reload().Lists
		sources, err := reload.Sources(lists)
		return &job{path: c.Index.Path, sources: sources, lists: lists}, err
	}
	if cmd.Flags().Changed("config") {
		return nil, usagef("want -c or -o, not both")
	}
	if len(files) == 0 {
		return nil, usagef("want a LIST to compile into %s", out)
	}
	settings, err := flags.settings()
	if err != nil {
		return nil, err
	}
	j, gate := &job{path: out}, Default().Index
	for _, file := range files {
		name := listNameOf(file)
		j.sources = append(j.sources, index.Source{List: name, Path: file, Settings: settings})
		if !slices.ContainsFunc(j.lists, func(l reload.List) bool { return l.Name == name }) {
			j.lists = append(j.lists, reload.List{Name: name, Path: file, MaxShrink: gate.MaxShrink, MaxGrow: gate.MaxGrow})
		}
	}
	return j, nil
}

// listNameOf names a list after its file: "lists/disposable.txt.gz" is "disposable".
func listNameOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".gz")
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (listName.MatchString(string(r)) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, "._-")
	return cmp.Or(name[:min(len(name), 64)], "list")
}

// compileReport is what was built.
type compileReport struct {
	path       string
	generation string
	rate       float64 // of false positives of the filter, predicted
	index.Report
}

// run builds the index and puts it in its place. On a terminal a bar shows how
// far it is.
func (j *job) run(ctx context.Context, stderr io.Writer) (compileReport, error) {
	bar := newBar(stderr)
	draft, err := index.Build(ctx, j.path, j.sources, index.Options{Progress: bar.show})
	bar.clear()
	if refused := (*index.SourcesError)(nil); errors.As(err, &refused) {
		for _, err := range refused.Errs {
			fmt.Fprintln(stderr, err)
		}
		return compileReport{}, fmt.Errorf("%s refused; %s stays as it is", counted(len(refused.Errs), "file"), shownPath(j.path))
	}
	if err != nil {
		return compileReport{}, err
	}
	defer draft.Discard()
	if err := j.gate(draft.Report.Lists, stderr); err != nil {
		return compileReport{}, err
	}
	ix := draft.Index()
	if err := draft.Publish(); err != nil {
		return compileReport{}, err
	}
	return compileReport{j.path, ix.Generation(), ix.FalsePositiveRate(), draft.Report}, nil
}

// gate holds what was built against the index at the job's path, as the daemon
// does before it swaps. What --accept takes is told all the same.
func (j *job) gate(now []index.ListInfo, stderr io.Writer) error {
	old, err := index.Open(j.path)
	if err != nil {
		return nil // there is no generation to compare with
	}
	refused, acceptable := 0, true
	for _, err := range reload.Compare(j.lists, old.Lists(), now) {
		how := ""
		switch file := (*lists.FileError)(nil); {
		case !errors.As(err, &file), file.Class != lists.Empty && file.Class != lists.Shrunk && file.Class != lists.Grown:
			acceptable = false
			refused++
		case j.accept:
			how = "accepted: "
		default:
			refused++
		}
		fmt.Fprintf(stderr, "%s%v\n", how, err)
	}
	if refused == 0 {
		return nil
	}
	hint := ""
	if acceptable {
		hint = "; --accept takes it this once"
	}
	return fmt.Errorf("%s refused; %s stays as it is%s", counted(refused, "list"), shownPath(j.path), hint)
}

func (r compileReport) text(w io.Writer) error {
	var t table
	t.add("list", "file", "format", "lines", "entries", "errors", "skipped", "read")
	var networks int
	for _, l := range r.Lists {
		s := l.Summary
		t.add(l.Source.List, shownPath(l.Source.Path), s.Format, grouped(uint64(s.Lines)), grouped(uint64(s.Entries)),
			grouped(uint64(s.Errors)), grouped(uint64(s.Skipped)), octets(s.Size))
		networks += l.NetworkEntries
	}
	if err := t.print(w, 3, 4, 5, 6, 7); err != nil {
		return err
	}
	var facts table
	facts.add("index", fmt.Sprintf("%s, %s", shownPath(r.path), octets(r.Bytes)))
	facts.add("keys", fmt.Sprintf("%s of %s entries", grouped(r.Keys), grouped(r.Entries)))
	if networks > 0 {
		facts.add("left out", counted(networks, "entry")+" of client addresses: this version judges senders only")
	}
	facts.add("filter", fmt.Sprintf("%.2g %% false positives", 100*r.rate))
	facts.add("generation", r.generation)
	facts.add("time", fmt.Sprintf("%.1f s", r.Elapsed.Seconds()))
	fmt.Fprintln(w)
	return facts.print(w)
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
		Networks int    `json:"networks_left_out"`
		Bytes    int64  `json:"bytes"`
		Verdict  string `json:"verdict"`
		Why      string `json:"why"`
	}
	o := struct {
		File       string  `json:"file"`
		Generation string  `json:"generation"`
		Keys       uint64  `json:"keys"`
		Entries    uint64  `json:"entries"`
		Bytes      int64   `json:"bytes"`
		FilterBits uint64  `json:"filter_bits"`
		Rate       float64 `json:"false_positive_rate"`
		Seconds    float64 `json:"seconds"`
		Lists      []list  `json:"lists"`
	}{r.path, r.generation, r.Keys, r.Entries, r.Bytes, r.FilterBits, r.rate, r.Elapsed.Seconds(), []list{}}
	for _, l := range r.Lists {
		s := l.Summary
		o.Lists = append(o.Lists, list{l.Source.List, l.Source.Path, s.Format, s.Lines, s.Entries, s.Errors, s.Skipped,
			l.NetworkEntries, s.Size, string(s.Verdict), s.Why})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(o)
}

// bar is a progress bar on a terminal, and nothing anywhere else.
type bar struct {
	w     io.Writer
	stage string
	bar   *progressbar.ProgressBar
}

func newBar(w io.Writer) *bar { return &bar{w: w} }

// show is index.Options.Progress.
func (b *bar) show(p index.Progress) {
	if !onTerminal(b.w) {
		return
	}
	if p.Stage != b.stage {
		b.clear()
		b.stage = p.Stage
		b.bar = progressbar.NewOptions64(max(p.Total, 1), progressbar.OptionSetWriter(b.w), progressbar.OptionShowBytes(p.Stage != "sort"),
			progressbar.OptionSetWidth(24), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	text := p.Stage
	if p.Stage == "read" {
		text = fmt.Sprintf("read %s, %s entries", filepath.Base(p.Source), grouped(uint64(p.Entries)))
	}
	b.bar.Describe(visible(text))
	// The bar writes to a terminal; when that fails there is nobody to tell.
	_ = b.bar.Set64(min(p.Done, max(p.Total, 1)))
}

func (b *bar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar, b.stage = nil, ""
	}
}
