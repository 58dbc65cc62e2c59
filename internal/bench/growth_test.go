package main

import (
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		first, last int
		want        []int
	}{
		{10_000, 10_000, []int{10_000}},
		{10_000, 1_000_000, []int{10_000, 100_000, 1_000_000}},
		{1, 500, []int{1, 10, 100, 500}},
	} {
		testkit.EqualSlices(t, fmt.Sprintf("steps(%d, %d)", tt.first, tt.last), steps(tt.first, tt.last), tt.want)
	}
}

func TestRowNumber(t *testing.T) {
	for name, want := range map[string]float64{"1": 1, "10,000": 1e4, "100,000,000": 1e8, "10,000 (9,500 sessions)": 1e4} {
		testkit.Equal(t, fmt.Sprintf("rowNumber(%q)", name), rowNumber(name), want)
	}
}

func TestSpanning(t *testing.T) {
	a := spanning([]float64{1e4, 1e6})
	if a.from != 4 || a.to != 6 || math.Abs(a.share(1e5)-0.5) > 1e-9 {
		t.Errorf("axis %+v, 1e5 at %v, want the middle", a, a.share(1e5))
	}
	if a := spanning([]float64{30}); a.from != 1 || a.to != 2 {
		t.Errorf("axis of one value: %+v", a)
	}
}

// A process that is started on one processor keeps it, and this one has all again.
func TestPinned(t *testing.T) {
	allowed := func(processors int) (list string) {
		t.Helper()
		cmd := exec.Command("cat", "/proc/self/status")
		var out strings.Builder
		cmd.Stdout = &out
		testkit.Must(t, pinned(processors, cmd.Run))
		_, list, _ = strings.Cut(out.String(), "Cpus_allowed_list:")
		list, _, _ = strings.Cut(list, "\n")
		return strings.TrimSpace(list)
	}
	if one := allowed(1); strings.ContainsAny(one, ",-") {
		t.Errorf("on one processor: %q", one)
	}
	if two := allowed(2); describeMachine().cores >= 2 && !strings.ContainsAny(two, ",-") {
		t.Errorf("on two: %q", two)
	}
}

// The drawing of a run that has measured little is a drawing still.
func TestGrowthPlot(t *testing.T) {
	g := &growth{scale: scale{n: 100_000}, most: 10}
	g.prepare()
	g.entries.lookups.add("10,000", 0, 100)
	g.entries.lookups.add("100,000", 0, 500)
	g.crowd.add("1", growCrowdHTTP, 40_000)
	text := string(g.plot(machine{cpu: "a < b", cores: 2}))
	isXML(t, []byte(text))
	testkit.Has(t, text, "Look-up in this process", ">100 k<", "clear, 1", "HTTP, 1", "a &lt; b")
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "listed, 1") {
		t.Error("the drawing has what was not measured")
	}
}
