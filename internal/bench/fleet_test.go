package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"testing"
)

// TestFleet holds that the simulation has stages, that a halt takes the sequence back, and that the plot is XML.
func TestFleet(t *testing.T) {
	r := fleetRun{name: "20 nodes", class: "a", nodes: 20}
	halted := fleetRun{name: "halted", class: "c", nodes: 20, haltAt: 50}
	for _, run := range []*fleetRun{&r, &halted} {
		if err := run.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r.share[40] >= 100 || r.share[fleetLength-1] != 100 {
		t.Errorf("after 40 minutes %.0f %%, at the end %.0f %%", r.share[40], r.share[fleetLength-1])
	}
	if halted.share[fleetLength-1] != 0 || halted.share[49] != 100 {
		t.Errorf("before a halt %.0f %%, and at the end %.0f %%", halted.share[49], halted.share[fleetLength-1])
	}
	for d := xml.NewDecoder(bytes.NewReader(drawFleet([]fleetRun{r, halted}))); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
