package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/history"
	"blockd/sources/roster"
)

// showFleet prints how all nodes are.
func showFleet(cmd *cobra.Command, path string, asJSON bool) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	v, err := control.FleetView(cmd.Context(), c)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	if err := printFleet(cmd.OutOrStdout(), v); err != nil {
		return err
	}
	if v.Fault != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: there may be more nodes: %s\n", cmd.CommandPath(), term.Visible(v.Fault))
	}
	return nil
}

func printFleet(w io.Writer, v httpapi.FleetView) error {
	p := term.NewPaint(w)
	var t term.Table
	t.Add("node", "version", "sequence", "generation", "lag", "canary", "gate", "sources", "live rev", "checks/s", "refused", "problems")
	for i := range v.Nodes {
		r := &v.Nodes[i]
		sequence, lag, canary, live := "-", "-", "-", "-"
		if r.Channel != "" {
			sequence = strconv.FormatInt(r.Sequence, 10)
			lag = (time.Duration(r.Lag) * time.Second).String()
			if r.Pinned > 0 && r.Pinned == r.Sequence {
				sequence += " (pinned)"
			} else if r.Pinned > 0 {
				sequence += fmt.Sprintf(" (pinned to %d)", r.Pinned)
			} else if r.Sequence < r.Newest {
				sequence += fmt.Sprintf(" of %d", r.Newest)
			}
			if r.Canary {
				canary = "yes"
			}
		}
		if r.LiveRevision > 0 || r.LiveUp {
			if live = strconv.FormatUint(r.LiveRevision, 10); !r.LiveUp {
				live += " (away)"
			}
		}
		gate := strconv.Itoa(r.GateRefusals)
		if r.GateRefusals > 0 {
			gate = p.Red(gate)
		}
		problems := "-"
		if n := len(r.Problems); n > 0 {
			problems = p.Red(strconv.Itoa(n)) + " " + term.Clip(term.Visible(r.Problems[0]), 60)
		}
		if !r.Ready {
			problems = p.Red("not ready ") + problems
		}
		t.Add(term.Visible(r.Node), term.Visible(r.Version), sequence, term.Visible(r.Generation[:min(len(r.Generation), 8)]), lag, canary, gate, sourcesOf(r), live,
			fmt.Sprintf("%.1f", r.PerSecond), fmt.Sprintf("%.2f %%", 100*r.Share()), problems)
	}
	for i := range v.Missing {
		g := &v.Missing[i]
		sequence := "-"
		if g.Sequence > 0 {
			sequence = strconv.FormatInt(g.Sequence, 10)
		}
		t.Add(term.Visible(g.Node), term.Visible(g.Version), sequence, "-", "-", "-", "-", "-", "-", "-", "-", p.Red("missing")+" since "+g.Seen.Local().Format(time.DateTime))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if v.Sequences {
		fmt.Fprintln(w, "nodes of a channel serve different sequences, as they do while a sequence has stages")
	}
	if v.Entries {
		fmt.Fprintln(w, p.Red("nodes with the same revision have different live entries"))
	}
	return nil
}

func sourcesOf(r *roster.Report) string {
	if len(r.Sources) == 0 {
		return "ok"
	}
	var all []string
	for _, s := range r.Sources {
		all = append(all, term.Visible(s.List)+" "+term.Visible(s.State))
	}
	return term.Clip(strings.Join(all, ", "), 60)
}

// showFleetHistory prints what all nodes have decided.
func showFleetHistory(cmd *cobra.Command, path string, flags *decisionFlags, asJSON bool) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	ask, err := flags.parameters()
	if err != nil {
		return err
	}
	found, more, untold, err := control.FleetDecisions(cmd.Context(), c, ask)
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(cmd.OutOrStdout(), found)
	case ask.Has("ref"):
		for i := range found {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "node        %s\n", term.Visible(found[i].Node))
			if err == nil {
				err = explainDecision(cmd.OutOrStdout(), &found[i].Record, nil)
			}
		}
	case len(found) > 0:
		err = printFleetDecisions(cmd.OutOrStdout(), found)
	}
	if more {
		fmt.Fprintf(notes, "%s: note: there are more; --limit shows up to %d, or narrow it by --since and others\n", cmd.CommandPath(), history.MaxFound)
	}
	for _, text := range untold {
		fmt.Fprintf(notes, "%s: note: not asked: %s\n", cmd.CommandPath(), term.Visible(text))
	}
	if len(found) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

func printFleetDecisions(w io.Writer, all []control.NodeDecision) error {
	records, nodes := make([]history.Record, len(all)), make([]string, len(all))
	for i, d := range all {
		records[i], nodes[i] = d.Record, d.Node
	}
	return printDecisionsOf(w, records, nodes)
}
