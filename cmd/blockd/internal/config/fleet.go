package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/internal/minisign"
	"blockd/sources/snapshot"
)

// Fleet is [fleet]: lists that another machine has judged, signed and published (docs/fleet.md).
type Fleet struct {
	// Where snapshots are: "https://HOST/FOLDER", "s3://HOST/BUCKET/PREFIX" or "file:///FOLDER"; "" takes none.
	From string `toml:"from"`
	// A file with the address in its first line, for one with a password.
	FromFile string `toml:"from_file,omitempty"`
	// The keys of publishers, each "minisign:" and a public key: one of them has to have signed. Two for a change of key.
	Keys []string `toml:"keys"`
	// How often the store is asked, give or take a tenth.
	Every Duration `toml:"every" want:"1s to 24h"`
	// Which of the channels of the store.
	Channel string `toml:"channel"`
	// The name of this machine among the nodes, by which it has its turn in stages; the machine's own name if it is "".
	Node string `toml:"node"`
	// This node is among the first of each sequence.
	Canary bool `toml:"canary"`
	// The number of a sequence to stay at; "" follows the channel.
	Pin string `toml:"pin"`
	// When the newest snapshot is older, a remark says so; it serves on. 0s: never.
	MaxAge Duration `toml:"max_age" want:"0s or 1m to 3650d"`
	// Other nodes that serve what they have fetched, "http://HOST:PORT": asked for objects before from, and for the rest if
	// from is away.
	Relays []string `toml:"relays"`
	// HOST:PORT where this node serves to others what it has fetched; "" shuts this door. It needs no token: what is there is signed, and
	// is all entries of the channel's lists.
	RelayListen string `toml:"relay_listen"`
	// Where this node tells how it is, each half minute: "https://HOST:PORT/v1/fleet" of the publisher. Not needed with live.shared,
	// by whose database all nodes are seen.
	Report string `toml:"report"`
	// Where others can ask the HTTP door of this machine, "https://HOST:PORT", for blockd history --fleet; "" leaves its history out.
	Address string `toml:"address"`
	// A file with a token: for fleet.report one of scope report of that machine (blockd token new --report there), and where blockd history
	// --fleet is typed one that may read at the others.
	TokenFile string `toml:"token_file"`
	// Which nodes blockd history --fleet asks: hosts, "*.DOMAIN" for all names below it, both by https with a certificate
	// that is valid for the name, or whole addresses "http://HOST:PORT". A node says itself where it can be asked, so nobody else gets the token.
	Ask []string `toml:"ask"`
}

// Viewed reports whether this machine is one of several that see each other.
func (c Config) Viewed() bool {
	return c.Fleet.On() || c.Fleet.Report != "" || c.Publish.On() || c.Live.Shared != ""
}

// Others reports whether one of those can be seen here.
func (c Config) Others() bool { return c.Publish.On() || c.Live.Shared != "" }

// Publish is [publish]: what this machine serves becomes a snapshot for other machines (docs/fleet.md).
type Publish struct {
	// Where to: "s3://HOST/BUCKET/PREFIX" or "file:///FOLDER"; "" publishes nothing.
	To string `toml:"to"`
	// A file with the address in its first line, for one with a password.
	ToFile string `toml:"to_file,omitempty"`
	// A file with a secret key of minisign that has no password: blockd publish keygen FILE makes one.
	KeyFile string `toml:"key_file"`
	// The name of the channel.
	Channel string `toml:"channel"`
	// How many sequences stay in the store.
	Keep int `toml:"keep" want:"2 to 10000"`
	// The channel is halted when the nodes that have a new sequence first refuse so much more than the others that it is no chance. It needs
	// nodes that report here (fleet.report, or live.shared).
	Brake bool `toml:"brake"`
	// The names of the lists that are published; [] is all of [[list]]. Live entries stay here.
	Lists []string `toml:"lists"`

	Stages []PublishStage `toml:"stage,omitempty"`
}

// PublishStage is [[publish.stage]], one table a stage, before the one of all nodes.
type PublishStage struct {
	// The share of the nodes, in percent, that takes a sequence from then on.
	Share int `toml:"share" want:"1 to 100"`
	// How long, until the next stage begins.
	For Duration `toml:"for" want:"1s to 31d"`
}

