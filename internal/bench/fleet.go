package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"blockd/internal/minisign"
	"blockd/sources/snapshot"
)

// newFleetCommand is `bench fleet`: the plot of docs/fleet.md, how many nodes have a bad sequence by the time. Nodes are
// those of package snapshot, with stores, manifests, turns and the swap as mail servers have them; only their clock is the simulation's.
func newFleetCommand() *command {
	s := &scale{}
	c := newCommand("bench fleet", s)
	c.flags.IntVar(&s.n, "n", 1000, "`nodes` of the largest fleet")
	c.within = func() bool { return s.n >= 10 && s.n <= 10_000 }
	c.bounds = "-n of 10 to 10,000"
	c.measure = func(ctx context.Context, stdout, _ io.Writer) error {
		var runs []fleetRun
		for _, r := range []fleetRun{
			{name: fmt.Sprintf("%d nodes", s.n), class: "a", nodes: s.n},
			{name: fmt.Sprintf("%d nodes", max(10, s.n*3/10)), class: "b", nodes: max(10, s.n*3/10)},
			{name: "halted at 20 min", class: "c", nodes: s.n, haltAt: 20},
		} {
			if err := r.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			fmt.Fprintln(stdout, r.summary())
			runs = append(runs, r)
		}
		return os.WriteFile(filepath.Join(s.docs, "fleet-stages.svg"), drawFleet(runs), 0o644)
	}
	return c
}

// The stages of the simulation, and its length, in minutes.
const (
	fleetFirst  = 15 // of 1 %
	fleetSecond = 30 // of 20 %
	fleetLength = 60
)

// fleetRun is one fleet, which meets a bad sequence at minute 0.
type fleetRun struct {
	name, class string
	nodes       int
	haltAt      int // minute; 0: nobody halts it

	share []float64       // of nodes that have it, in percent, by minutes
	late  []time.Duration // after the last stage, how long each node took, sorted
}

