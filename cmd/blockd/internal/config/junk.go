package config

import (
	"time"

	"blockd/policy/junk"
)

// Junk is [junk]: what follows when users move mail to Junk (docs/recipients.md).
type Junk struct {
	// How long the sender of such a mail is blocked for that user, and how long it counts for a proposal.
	For Duration `toml:"for" want:"1h to 3650d"`
	// So many users who agree about a sender make a proposal to block it for everybody, which a person adopts or declines. 0: none is made.
	Agree int `toml:"agree" want:"0 or 2 to 100000"`
	// Of so many different domains they have to be. With more than 1, no tenant can make a proposal alone.
	Domains int `toml:"domains" want:"1 to 1000"`
}

func defaultJunk() Junk { return Junk{For: Duration(30 * day), Agree: 5, Domains: 1} }

// JunkPath is where it is kept what users say of senders; "" if nothing is proposed.
func (c Config) JunkPath() string {
	if c.Junk.Agree == 0 {
		return ""
	}
	return c.Index.Path + ".junk"
}

// JunkBox is what users say of senders; nil if nothing is proposed.
func (c Config) JunkBox() *junk.Box {
	path := c.JunkPath()
	if path == "" {
		return nil
	}
	return junk.NewBox(junk.Settings{Path: path, Agree: c.Junk.Agree, Domains: c.Junk.Domains, Keep: time.Duration(c.Junk.For)})
}

// JunkDesk is a desk without entries and correspondents.
func (c Config) JunkDesk() *junk.Desk {
	return &junk.Desk{Guards: junk.Guards{Protected: c.liveGuard().Protects}, Box: c.JunkBox(), Life: time.Duration(c.Junk.For)}
}

// validateJunk checks what the tags do not.
func (c Config) validateJunk(f *Faults) {
	if c.Junk.Agree > 0 && c.Junk.Domains > c.Junk.Agree {
		f.add("junk.domains", "%d users cannot be of %d domains", c.Junk.Agree, c.Junk.Domains)
	}
}
