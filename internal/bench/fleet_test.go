package main

import (
	"testing"

	"blockd/internal/testkit"
)

// TestFleet holds that the simulation has stages, that a halt takes the sequence back, and that the plot is XML.
func TestFleet(t *testing.T) {
	r := fleetRun{name: "20 nodes", class: "a", nodes: 20}
	halted := fleetRun{name: "halted", class: "c", nodes: 20, haltAt: 50}
	for _, run := range []*fleetRun{&r, &halted} {
		testkit.Must(t, run.run(t.Context()))
	}
	if r.share[40] >= 100 || r.share[fleetLength-1] != 100 {
		t.Errorf("after 40 minutes %.0f %%, at the end %.0f %%", r.share[40], r.share[fleetLength-1])
	}
	if halted.share[fleetLength-1] != 0 || halted.share[49] != 100 {
		t.Errorf("before a halt %.0f %%, and at the end %.0f %%", halted.share[49], halted.share[fleetLength-1])
	}
	isXML(t, drawFleet([]fleetRun{r, halted}))
}
