package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/overlap"
	"blockd/internal/machine"
	"blockd/internal/term"
)

func newCompare() *cobra.Command {
	var path, memory string
	var approximate, asJSON bool
	var flags *listFlags
	cmd := &cobra.Command{
		Use:   "compare [-c config.toml] [--format F] [--memory 1G] [--approximate] [--json] A B",
		Short: "say what two lists or indexes share",
		Long: `Count the entries that only A has, that only B has, and that both have, by kind. Each of
A and B is a list of any format, a folder of lists, or an index (FILE.bdx).

Entries are compared as they are read: Bad.Example and bad.example are one, repeated
ones count once. Lines that blockd refuses and entries that have ended are none. Two
entries are equal if their name, what they cover and their action are. A name that the
other side has with another reach or action is counted apart. Lists are read as for
lint: as the configuration beside them says, or the flags.

What does not fit into --memory (a gigabyte, or half of this machine's memory) goes to
a temporary file in TMPDIR, 16 octets an entry. --approximate counts a sample instead,
in one pass, 32 MiB and no file, and says how far each number may be off.

Ends with 0 if both have the same entries, 1 if not, 2 on an error.`,
		Example: `  blockd compare old.txt new.txt
  blockd compare bought.txt.gz blockd.bdx --json | jq .both
  blockd compare --approximate --memory 256M lists/ other/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("want two lists, folders or indexes, A and B")
			}
			return nil
		},
		RunE: answering(func(cmd *cobra.Command, args []string) error {
			sources, err := newLintSources(flags, path, cmd.Flags().Changed("config"), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			job := overlap.Job{Approximate: approximate}
			if job.Memory, err = compareMemory(memory); err != nil {
				return err
			}
			for i, name := range args {
				if job.Sides[i], err = compareSide(name, sources); err != nil {
					return err
				}
			}
			bar := term.NewBar(cmd.ErrOrStderr())
			job.Progress = func(stage int, done, total int64) {
				s := term.Step{Stage: "merge", Done: done, Total: total, Things: true}
				if stage < 2 {
					s.Stage, s.Things = "read "+filepath.Base(args[stage]), job.Sides[stage].Index != nil
				}
				bar.Show(s)
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			result, err := job.Run(ctx)
			bar.Clear()
			if err != nil {
				return err
			}
			report := newCompareReport(args, result)
			noteRefused(cmd, args, report)
			if asJSON {
				err = term.JSON(cmd.OutOrStdout(), report)
			} else {
				err = report.print(cmd.OutOrStdout())
			}
			if c := report.Counts; err == nil && c.OnlyA+c.OnlyB > 0 {
				err = answer(exitFault)
			}
			return err
		}),
	}
	configFlag(cmd, &path)
	flags = addListFlags(cmd)
	cmd.Flags().StringVar(&memory, "memory", "", "`SIZE` of what is sorted in memory, such as 256M or 4G")
	cmd.Flags().BoolVar(&approximate, "approximate", false, "count a sample")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// compareMemory reads a size such as 1G or "512 MiB"; "" is the usual one.
func compareMemory(text string) (int64, error) {
	if text == "" {
		const usual = 1 << 30
		if limit := machine.Memory(); limit.Octets > 0 {
			return max(min(usual, limit.Octets/2), overlap.MinMemory), nil
		}
		return usual, nil
	}
	var size config.Octets
	full := text
	if strings.ContainsAny(text[len(text)-1:], "KMGT") {
		full += "iB"
	}
	if err := size.UnmarshalText([]byte(full)); err != nil || size < overlap.MinMemory {
		return 0, usagef("--memory: want a size such as 256M or 4G, 16M at least, have %q", text)
	}
	return int64(size), nil
}

// compareSide is an index, the files of a folder, or a list.
func compareSide(name string, sources *lintSources) (side overlap.Side, err error) {
	if filepath.Ext(name) == ".bdx" {
		side.Index, err = control.OpenIndex(name, "")
		return side, err
	}
	files := []string{name}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		if files, err = filesIn(name); err != nil {
			return side, err
		}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			side.Size += info.Size()
		}
		side.Files = append(side.Files, sources.of(file)) // a file that is missing tells when it is read
	}
	return side, nil
}

// filesIn are the regular files of a folder, in their order. Hidden ones are none.
func filesIn(folder string) (files []string, err error) {
	all, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		path := filepath.Join(folder, f.Name())
		info, err := os.Stat(path) // through links, as when it is read
		if err == nil && info.Mode().IsRegular() && !strings.HasPrefix(f.Name(), ".") {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, &fs.PathError{Op: "compare", Path: folder, Err: fmt.Errorf("a folder without lists")}
	}
	return files, nil
}

// noteRefused tells of lines that are no entries.
func noteRefused(cmd *cobra.Command, args []string, r compareReport) {
	for i, side := range []compareReportSide{r.A, r.B} {
		if side.Refused > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s refused; blockd lint %s says why\n", cmd.CommandPath(),
				term.Counted(int(side.Refused), "line")+" of "+term.Path(args[i]), term.Word(args[i]))
		}
	}
}

// compareReport is what --json prints.
type compareReport struct {
	A compareReportSide `json:"a"`
	B compareReportSide `json:"b"`
	compareRow
	Kinds   []compareKind `json:"kinds"`
	Sampled uint64        `json:"sampled,omitempty"` // prints of the sample
	Scale   uint64        `json:"scale"`             // for how many each stands; 1: the numbers are exact
}

type compareReportSide struct {
	Path string `json:"path"`
	overlap.SideFacts
}

// compareRow is one row of numbers. The shares are those of the entries of A and of B that
// both have, 0 to 1.
type compareRow struct {
	overlap.Counts
	ShareA float64        `json:"share_a"`
	ShareB float64        `json:"share_b"`
	Error  *compareErrors `json:"error,omitempty"` // of a sample
}

// compareErrors are how far the counts may be off, with a probability of 95 %.
type compareErrors struct {
	OnlyA uint64 `json:"only_a"`
	OnlyB uint64 `json:"only_b"`
	Both  uint64 `json:"both"`
}

type compareKind struct {
	Kind string `json:"kind"`
	compareRow
}

func newCompareReport(paths []string, r overlap.Result) compareReport {
	row := func(c overlap.Counts) compareRow {
		row := compareRow{Counts: c, ShareA: term.Share(c.Both, c.OnlyA+c.Both), ShareB: term.Share(c.Both, c.OnlyB+c.Both)}
		if r.Scale > 1 {
			row.Error = &compareErrors{r.Error(c.OnlyA), r.Error(c.OnlyB), r.Error(c.Both)}
		}
		return row
	}
	report := compareReport{A: compareReportSide{paths[0], r.A}, B: compareReportSide{paths[1], r.B},
		compareRow: row(r.Total()), Kinds: []compareKind{}, Sampled: r.Sampled, Scale: r.Scale}
	for _, k := range r.Kinds {
		report.Kinds = append(report.Kinds, compareKind{k.Kind, row(k.Counts)})
	}
	return report
}

func (r compareReport) print(w io.Writer) error {
	p := term.NewPaint(w)
	var t term.Table
	t.Add(p.Faint("entries"), p.Faint("only A"), p.Faint("only B"), p.Faint("both"), p.Faint("of A"), p.Faint("of B"))
	add := func(name string, row compareRow) {
		cells := []string{term.Grouped(row.OnlyA), term.Grouped(row.OnlyB), term.Grouped(row.Both)}
		if e := row.Error; e != nil {
			for i, n := range []uint64{e.OnlyA, e.OnlyB, e.Both} {
				cells[i] += " ± " + term.Grouped(n)
			}
		}
		t.Add(name, cells[0], cells[1], cells[2], term.Percent(row.Both, row.OnlyA+row.Both), term.Percent(row.Both, row.OnlyB+row.Both))
	}
	for _, k := range r.Kinds {
		add(k.Kind, k.compareRow)
	}
	if len(r.Kinds) != 1 {
		add("all", r.compareRow)
	}
	if err := t.Print(w, 1, 2, 3, 4, 5); err != nil {
		return err
	}
	for _, side := range []struct {
		name, other string
		n           uint64
	}{{"A", "B", r.OtherA}, {"B", "A", r.OtherB}} {
		if side.n > 0 {
			fmt.Fprintf(w, "of only %s, %s in %s with another reach or action\n", side.name, term.Grouped(side.n), side.other)
		}
	}
	if r.Scale > 1 {
		fmt.Fprintf(w, "counted in a sample of %s, each for %s; ± holds for 95 of 100\n", term.Grouped(r.Sampled), term.Grouped(r.Scale))
	}
	return nil
}
