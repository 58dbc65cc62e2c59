package httpapi

import (
	"net/http"
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

func (s *Server) catalogue() method {
	return operate(s, operation{method: http.MethodGet, id: "catalogue", summary: "Public lists that blockd knows", about: "Nothing is fetched, and nobody is asked.", tagged: true, large: true, status: http.StatusInternalServerError},
		func(call, struct{}) (Catalogue, error) {
			all, err := s.settings.Offer.Lists()
			return Catalogue{Lists: append([]OfferedList{}, all...)}, err
		})
}

func (s *Server) newList() method {
	return operate(s, operation{method: http.MethodGet, id: "newList", summary: "How is a list added?", right: privately, tagged: true, status: http.StatusBadRequest,
		about: "The text for the configuration, which nobody but its owner changes. The list is in shadow mode: it refuses nobody.",
	}, func(_ call, q struct {
		What string `query:"what" required:"true" doc:"a name of /v1/catalogue, or an https address" maxLength:"1000"`
	}) (NewList, error) {
		return s.settings.Offer.Text(q.What)
	})
}
