package config

import (
	"blockd/records/audit"
	"fmt"
	"os"
	"strings"

	"blockd/index"
	"blockd/index/live"
	"blockd/lists"
	"blockd/reload"
)

// Live is [live]: entries that act at once, without a load (docs/live.md).
type Live struct {
	// A folder for the entries of blockd add and /v1/entries, "auto" (beside the index with the ending
	// ".live"), or "none" for no such entries.
	Folder string `toml:"folder"`
	// What the machines of a fleet share their live entries and tokens by: "postgres" or "redis"; "" keeps them on this machine alone.
	Shared string `toml:"shared" want:"|postgres|redis"`
	// A file with the URL of the database in its first line, with its password: "postgres://…" or "redis://…". Its second line is the key
	// of the fleet's tokens, the same on each machine, which the database never sees.
	DSNFile string `toml:"dsn_file"`
	// Who shares: machines with the same name have the same entries.
	Name string `toml:"name"`
	// What a change does while the database is away: "refuse" changes nothing, and says so; "local" acts on this machine alone until
	// the database is back, and then on all.
	OnOutage string `toml:"on_outage" want:"refuse|local"`
	// Nodes that this one asks for changes in place of the database, "https://HOST:PORT" of their HTTP doors, in turn: for fleets of more than
	// 200 nodes. Changes are made in the database all the same.
	Relays []string `toml:"relays"`
	// A file with a token that may read, of the relays.
	RelayTokenFile string `toml:"relay_token_file"`
}

// maxSharedName bounds live.name, which is part of names in the database.
const maxSharedName = 64

// ReadDSN is the URL of the database. No error of it has any of that.
func (l Live) ReadDSN() (string, error) {
	return addressOf("dsn_file", "", l.DSNFile)
}

// minTokenKey and maxTokenKey bound the key of the fleet's tokens, in octets.
const (
	minTokenKey = 32
	maxTokenKey = 1024
)

// ReadTokenKey is the key by which tokens of the fleet are proved: the second line of the file, which the database does not have; "" = it has none.
func (l Live) ReadTokenKey() (string, error) {
	if _, err := l.ReadDSN(); err != nil { // what is no such file
		return "", err
	}
	text, err := os.ReadFile(l.DSNFile)
	if err != nil {
		return "", fmt.Errorf("dsn_file: %w", err)
	}
	lines := strings.SplitN(string(text), "\n", 3)
	if len(lines) < 2 {
		return "", nil
	}
	key := strings.TrimSpace(lines[1])
	if key != "" && (len(key) < minTokenKey || len(key) > maxTokenKey) {
		return "", fmt.Errorf("dsn_file: %s:2: the key of tokens has %d octets; want %d to %d", l.DSNFile, len(key), minTokenKey, maxTokenKey)
	}
	return key, nil
}

// NodeName is the name of this machine among the nodes of the fleet.
func (c Config) NodeName() string {
	if c.Fleet.Node != "" {
		return c.Fleet.Node
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

func (l Live) validateShared(f *Faults) {
	if l.Shared == "" {
		return
	}
	if l.Folder == None {
		f.add("live.shared", `goes with live entries: live.folder is "none"`)
	}
	if l.Shared == "postgres" && noSQL {
		f.add("live.shared", `"postgres" is not in this build of blockd (-tags nosql); take a build that has it`)
	}
	if l.DSNFile == "" {
		f.add("live.dsn_file", "is missing; want a file with the URL of the database in its first line")
	}
	for i, r := range l.Relays {
		f.store(fmt.Sprintf("live.relays[%d]", i), "", r, "", "https", "http")
	}
	if len(l.Relays) > 0 && l.RelayTokenFile == "" {
		f.add("live.relay_token_file", "is missing; want a file with a token that may read at live.relays (blockd token new there)")
	}
	plain := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`{}/\'"`, c) }
	if l.Name == "" || len(l.Name) > maxSharedName || strings.ContainsFunc(l.Name, plain) {
		f.add("live.name", `want a name of letters, digits and marks (at most %d, without {}/\ and quotes) that all machines which share have, such as "eu-mx"; have %q`, maxSharedName, l.Name)
	}
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

// liveGuard is what no live entry may cover unless it is forced: what no list may, but for a private network that the
// configuration does not name. Whoever writes one such entry means it.
func (c Config) liveGuard() *lists.Guard {
	s := c.guardSettings(List{})
	s.Frees, s.Own = true, ownNetworks(c)
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
	c.Live.validateShared(f)
	if c.Live.Folder == None {
		return
	}
	for i, l := range c.Lists {
		if l.Name == live.ListName {
			f.add(fmt.Sprintf("list[%d].name", i), "%q is the name of the live entries (blockd add): want another one", l.Name)
		}
	}
}
