package config

import (
	"blockd/audit"
	"fmt"
	"net/netip"

	"blockd/index"
	"blockd/lists"
	"blockd/live"
	"blockd/reload"
)

// Live is [live]: entries that act at once, without a load (docs/live.md).
type Live struct {
	// A folder for the entries of blockd add and /v1/entries, "auto" (beside the index with the ending
	// ".live"), or "none" for no such entries.
	Folder string `toml:"folder"`
}

// The words in place of a path.
const (
	Auto = "auto"
	None = "none"
)

// LiveFolder is where live entries are kept; not for "none".
func (c Config) LiveFolder() string {
	if c.Live.Folder == Auto {
		return c.Index.Path + ".live"
	}
	return c.Live.Folder
}

// LiveSettings returns the settings of package live. journal may be nil.
func (c Config) LiveSettings(journal *audit.Log) live.Settings {
	return live.Settings{MaxPerOwner: c.Recipients.MaxEntriesPerOwner, Audit: journal, Folder: c.LiveFolder(), Guard: c.liveGuard(), Hashes: c.Index.Digests()}
}

// liveGuard is what no live entry may cover unless it is forced: what no list may, and
// this machine, the networks that the configuration names as one's own, and the
// mailboxes that complaints come from.
func (c Config) liveGuard() *lists.Guard {
	s := c.guardSettings(List{})
	s.Frees = true
	s.Mailboxes = []string{"postmaster", "abuse"}
	s.Own = []lists.OwnNetwork{{Net: netip.MustParsePrefix("127.0.0.0/8"), What: "this machine itself"}, {Net: netip.MustParsePrefix("::1/128"), What: "this machine itself"}}
	for _, own := range []struct {
		key   string
		texts []string
	}{{"smtp.trusted", c.SMTP.Trusted}, {"smtp.proxy_from", c.SMTP.ProxyFrom}, {"auth.clients", c.Auth.Clients}, {"auth.trusted_relays", c.Auth.TrustedRelays},
		{"milter.allow_from", c.Milter.AllowFrom}, {"postfix.allow_from", c.Postfix.AllowFrom}, {"resp.allow_from", c.RESP.AllowFrom}} {
		for _, n := range Networks(own.texts) {
			s.Own = append(s.Own, lists.OwnNetwork{Net: n, What: "which is in " + own.key})
		}
	}
	return newGuard(s)
}

// liveList is the list of live entries as the index has it. What is in it has passed
// the gate one by one, and one person may add or remove many.
func (c Config) liveList() reload.List {
	return reload.List{
		Name: live.ListName, Path: live.ListPattern(c.LiveFolder()), Settings: lists.Settings{Format: "plain"}, Exceptions: index.AllExceptions,
		Optional: true, AllowEmpty: true, Own: true, MaxRecentBlocked: 1, MaxFreed: 1,
	}
}

// validateLive checks [live], and that its list has its name for itself.
func (c Config) validateLive(f *Faults) {
	if c.Live.Folder == "" {
		f.add("live.folder", `want a folder, "auto" or "none"`)
	}
	if c.Live.Folder == None {
		return
	}
	for i, l := range c.Lists {
		if l.Name == live.ListName {
			f.add(fmt.Sprintf("list[%d].name", i), "%q is the name of the live entries (blockd add): want another one", l.Name)
		}
	}
}
