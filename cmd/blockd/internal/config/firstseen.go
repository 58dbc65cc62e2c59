package config

import (
	"time"

	"blockd/bloom/filter"
)

// FirstSeen is [first_seen]: mail from domains that have not sent mail here before (docs/first-seen.md).
type FirstSeen struct {
	// Whether the domains of senders are remembered, and mail from a new one is treated by on_first.
	Domains bool `toml:"domains"`
	// What becomes of that mail: "tag" gives it the header field X-Blockd-First-Seen: yes, "tempfail" puts it off once.
	OnFirst string `toml:"on_first" want:"tag|tempfail"`
	// How long a domain is remembered after its last mail, and twice as long at most.
	Keep Duration `toml:"keep" want:"1h to 3650d"`
	// The memory and the file for the domains: 4 MiB for 1.4 million within keep. When it is full, those
	// that came first are forgotten early.
	Size Octets `toml:"size" want:"64 KiB to 1 GiB"`
}

func defaultFirstSeen() FirstSeen {
	return FirstSeen{OnFirst: "tag", Keep: Duration(30 * day), Size: 4 << 20}
}

// FirstSeenPath is where the domains are kept.
func (c Config) FirstSeenPath() string { return c.Index.Path + ".domains.bds" }

// Settings are those of the set of domains.
func (f FirstSeen) Settings() filter.SeenSettings {
	return filter.SeenSettings{Octets: int64(f.Size), MaxAge: time.Duration(f.Keep)}
}
