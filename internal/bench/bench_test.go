package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// TestRun runs all of it on a few keys: every table has a figure of blockd, the
// document gets the tables between its marks, and the plot is XML.
func TestRun(t *testing.T) {
	const n = 3000
	docs := t.TempDir()
	begin, end := fmt.Sprintf("<!-- bench -n %d: written by make bench -->", n), fmt.Sprintf("<!-- bench -n %d: end -->", n)
	document := "# Before\n" + begin + "\nold figures\n" + end + "\n# After\n"
	testkit.Write(t, filepath.Join(docs, "performance.md"), []byte(document))
	var stdout, stderr bytes.Buffer
	if code := newBenchCommand().run([]string{"-n", fmt.Sprint(n), "-rounds", "2", "-docs", docs, "-work", t.TempDir()}, &stdout, &stderr); code != 0 {
		t.Fatalf("run ended with %d: %s", code, &stderr)
	}
	text := string(testkit.Read(t, filepath.Join(docs, "performance.md")))
	if !strings.HasPrefix(text, "# Before\n"+begin+"\n") || !strings.HasSuffix(text, "\n"+end+"\n# After\n") {
		t.Errorf("what stood around the marks has changed:\n%s", text)
	}
	if strings.Contains(text, "old figures") {
		t.Error("old figures are still there")
	}
	for _, title := range []string{"Filter alone", "Exact look-up", "Whole sender", "Compiling", "Programs"} {
		_, table, _ := strings.Cut(text, "**"+title)
		_, rows, _ := strings.Cut(table, ": |\n")
		first, _, _ := strings.Cut(rows, "\n")
		if !strings.HasPrefix(first, "| ") || strings.Contains(first, " - |  |") || strings.Contains(first, "NaN") {
			t.Errorf("%s: the first row is %q", title, first)
		}
	}
	plot := testkit.Read(t, filepath.Join(docs, fmt.Sprintf("performance-%d.svg", n)))
	if strings.Contains(text+string(plot), "%!") {
		t.Errorf("a figure was printed with the wrong verb:\n%s\n%s", text, plot)
	}
	isXML(t, plot)
}

// isXML checks that a drawing is XML.
func isXML(t *testing.T, plot []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(plot)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"-n 5", "-rounds 0", "more", "-x"} {
		for name, run := range map[string]func([]string, io.Writer, io.Writer) int{"bench": newBenchCommand().run, "dns": newDNSCommand().run} {
			var stderr bytes.Buffer
			if code := run(strings.Fields(args), io.Discard, &stderr); code != 2 || stderr.Len() == 0 {
				t.Errorf("%s %s = %d, %q, want 2 and a word", name, args, code, &stderr)
			}
		}
	}
	testkit.Equal(t, "dns -seconds 0", newDNSCommand().run([]string{"-seconds", "0"}, io.Discard, io.Discard), 2)
}

func TestAnswersThatAreWrongEndTheRun(t *testing.T) {
	k := &keys{clear: make([]string, 10), listed: make([]string, 10)}
	r := newReport(settings{scale: scale{n: 10}}, machine{})
	for _, tt := range []struct{ listed, clear int }{{9, 0}, {10, 1}} {
		if err := r.proved("somebody", k, tt.listed, tt.clear); err == nil {
			t.Errorf("%d of 10 listed and %d clear senders found: no error", tt.listed, tt.clear)
		}
	}
	check := exactly(k, r)
	if err := check(contestant{}, absent, 1); err == nil {
		t.Error("an absent key found: no error")
	}
	testkit.Must(t, check(contestant{}, listed, 10))
	testkit.Equal(t, "all listed keys found", r.verdicts, 10)
}

func TestSeries(t *testing.T) {
	testkit.Equal(t, "median of three", (series{3, 1, 2}).median(), 2)
	testkit.Equal(t, "median of four", (series{4, 1, 2, 3}).median(), 2.5)
	// A load in the second round slows both down: the ratio does not see it.
	testkit.Equal(t, "ratio under load", (series{20, 200, 20}).ratio(series{10, 100, 10}), 2)
	testkit.Equal(t, "ratio of different numbers of rounds", (series{30}).ratio(series{10, 11, 9}), 3)
}

func TestTableComparesWithItsFirstRow(t *testing.T) {
	table := table{title: "T", columns: []column{{"ns", significant, lower}, {"a second", significant, higher}, {"bits", significant, neither}}}
	table.missing("other", "wants a thing") // told first, and yet not the reference
	for round := range 2 {
		for column, value := range []float64{10, 100, 12} {
			table.add("own", column, value+float64(round))
		}
	}
	table.add("peer", 0, 42)
	table.add("peer", 1, 20)
	got := table.markdown()
	for _, want := range []string{"| own | 10 | 100 | 12 |", "| peer | 42 (4×) | 20 (5×) | - |",
		"Not measured: other (wants a thing).", "Rounds: 2.", "One round only: peer."} {
		testkit.Has(t, got, want)
	}
}

func TestOwnGeneratorNeverRepeatsALine(t *testing.T) {
	seen := map[string]bool{}
	for seed := range 2 {
		var b bytes.Buffer
		testkit.Must(t, writeAddresses(&b, 5000, seed, kindAddress))
		for line := range strings.Lines(b.String()) {
			if seen[line] {
				t.Fatalf("%q twice", line)
			}
			seen[line] = true
		}
	}
	testkit.Equal(t, "lines", len(seen), 10_000)
}

func TestSampleHasAsManyAsAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	var b bytes.Buffer
	testkit.Must(t, writeAddresses(&b, 1000, 1, kindAddress))
	testkit.Write(t, path, b.Bytes())
	lines, err := sampleOf(path, 1000, path+".sample")
	testkit.Must(t, err)
	distinct := map[string]bool{}
	for _, line := range lines {
		testkit.Has(t, b.String(), line+"\n")
		distinct[line] = true
	}
	testkit.Equal(t, "distinct keys of 1000", len(distinct), 1000)
}

func TestAxis(t *testing.T) {
	a := decades(18, 107)
	testkit.Equal(t, "axis of 18 to 107", a, (logAxis{0, 3}))
	if got := a.place(math.Pow(10, 1.5)); math.Abs(got-barsWidth/2) > 1e-9 {
		t.Errorf("the middle lies at %v of %d", got, barsWidth)
	}
	if a := decades(5, 5); a.to <= a.from {
		t.Errorf("axis of one value = %v", a)
	}
}
