package config

import (
	"time"

	"blockd/records/audit"
)

// Audit is [audit]: the journal of what people and tokens have changed (docs/audit.md).
type Audit struct {
	// A folder for the journal, "auto" (beside the index with the ending ".audit"), or "none" to keep
	// nothing.
	Folder string `toml:"folder"`
	// The size of all its files. The oldest go first.
	Max Octets `toml:"max" want:"16 MiB to 1 TiB"`
	// Files whose lines are all older go.
	Keep Duration `toml:"keep" want:"1d to 36500d"`
}

func defaultAudit() Audit {
	return Audit{Folder: Auto, Max: 1 << 30, Keep: Duration(3 * 365 * day)}
}

// AuditFolder is where the journal is; not for "none".
func (c Config) AuditFolder() string {
	if c.Audit.Folder == Auto {
		return c.Index.Path + ".audit"
	}
	return c.Audit.Folder
}

// Journal is the audit journal; nil if none is to be kept.
func (c Config) Journal() *audit.Log {
	if c.Audit.Folder == None {
		return nil
	}
	return audit.New(audit.Settings{Folder: c.AuditFolder(), Max: int64(c.Audit.Max), Keep: time.Duration(c.Audit.Keep)})
}

func (a Audit) validate(f *Faults) {
	if a.Folder == "" {
		f.add("audit.folder", `want a folder, "auto" or "none"`)
	}
}
