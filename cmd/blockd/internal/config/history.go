package config

// History is [history]: the last decisions, on disk (docs/history.md).
type History struct {
	// A folder for the decisions about mail, "auto" (beside the index with the ending ".history"), or
	// "none" to keep nothing.
	Folder string `toml:"folder"`
	// The size of all its files. The oldest go first.
	Max Octets `toml:"max" want:"16 MiB to 1 TiB"`
	// Older decisions are not shown, and are gone a day later.
	Keep Duration `toml:"keep" want:"1h to 3650d"`
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
}
