package main

import (
	"strings"
	"testing"

	"blockd/records/history"
)

// TestRefusedForNoList: who looks up the reference of a refusal by helo or ptr is told that
// it was no list, and where the reason stands.
func TestRefusedForNoList(t *testing.T) {
	for _, tt := range []struct {
		record history.Record
		rule   bool
	}{
		{history.Record{Outcome: "refuse", Verdict: "clear"}, true},
		{history.Record{Outcome: "refuse", Verdict: "blocked", List: "own"}, false},
		{history.Record{Outcome: "defer", Verdict: "unknown"}, false}, // the store could not be read
		{history.Record{Outcome: "accept", Verdict: "clear"}, false},
	} {
		if got := outcomeText(&tt.record); strings.Contains(got, "no list is the reason") != tt.rule {
			t.Errorf("%+v: %s", tt.record, got)
		}
	}
}
