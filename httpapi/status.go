package httpapi

import (
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"blockd/reload"
)

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "ok\n")
}

// readyz says whether mail may be sent here. A refused reload leaves an older
// generation serving: that is degraded, and still ready.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	status := s.status()
	code, word := http.StatusOK, "degraded"
	switch {
	case !status.Ready:
		code, word = http.StatusServiceUnavailable, "not ready"
	case len(status.Problems) == 0:
		text(w, code, "ok\n")
		return
	}
	var b strings.Builder
	for _, problem := range status.Problems {
		b.WriteString(word + ": " + oneLine(problem) + "\n")
	}
	if len(status.Problems) == 0 {
		b.WriteString(word + "\n")
	}
	text(w, code, b.String())
}

// oneLine keeps a file's odd name from making lines of its own.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}

// listTable is the state of the lists.
type listTable struct {
	Lists       []listRow `json:"lists"`
	Problems    []string  `json:"problems"`
	Ready       bool      `json:"ready"`
	Since       time.Time `json:"since"`        // of the swap
	LastAttempt time.Time `json:"last_attempt"` // to take up changed lists
	Generation  string    `json:"generation"`
}

// listRow is one file of a list, as it is in service.
type listRow struct {
	List     string `json:"list"`
	File     string `json:"file"`
	Format   string `json:"format"`
	Action   string `json:"action"`
	Mode     string `json:"mode"`
	Verdict  string `json:"verdict"` // "refused": the generation serves without it
	Why      string `json:"why"`
	Lines    int    `json:"lines"`
	Entries  int    `json:"entries"`
	Errors   int    `json:"errors"`
	Networks int    `json:"networks"` // entries for client addresses, which do not judge senders
	Bytes    int64  `json:"bytes"`
	Hash     string `json:"hash"` // XXH3-128 of the file
}

func (s *Server) lists(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, "application/json", tableOf(s.status()))
}

func tableOf(status reload.Status) listTable {
	t := listTable{Lists: make([]listRow, len(status.Files)), Problems: status.Problems, Ready: status.Ready,
		Since: status.Since.UTC(), LastAttempt: status.LastAttempt.UTC(), Generation: status.Generation}
	if t.Problems == nil {
		t.Problems = []string{}
	}
	for i, f := range status.Files {
		t.Lists[i] = listRow{List: f.Source.List, File: f.Source.Path, Format: f.Summary.Format,
			Action: f.Source.Settings.Action.String(), Mode: f.Source.Mode.String(),
			Verdict: string(f.Summary.Verdict), Why: f.Summary.Why, Lines: f.Summary.Lines, Entries: f.Summary.Entries,
			Errors: f.Summary.Errors, Networks: f.NetworkEntries, Bytes: f.Summary.Size, Hash: hex.EncodeToString(f.Summary.Hash[:])}
	}
	return t
}
