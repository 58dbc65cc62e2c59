package mirror

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/durable"
	"blockd/lists"
)

// files is how many files a copy has.
const files = lists.EntryShards

// State is what a generation of the copy says of itself, as its file "state" has it.
type State struct {
	Fingerprint string       `toml:"fingerprint"`       // of the source
	Reading     string       `toml:"reading,omitempty"` // how its rows were read; see reading
	Mark        Mark         `toml:"mark"`              // where its changes go on
	Read        time.Time    `toml:"read"`              // when the last full read ended
	Lines       [files]int64 `toml:"lines"`             // entries of each file
}

// reading says which settings of the list stand in the lines of a copy: rows read under others make other lines. "" is
// a list that blocks, with its own scope for bare names.
func reading(s lists.Settings) (text string) {
	if s.Action == lists.Allow {
		text = "allow"
	}
	if s.Subdomains != nil {
		text += fmt.Sprintf(" subdomains=%t", *s.Subdomains)
	}
	if s.PerRecipient {
		text += " per_recipient"
	}
	return strings.TrimSpace(text)
}

// readFrom reports whether the generation has the rows of this source, read under these settings of the list.
func (s *State) readFrom(fingerprint string, settings lists.Settings) bool {
	return s.Fingerprint == fingerprint && s.Reading == reading(settings)
}

// Entries is how many entries the generation has.
func (s *State) Entries() (n int64) {
	for _, lines := range s.Lines {
		n += lines
	}
	return n
}

func (s *State) write(folder string) error {
	text, err := toml.Marshal(s)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(folder, stateName), text, 0o640)
}

func readState(folder string) (s State, err error) {
	text, err := os.ReadFile(filepath.Join(folder, stateName))
	if err == nil {
		err = toml.Unmarshal(text, &s)
	}
	return s, err
}
