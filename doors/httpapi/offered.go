package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Catalogue is the answer of /v1/catalogue.
type Catalogue struct {
	Lists []OfferedList `json:"lists"`
}

// OfferedList is a public list that blockd knows.
type OfferedList struct {
	Name       string `json:"name"`
	What       string `json:"what"`
	URL        string `json:"url"`
	Licence    string `json:"licence" doc:"by SPDX"`
	Format     string `json:"format"`
	Cadence    string `json:"cadence" doc:"how often its maintainers change it"`
	Complaints string `json:"complaints" doc:"where to complain about an entry"`
	Judged     string `json:"judged" doc:"the day of the copy that blockd's gate has read"`
	Entries    int    `json:"entries" doc:"that the gate let in"`
	Refused    int    `json:"refused" doc:"lines"`
	Configured bool   `json:"configured" doc:"the configuration has it"`
}

// NewList is a list that is not there yet, as a text for the configuration.
type NewList struct {
	Name    string `json:"name"`
	Text    string `json:"text" doc:"TOML, to be put at the end of the configuration; the list only watches"`
	Command string `json:"command" doc:"that does it; empty: there is none"`
	Said    string `json:"said" doc:"what there is to say of it"`
}

// Offer is what lists there could be.
type Offer struct {
	Lists func() ([]OfferedList, error)
	Text  func(what string) (NewList, error) // of a name of Lists, or an https address
}

func (s *Server) catalogue(w http.ResponseWriter, r *http.Request) {
	all, err := s.settings.Offer.Lists()
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	sendTagged(w, r, Catalogue{Lists: append([]OfferedList{}, all...)})
}

func (s *Server) newList(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"what"})
	}
	var text NewList
	if err == nil {
		text, err = s.settings.Offer.Text(v["what"])
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	sendTagged(w, r, text)
}

func describeCatalogue(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "catalogue", Summary: "Public lists that blockd knows", Description: "Nothing is fetched, and nobody is asked.", Responses: d.tagged(Catalogue{})}
}

func describeNewList(d *document) *huma.Operation {
	what := limited("what", "a name of /v1/catalogue, or an https address", maxQueryText)
	what.Required = true
	op := &huma.Operation{OperationID: "newList", Summary: "How is a list added?",
		Description: "The text for the configuration, which nobody but its owner changes. The list is in shadow mode: it refuses nobody.",
		Parameters:  []*huma.Param{what}, Responses: d.tagged(NewList{})}
	d.problems(op, http.StatusBadRequest)
	return op
}