// run lets all nodes look once a minute, give or take a tenth, each at a moment of its own.
func (r *fleetRun) run(ctx context.Context) error {
	folder, err := os.MkdirTemp("/dev/shm", "blockd-fleet")
	if err != nil {
		folder, err = os.MkdirTemp("", "blockd-fleet")
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	key := minisign.NewSecretKey()
	store := snapshot.Folder(filepath.Join(folder, "store"))
	quiet := slog.New(slog.DiscardHandler)
	p, err := snapshot.OpenPublisher(snapshot.PublisherOptions{Folder: filepath.Join(folder, "publish"), Channel: "prod", Key: key, To: store, Keep: 48, Log: quiet,
		Stages: []snapshot.PlannedStage{{Share: 1, For: fleetFirst * time.Minute}, {Share: 20, For: fleetSecond * time.Minute}}})
	if err != nil {
		return err
	}
	defer p.Close()
	publish := func(now bool, lines ...string) (*snapshot.Published, error) {
		return p.Publish(ctx, snapshot.Content{Lists: []snapshot.List{{Name: "spam", Action: "block", OnMatch: "refuse", Mode: "enforce"}},
			Lines: func(_ context.Context, part, _ int, want func(int, []byte) bool, use func(int, []byte) error) error {
				for _, l := range lines {
					key, _, _ := strings.Cut(l, "\t")
					if part == 0 && want(0, []byte(key)) {
						if err := use(0, []byte(l)); err != nil {
							return err
						}
					}
				}
				return nil
			}}, now)
	}
	good := "a@bulk.example\tb\tx\t\t\t\n"
	if _, err := publish(true, good); err != nil {
		return err
	}
	nodes, next := make([]*snapshot.Node, r.nodes), make([]time.Time, r.nodes)
	rng := rand.New(rand.NewPCG(1, uint64(r.nodes)))
	began := time.Now()
	for i := range nodes {
		nodes[i] = snapshot.New(snapshot.Options{Folder: filepath.Join(folder, fmt.Sprint(i)), Channel: "prod", Node: fmt.Sprintf("mx%d.example", i),
			Keys: []minisign.PublicKey{key.Public()}, From: store, Every: time.Minute, Log: quiet}, nil)
		if err := nodes[i].Open(); err != nil {
			return err
		}
		defer nodes[i].Close()
		next[i] = began.Add(time.Duration(rng.Float64() * float64(time.Minute)))
	}
	if err := atOnce(nodes, func(_ int, n *snapshot.Node) error { return n.At(ctx, began) }); err != nil {
		return err
	}
	told, err := publish(false, good, "everybody@good.example\tb\tx\t\t\t\n")
	if err != nil {
		return err
	}
	began = time.Unix(told.Stages[0].From, 0)
	last := time.Unix(told.Stages[2].From, 0)
	has := make([]bool, r.nodes)
	for minute := range fleetLength {
		if minute == r.haltAt && minute > 0 {
			if _, err := p.Halt(ctx, time.Now().Add(24*time.Hour)); err != nil {
				return err
			}
		}
		end := began.Add(time.Duration(minute+1) * time.Minute)
		for { // a node may look twice in a minute
			due := false
			err := atOnce(nodes, func(i int, n *snapshot.Node) error {
				if !next[i].Before(end) {
					return nil
				}
				return n.At(ctx, next[i])
			})
			if err != nil {
				return err
			}
			for i, n := range nodes {
				if !next[i].Before(end) {
					continue
				}
				if now := n.Status().Sequence == told.Sequence; now != has[i] {
					if has[i] = now; now && !next[i].Before(last) {
						r.late = append(r.late, next[i].Sub(last))
					}
				}
				next[i] = next[i].Add(time.Duration((0.9 + 0.2*rng.Float64()) * float64(time.Minute)))
				due = due || next[i].Before(end)
			}
			if !due {
				break
			}
		}
		count := 0
		for _, h := range has {
			if h {
				count++
			}
		}
		r.share = append(r.share, 100*float64(count)/float64(r.nodes))
	}
	slices.Sort(r.late)
	return nil
}

// atOnce lets all nodes do something at once.
func atOnce(nodes []*snapshot.Node, do func(int, *snapshot.Node) error) error {
	var group errgroup.Group
	for i, n := range nodes {
		group.Go(func() error { return do(i, n) })
	}
	return group.Wait()
}

func (r *fleetRun) summary() string {
	text := fmt.Sprintf("%s: %.1f %% after 10 min, %.1f %% after 40 min, %.1f %% at the end", r.name, r.share[10], r.share[40], r.share[len(r.share)-1])
	if n := len(r.late); n > 0 {
		text += fmt.Sprintf("; after the last stage p50 %v, p99 %v", r.late[n/2].Round(time.Second), r.late[n*99/100].Round(time.Second))
	}
	return text
}

// The measures of the drawing, in SVG units.
const (
	fleetHeight = 420
	fleetLeft   = 70
	fleetTop    = 74
	fleetRight  = 150
	fleetBottom = 50
)

func fleetX(minute float64) float64 {
	return fleetLeft + minute/fleetLength*(plotWidth-fleetLeft-fleetRight)
}

func fleetY(share float64) float64 {
	return fleetTop + (100-share)/100*(fleetHeight-fleetTop-fleetBottom)
}

// drawFleet draws the share of nodes over the minutes.
func drawFleet(runs []fleetRun) []byte {
	const title = "How many nodes a bad sequence reaches"
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">
<title>%s</title>
<style>
.paper { fill: #fff } .grid { stroke: #d8dee4 } text { fill: #1f2328 } .faint { fill: #59636e; font-size: 12px } .head { font-size: 17px; font-weight: 600 }
path.a, path.b, path.c { fill: none; stroke-width: 2 } .a { stroke: #0b62c4 } .b { stroke: #b35900 } .c { stroke: #1a7f37 }
text.a { fill: #0b62c4; stroke: none } text.b { fill: #b35900; stroke: none } text.c { fill: #1a7f37; stroke: none }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } .faint { fill: #9198a1 }
.a { stroke: #58a6ff } .b { stroke: #f0883e } .c { stroke: #56d364 } text.a { fill: #58a6ff; stroke: none } text.b { fill: #f0883e; stroke: none } text.c { fill: #56d364; stroke: none }
}
</style>
<rect class="paper" width="%[1]d" height="%[2]d"/>
`, plotWidth, fleetHeight, title)
	fmt.Fprintf(&b, "<text class=\"head\" x=\"%d\" y=\"30\">%s</text>\n", plotMargin, title)
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"49\">Stages: 1 %% for %d min, 20 %% for %d min, all. Each node looks once a minute. Simulated with the code of nodes and publisher.</text>\n", plotMargin, fleetFirst, fleetSecond)
	for share := 0; share <= 100; share += 20 {
		y := fleetY(float64(share))
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n", fleetLeft, y, plotWidth-fleetRight, fleetLeft-8, y+4, share)
	}
	for minute := 0; minute <= fleetLength; minute += 15 {
		x := fleetX(float64(minute))
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"faint\" x=\"%.1[1]f\" y=\"%[4]d\" text-anchor=\"middle\">%[5]d</text>\n", x, fleetTop, fleetHeight-fleetBottom, fleetHeight-fleetBottom+18, minute)
	}
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">minutes since it was published</text>\n", (fleetLeft+plotWidth-fleetRight)/2, fleetHeight-12)
	for i, r := range runs {
		fmt.Fprintf(&b, `<path class="%s" d="M%.1f %.1f`, r.class, fleetX(0), fleetY(0))
		for minute, share := range r.share {
			fmt.Fprintf(&b, "L%.1f %.1f", fleetX(float64(minute+1)), fleetY(share))
		}
		y := fleetY(r.share[len(r.share)-1]) + 4
		if i == 1 {
			y += 18 // it ends where the first one does
		}
		fmt.Fprintf(&b, "\"/>\n<text class=\"%s\" x=\"%d\" y=\"%.1f\">%s</text>\n", r.class, plotWidth-fleetRight+8, y, r.name)
	}
	return []byte(b.String() + "</svg>\n")
}
