package config

import (
	"time"

	"blockd/history"
)

// History is [history]: the last decisions, on disk.
type History struct {
	Folder string   `toml:"folder"` // "auto": INDEX.history beside the index; "none": nothing is kept
	Max    Octets   `toml:"max"`    // of all its files
	Keep   Duration `toml:"keep"`
}

func defaultHistory() History {
	return History{Folder: Auto, Max: 256 << 20, Keep: Duration(30 * day)}
}

// HistoryFolder is where decisions are kept; not for "none".
func (c Config) HistoryFolder() string {
	if c.History.Folder == Auto {
		return c.Index.Path + ".history"
	}
	return c.History.Folder
}

func (h History) validate(f *Faults) {
	if h.Folder == "" {
		f.add("history.folder", `want a folder, "auto" or "none"`)
	}
	if h.Max < history.MinMax || h.Max > 1<<40 {
		f.add("history.max", `want 16 MiB to 1 TiB, have "%s"`, h.Max)
	}
	f.between("history.keep", h.Keep, time.Hour, 3650*day)
}
