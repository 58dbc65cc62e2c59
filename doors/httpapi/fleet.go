package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/sources/roster"
)

// Fleet is what /v1/fleet shows.
type Fleet struct {
	// Reports are those of all nodes that are known, with an error those of this machine; and the nodes that do not report any more.
	Reports func(context.Context) ([]roster.Report, []roster.Gone, error)
	Book    *roster.Book // takes what nodes send here; nil: nothing is taken
}

// FleetView is the answer to GET /v1/fleet.
type FleetView struct {
	Nodes   []roster.Report `json:"nodes" doc:"by their names; a node that has not reported for 90 s is missing"`
	Missing []roster.Gone   `json:"missing,omitempty" doc:"nodes that do not report any more, of the last day, as far as the machine that is asked has seen them since it began"`
	// Sequences and Entries are what roster.Differ says.
	Sequences bool   `json:"sequences_differ" doc:"nodes of a channel serve different sequences, as they do in its stages"`
	Entries   bool   `json:"entries_differ" doc:"nodes with the same revision have different live entries"`
	Fault     string `json:"fault,omitempty" doc:"why there may be more nodes"`
}

func (s *Server) fleetView(w http.ResponseWriter, r *http.Request) {
	all, gone, err := s.settings.Fleet.Reports(r.Context())
	v := FleetView{Nodes: all, Missing: gone}
	if v.Nodes == nil {
		v.Nodes = []roster.Report{}
	}
	if v.Sequences, v.Entries = roster.Differ(all); err != nil {
		v.Fault = err.Error()
	}
	send(w, http.StatusOK, typeJSON, v)
}

// takeReport takes what a node says of itself.
func (s *Server) takeReport(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, roster.MaxReport))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", roster.MaxReport))
		return
	}
	report, err := roster.Decode(body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := s.settings.Fleet.Book.Put(report, len(body), time.Now()); errors.Is(err, roster.ErrFull) {
		s.log.Warn("a node's report is not taken", slog.String("node", report.Node), slog.Any("error", err))
		fail(w, http.StatusInsufficientStorage, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func describeFleet(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "fleet", Summary: "How the nodes of the fleet are",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, FleetView{})}}}
}

func describeTakeReport(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "reportNode", Summary: "A node says how it is, each half minute", Description: "A token of scope report is enough (`blockd token new --report`).",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, roster.Report{})},
		Responses:   map[string]*huma.Response{"204": {Description: "taken, for 90 s"}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage)
	return op
}