func defaultFleet() Fleet {
	return Fleet{Keys: []string{}, Every: Duration(time.Minute), Channel: "prod", MaxAge: Duration(day), Relays: []string{}, Ask: []string{}}
}

func defaultPublish() Publish {
	return Publish{Channel: "prod", Keep: 48, Brake: true, Lists: []string{}}
}

// On reports whether snapshots are taken.
func (f Fleet) On() bool { return f.From != "" || f.FromFile != "" }

// On reports whether snapshots are published.
func (p Publish) On() bool { return p.To != "" || p.ToFile != "" }

// FleetFolder is where the snapshots that were taken are.
func (c Config) FleetFolder() string { return c.Index.Path + ".fleet" }

// PublishFolder is where a publisher remembers what it has published.
func (c Config) PublishFolder() string { return c.Index.Path + ".publish" }

// Store is where snapshots are. No error of it has any of that.
func (f Fleet) Store() (string, error) { return addressOf("from_file", f.From, f.FromFile) }

// Address is where they go.
func (p Publish) Address() (string, error) { return addressOf("to_file", p.To, p.ToFile) }

func addressOf(key, address, file string) (string, error) {
	if file == "" {
		return address, nil
	}
	text, err := Source{DSNFile: file}.ReadDSN()
	if err != nil {
		return "", fmt.Errorf("%s%s", key, strings.TrimPrefix(err.Error(), "dsn_file"))
	}
	return text, nil
}

func (c Config) validateFleet(f *Faults) {
	n := c.Fleet
	if n.On() && c.Publish.On() {
		f.add("publish.to", "goes without [fleet]: what a machine takes from a publisher it does not publish")
	}
	f.store("fleet.from", "from_file", n.From, n.FromFile, "https", "http", "s3", "file")
	f.hostPort("fleet.relay_listen", n.RelayListen)
	f.store("fleet.report", "", n.Report, "", "https", "http")
	f.store("fleet.address", "", n.Address, "", "https", "http")
	if n.Report != "" && n.TokenFile == "" {
		f.add("fleet.token_file", "is missing; want a file with a token of the machine that fleet.report names (blockd token new --report there)")
	}
	for i, r := range n.Relays {
		f.store(fmt.Sprintf("fleet.relays[%d]", i), "", r, "", "http", "https")
	}
	for i, a := range n.Ask {
		if !validAsk(a) {
			f.add(fmt.Sprintf("fleet.ask[%d]", i), `want a host such as "mx17.example", "*.mx.example", or "http://10.0.0.7:8025", have %q`, a)
		}
	}
	for i, l := range c.Lists {
		if l.fromSnapshot() && !n.On() {
			f.add(fmt.Sprintf("list[%d].source.filter", i), `"snapshot" goes with [fleet]: it is a filter that a publisher has made`)
		}
	}
	for i, key := range n.Keys {
		if _, err := minisign.ParsePublicKey(key); err != nil {
			f.add(fmt.Sprintf("fleet.keys[%d]", i), "%v", err)
		}
	}
	if n.On() && len(n.Keys) == 0 {
		f.add("fleet.keys", `is missing; want the public key of the publisher, as blockd publish keygen prints it`)
	}
	if !snapshot.IsChannel(n.Channel) {
		f.add("fleet.channel", "want small letters, digits and . _ - (at most 64), have %q", n.Channel)
	}
	if n.Pin != "" {
		if p, err := strconv.ParseInt(n.Pin, 10, 64); err != nil || p < 1 {
			f.add("fleet.pin", `want the number of a sequence in quotes, such as "4711", have %q`, n.Pin)
		}
	}
	if len(n.Node) > 255 {
		f.add("fleet.node", "want a name of at most 255 octets")
	}
}

func validAsk(text string) bool {
	if address, ok := strings.CutPrefix(text, "http://"); ok {
		host, port, err := net.SplitHostPort(address)
		return err == nil && host != "" && port != "" && !strings.ContainsAny(address, "/@?#*")
	}
	name := strings.TrimPrefix(text, "*.")
	return name != "" && !strings.ContainsAny(name, "*/:@?# ") && (name == text || strings.Contains(name, "."))
}

