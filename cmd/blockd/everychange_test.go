package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"blockd/records/audit"
)

// commandLines has the actions of the journal that each command can write; none = it changes nothing that the journal is about.
// A new command wants a row.
var commandLines = map[string][]string{
	"add": {audit.EntryAdd, audit.EntryChange}, "remove": {audit.EntryRemove}, "import": {audit.EntryAdd}, "junk": {audit.EntryAdd},
	"pause": {audit.ListPause}, "resume": {audit.ListResume}, "rollback": {audit.ListRollback}, "adopt": {audit.ListAdopt}, "compile": {audit.ListAccept},
	"token new": {audit.TokenAdd}, "token revoke": {audit.TokenRevoke}, "requests grant": {audit.RequestGrant}, "requests decline": {audit.RequestDecline},
	"proposals adopt": {audit.ProposalAdopt}, "proposals decline": {audit.ProposalDecline}, "complaints": {audit.ComplaintTake},
	"quarantine release": {audit.QuarantineRelease}, "quarantine purge": {audit.QuarantineRemove}, "forget": {audit.PersonForget}, "learn": {audit.CorrespondentsAdd},
	"report": {audit.ReportSend}, "publish": {audit.SnapshotPublish}, "publish halt": {audit.SnapshotHalt}, "fleet pin": {audit.FleetPin}, "fleet unpin": {audit.FleetUnpin},
	"live offer": {audit.LiveOffer}, "live dismiss": {audit.LiveDismiss}, "serve": {audit.Configuration}, "reload": {audit.Configuration},

	"audit": nil, "catalogue": nil, "check": nil, "compare": nil, "config": nil, "diff": nil, "doctor": nil, "export": nil, "generations": nil, "health": nil,
	"history": nil, "history top": nil, "lint": nil, "list": nil, "lists": nil, "live status": nil, "live lost": nil, "notify": nil, "proposals": nil,
	"quarantine list": nil, "quarantine show": nil, "replay": nil, "requests": nil, "source ddl": nil, "source lua": nil, "source test": nil, "token list": nil, "version": nil,
}

// TestEveryCommandHasItsActions: all commands are known here, and each action of the journal is that of a command.
func TestEveryCommandHasItsActions(t *testing.T) {
	var walk func(cmd *cobra.Command, name string)
	seen := map[string]bool{}
	walk = func(cmd *cobra.Command, name string) {
		if cmd.Hidden {
			return
		}
		if cmd.Runnable() && name != "" {
			if seen[name] = true; !named(name) {
				t.Errorf("blockd %s: no line of the journal is wanted for it", name)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c, strings.TrimSpace(name+" "+c.Name()))
		}
	}
	walk(newRoot(), "")
	for name := range commandLines {
		if !seen[name] {
			t.Errorf("blockd %s is gone", name)
		}
	}
}

// named reports whether a command has a row. Those that only write the file that they are told to have none.
func named(name string) bool {
	first, _, _ := strings.Cut(name, " ")
	switch {
	case first == "filter", first == "completion", first == "help", name == "init", name == "subscribe", name == "publish keygen", name == "fleet", name == "fleet turn":
		return true
	case name == "live", name == "quarantine", name == "source", name == "token": // they show their commands
		return true
	}
	_, ok := commandLines[name]
	return ok
}
