// Package config is config.toml: its keys and their defaults, every fault of a file with its
// line, and what each package is told of it. Commands and the daemon import it; no other
// package does, each takes its own small struct of settings from here.
package config

import (
	"strings"
	"time"

	"blockd/index/live"
	"blockd/lists"
	"blockd/policy/reply"
)

// Config is the configuration file. A field has its key and what that may be as tags, and its
// meaning as a comment: docs/configuration.md and blockd.toml(5) are written from them.
type Config struct {
	Index     Index     `toml:"index"`
	SMTP      SMTP      `toml:"smtp"`
	Milter    Milter    `toml:"milter"`
	Postfix   Postfix   `toml:"postfix"`
	DNS       DNS       `toml:"dns"`
	RESP      RESP      `toml:"resp"`
	Auth      Auth      `toml:"auth"`
	Refusal   Refusal   `toml:"refusal"`
	HTTP      HTTP      `toml:"http"`
	Health    Health    `toml:"health"`
	Receipts  Receipts  `toml:"receipts"`
	Report    Report    `toml:"report"`
	Notify    Notify    `toml:"notify"`
	Live      Live      `toml:"live"`
	History   History   `toml:"history"`
	Audit     Audit     `toml:"audit"`
	FirstSeen FirstSeen `toml:"first_seen"`

	Recipients Recipients `toml:"recipients"`
	Junk       Junk       `toml:"junk"`
	Fleet      Fleet      `toml:"fleet"`
	Publish    Publish    `toml:"publish"`

	Correspondents Correspondents `toml:"correspondents"`

	Log      Log      `toml:"log"`
	Lists    []List   `toml:"list,omitempty"`
	Policies []Policy `toml:"policy,omitempty"`

	Filters []KeptFilter `toml:"filter,omitempty"`
}

// Refusal is [refusal]: what every refused client reads.
type Refusal struct {
	// An address where refused clients can ask, at the end of every refusal: a web address, a "mailto:…" or
	// a telephone number. %ref becomes the reference of the log and the history, %list the name of the
	// list.
	Contact string `toml:"contact"`
	// What clients refused by a list read that has no text of its own, instead of the standard words; as list.text. A list that defers
	// leaves the codes out.
	Text string `toml:"text"`
}

// Log is [log]; the log goes to standard error.
type Log struct {
	// How a line is written.
	Format string `toml:"format" want:"text|json"`
	// The least that is logged.
	Level string `toml:"level" want:"debug|info|warn|error"`
}

// Default is what an empty file means.
func Default() Config {
	guard := lists.DefaultGuard()
	return Config{
		Index: Index{
			Path: "var/blockd.bdx", Quiet: Duration(500 * time.Millisecond), Poll: Duration(30 * time.Second),
			Hashes: []string{}, Protected: []string{}, MaxProtected: guard.MaxProtected, MaxBadRatio: guard.MaxBadRatio, MaxShrink: 0.5, MaxGrow: 10,
			Recent: 10_000, MaxRecentBlocked: 0.01, MaxFreed: 0.2, Keep: 10, KeepBytes: 2 << 30,
		},
		SMTP: SMTP{
			Listen: "127.0.0.1:2525", Upstream: "maildir:var/mail",
			RejectAt: "rcpt", Mail: "lazy", RecipientsExempt: []string{"postmaster", "abuse"}, OnError: "accept",
			ClientRejectAt: "rcpt", Trusted: []string{}, Helo: "off", PTR: "off", Auth: "off", SkipAuthenticated: true,
			QuarantineMax: 1 << 30, QuarantineMaxMessages: 1_000_000, ProxyFrom: []string{}, UpstreamTLS: "none", UpstreamTLSPin: []string{},
			MaxConnections: 4096, MaxConnectionsPerIP: 50,
			MaxRecipients: 1000, MaxMessageSize: 50 << 20, HardErrors: 20, DrainTimeout: Duration(time.Minute),
		},
		Milter:    defaultMilter(),
		Postfix:   defaultPostfix(),
		DNS:       defaultDNS(),
		RESP:      defaultRESP(),
		Auth:      defaultAuth(),
		HTTP:      defaultHTTP(),
		Report:    defaultReport(),
		Live:      Live{Folder: Auto, OnOutage: "refuse", Relays: []string{}},
		History:   defaultHistory(),
		Audit:     defaultAudit(),
		FirstSeen: defaultFirstSeen(),

		Recipients: defaultRecipients(),
		Junk:       defaultJunk(),
		Fleet:      defaultFleet(),
		Publish:    defaultPublish(),

		Correspondents: defaultCorrespondents(),

		Log: Log{Format: "text", Level: "info"},
	}
}