// MayAsk reports whether a token may go to an address that a node has reported (fleet.ask).
func (f Fleet) MayAsk(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Host == "" {
		return false
	}
	if u.Scheme == "http" {
		return slices.Contains(f.Ask, "http://"+u.Host)
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return u.Scheme == "https" && slices.ContainsFunc(f.Ask, func(a string) bool {
		below, tree := strings.CutPrefix(strings.ToLower(a), "*")
		return tree && strings.HasSuffix(host, below) && len(host) > len(below) || host == strings.ToLower(a)
	})
}

func (c Config) validatePublish(f *Faults) {
	p := c.Publish
	f.store("publish.to", "to_file", p.To, p.ToFile, "s3", "file")
	if p.On() && p.KeyFile == "" {
		f.add("publish.key_file", "is missing; make one: blockd publish keygen FILE")
	}
	if !snapshot.IsChannel(p.Channel) {
		f.add("publish.channel", "want small letters, digits and . _ - (at most 64), have %q", p.Channel)
	}
	for i, name := range p.Lists {
		if !slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == name }) {
			f.add(fmt.Sprintf("publish.lists[%d]", i), "no [[list]] is named %q", name)
		}
	}
	if len(p.Stages) > 15 {
		f.add("publish.stage", "at most 15 stages")
	}
	share := 0
	for i, s := range p.Stages {
		at := fmt.Sprintf("publish.stage[%d]", i)
		switch {
		case s.Share < 1 || s.Share > 100:
			f.add(at+".share", "want 1 to 100, have %d", s.Share)
		case s.Share <= share:
			f.add(at+".share", "want more than %d, the share of the stage before, have %d", share, s.Share)
		}
		if share = s.Share; s.For < Duration(time.Second) || s.For > Duration(31*day) {
			f.add(at+".for", "want 1s to 31d, have %v", s.For)
		}
	}
}

// store checks the address of a store. No fault shows it.
func (f *Faults) store(key, fileKey, text, file string, schemes ...string) {
	if text != "" && file != "" {
		f.add(key, "goes without %s: one of them says where the store is", fileKey)
	}
	if text == "" {
		return
	}
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok || !slices.Contains(schemes, scheme):
		f.add(key, "want %s://…", strings.Join(schemes, "://… or "))
	case scheme == "file" && (!strings.HasPrefix(rest, "/") || len(rest) < 2):
		f.add(key, "want file:///FOLDER")
	case fileKey != "" && strings.Contains(rest, "@"):
		f.add(key, "may have a password: put it into a file of mode 0600, and name that in %s", fileKey)
	case strings.HasPrefix(scheme, "http"):
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			f.add(key, "want %s://HOST/FOLDER", scheme)
		}
	}
}

// Snapshots are the settings of a node but for its stores.
func (c Config) Snapshots() snapshot.Options {
	n := c.Fleet
	o := snapshot.Options{Folder: c.FleetFolder(), Channel: n.Channel, Node: cmp.Or(n.Node, MachineName()), Canary: n.Canary, Every: time.Duration(n.Every), MaxAge: time.Duration(n.MaxAge), Serves: n.RelayListen != ""}
	o.Pin, _ = strconv.ParseInt(n.Pin, 10, 64)
	for _, text := range n.Keys {
		if k, err := minisign.ParsePublicKey(text); err == nil {
			o.Keys = append(o.Keys, k)
		}
	}
	o.Check = func(m *snapshot.Manifest) error {
		_, err := c.fleetLists(m)
		return err
	}
	return o
}

// Stages are those of [[publish.stage]].
func (p Publish) PlannedStages() (all []snapshot.PlannedStage) {
	for _, s := range p.Stages {
		all = append(all, snapshot.PlannedStage{Share: s.Share, For: time.Duration(s.For)})
	}
	return all
}

// ReadKey reads the key that signs.
func (p Publish) ReadKey() (k minisign.SecretKey, err error) {
	info, err := os.Stat(p.KeyFile)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > minisign.MaxKeyFile) {
		err = errors.New("no file with a key")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(p.KeyFile)
	}
	if err == nil {
		k, err = minisign.ParseSecretKey(text)
	}
	if err != nil {
		return k, fmt.Errorf("publish.key_file: %s: %w; put the key back from its copy, or, with its public key in fleet.keys of every node: rm %[1]s; blockd publish keygen %[1]s", p.KeyFile, err)
	}
	return k, nil
}

