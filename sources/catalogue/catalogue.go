// Package catalogue is the public lists that blockd knows by name.
package catalogue

import (
	"bytes"
	_ "embed"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

//go:embed lists.toml
var file []byte

// List is a public list, and what is known of it.
type List struct {
	Name       string         `toml:"name" json:"name"`
	What       string         `toml:"what" json:"what"`
	URL        string         `toml:"url" json:"url"`         // https
	Licence    string         `toml:"licence" json:"licence"` // SPDX
	Format     string         `toml:"format" json:"format"`   // as list.format has it
	Cadence    string         `toml:"cadence" json:"cadence"` // how often its maintainers change it, or "unknown"
	Complaints string         `toml:"complaints" json:"complaints"`
	Judged     toml.LocalDate `toml:"judged" json:"judged"`   // the day of the copy that the gate has read
	Entries    int            `toml:"entries" json:"entries"` // that the gate let in
	Refused    int            `toml:"refused" json:"refused"` // lines
}

// Lists are all of them, in the order of the file. Any goroutine may call it.
func Lists() ([]List, error) {
	var all struct {
		List []List `toml:"list"`
	}
	d := toml.NewDecoder(bytes.NewReader(file)).DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	return all.List, nil
}