// relativeTo turns the paths of c, which are relative to the folder of its
// file, into paths for this process. A daemon that is started with an absolute
// -c from anywhere then finds what its administrator meant.
func (c *Config) relativeTo(dir string) {
	resolve := func(path *string) {
		*path = resolved(dir, *path)
	}
	resolve(&c.Index.Path)
	resolve(&c.HTTP.Tokens)
	resolve(&c.HTTP.ListsFile)
	if a := c.Recipients.Aliases; a != nil {
		resolve(&a.Path)
	}
	if o := c.HTTP.OIDC; o != nil {
		if path := credential(o.ClientSecretFile); path != "" {
			o.ClientSecretFile = path
		} else {
			resolve(&o.ClientSecretFile)
		}
	}
	resolve(&c.HTTP.TLSCert)
	resolve(&c.HTTP.TLSKey)
	for _, path := range []*string{&c.HTTP.TokenFile, &c.HTTP.Socket, &c.Live.Folder, &c.History.Folder, &c.Audit.Folder} {
		if *path != Auto && *path != None {
			resolve(path)
		}
	}
	if path := credential(c.Live.DSNFile); path != "" {
		c.Live.DSNFile = path
	} else {
		resolve(&c.Live.DSNFile)
	}
	resolve(&c.Live.RelayTokenFile)
	resolve(&c.Fleet.FromFile)
	if path := credential(c.Fleet.TokenFile); path != "" {
		c.Fleet.TokenFile = path
	} else {
		resolve(&c.Fleet.TokenFile)
	}
	resolve(&c.Publish.ToFile)
	resolve(&c.Publish.KeyFile)
	resolve(&c.SMTP.Quarantine)
	resolve(&c.SMTP.TLSCert)
	resolve(&c.SMTP.TLSKey)
	resolve(&c.SMTP.UpstreamTLSCA)
	resolve(&c.Notify.SecretFile)
	resolve(&c.Notify.CA)
	for i := range c.Lists {
		l := &c.Lists[i]
		resolve(&l.Path)
		if l.Source != nil {
			l.Source.relativeTo(resolve)
			if l.Asked() {
				c.asked(l)
			} else {
				c.copied(l)
			}
		}
	}
	for i := range c.Filters {
		c.Filters[i].relativeTo(resolve)
	}
	for _, door := range []*string{&c.Milter.Listen, &c.Postfix.PolicyListen, &c.Postfix.SocketmapListen, &c.Postfix.TCPListen, &c.RESP.Listen} {
		if path, ok := strings.CutPrefix(*door, UnixPrefix); ok {
			resolve(&path)
			*door = UnixPrefix + path
		}
	}
	for name, path := range c.RESP.Users {
		resolve(&path)
		c.RESP.Users[name] = path
	}
	for _, server := range []*string{&c.SMTP.Upstream, &c.Report.Via} {
		for _, scheme := range []string{"maildir:", "lmtp+unix:"} {
			if path, ok := strings.CutPrefix(*server, scheme); ok {
				resolve(&path)
				*server = scheme + path
			}
		}
	}
}

// validateRefusal checks the text and the contact that lists without their own have.
func (c Config) validateRefusal(f *Faults) {
	names := []string{live.ListName}
	for _, l := range c.Lists {
		names = append(names, l.Name)
	}
	if err := reply.CheckContact(c.Refusal.Contact, names...); err != nil {
		f.add("refusal.contact", "%v", err)
	}
	if err := reply.CheckText(c.Refusal.Text); err != nil {
		f.add("refusal.text", "%v", err)
	}
	if code := lists.ParseAnswer(c.Refusal.Text).Code; code/100 == 4 {
		f.add("refusal.text", "a code of %d does not refuse for good; want one of 5xx, or none", code)
	}
}