// Published reports whether a list is to be published.
func (c Config) Published(l List) bool {
	return len(c.Publish.Lists) == 0 || slices.Contains(c.Publish.Lists, l.Name)
}

// Manifest is a list as a manifest says it, without its entries.
func (l List) Manifest() snapshot.List {
	s := snapshot.List{Name: l.Name, Action: l.Action, OnMatch: l.OnMatch, Mode: l.Mode, Format: "entries", Subdomains: l.Subdomains,
		Require: l.Require, Discard: l.Discard, Tarpit: time.Duration(l.Tarpit).Milliseconds(), Text: l.Text, Contact: l.Contact,
		PerRecipient: l.PerRecipient, NoOverride: l.NoOverride}
	if l.Exceptions != "own" {
		s.Exceptions = l.Exceptions
	}
	if !slices.Equal(l.Match, defaultList().Match) {
		s.Match = l.Match
	}
	return s
}

// fleetLists are the lists of a manifest as [[list]] has them. The error is about one that this version cannot have.
func (c Config) fleetLists(m *snapshot.Manifest) (all []List, err error) {
	var f Faults
	names := map[string]bool{}
	for _, s := range m.Lists {
		l := defaultList()
		l.Name, l.Action, l.OnMatch, l.Mode, l.Format, l.Subdomains = s.Name, s.Action, s.OnMatch, s.Mode, s.Format, s.Subdomains
		l.Exceptions = cmp.Or(s.Exceptions, l.Exceptions)
		if s.Match != nil {
			l.Match = s.Match
		}
		l.Require, l.Discard, l.Tarpit, l.Text, l.Contact = s.Require, s.Discard, Duration(time.Duration(s.Tarpit)*time.Millisecond), s.Text, s.Contact
		l.PerRecipient, l.NoOverride = s.PerRecipient, s.NoOverride
		l.Path = snapshot.ListFiles(c.FleetFolder(), s.Name)
		l.validate(&f, "list "+s.Name, names)
		if l.Tarpit < 0 || l.Tarpit > Duration(5*time.Minute) || l.Exceptions != "own" && l.Exceptions != "all" && l.Exceptions != "none" {
			f.add("list "+s.Name, "its settings")
		}
		all = append(all, l)
	}
	if len(f) > 0 {
		return nil, fmt.Errorf("%s: %s", f[0].Key, f[0].Text)
	}
	return all, nil
}

// addFleet adds the lists of the snapshot in force. A list of the configuration goes before one of the same name.
func (c *Config) addFleet() error {
	if !c.Fleet.On() {
		return nil
	}
	m, err := snapshot.Current(c.FleetFolder())
	if err != nil || m == nil {
		return err
	}
	all, err := c.fleetLists(m)
	if err != nil {
		return fmt.Errorf("%s: sequence %d: %w", c.FleetFolder(), m.Sequence, err)
	}
	for _, l := range all {
		if !slices.ContainsFunc(c.Lists, func(own List) bool { return own.Name == l.Name }) {
			c.Lists = append(c.Lists, l)
		}
	}
	return nil
}

// OfFleet reports whether a list is one of the snapshot in force.
func (c Config) OfFleet(l List) bool {
	return c.Fleet.On() && l.Path == snapshot.ListFiles(c.FleetFolder(), l.Name)
}

// fleetWarnings are about lists of the same name, and keys that others may read.
func (c Config) fleetWarnings() (w []string) {
	if c.Fleet.On() {
		if m, err := snapshot.Current(c.FleetFolder()); err == nil && m != nil {
			for _, s := range m.Lists {
				if slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == s.Name && !c.OfFleet(l) }) {
					w = append(w, fmt.Sprintf("list %q: the fleet has one of the same name, which does not count here", s.Name))
				}
			}
		}
	}
	for key, path := range map[string]string{"publish.key_file": c.Publish.KeyFile, "publish.to_file": c.Publish.ToFile, "fleet.from_file": c.Fleet.FromFile} {
		if info, err := os.Stat(path); path != "" && err == nil && info.Mode().Perm()&0o007 != 0 {
			w = append(w, fmt.Sprintf("%s: every user of this machine may read %s; let its mode be 0600", key, path))
		}
	}
	slices.Sort(w)
	return w
}
