package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"blockd/lists"
)

// Config is the configuration file. The toml tags are its keys; config.toml at
// the root of the tree explains each, and docs and man page name no others.
//
// It is a type of package main on purpose: no other package can import it, each
// takes its own small struct of settings from here.
type Config struct {
	Index Index  `toml:"index"`
	SMTP  SMTP   `toml:"smtp"`
	HTTP  HTTP   `toml:"http"`
	Log   Log    `toml:"log"`
	Lists []List `toml:"list,omitempty"`
}

// List is one [[list]]: the files of one name, read alike.
type List struct {
	Name       string `toml:"name"`
	Path       string `toml:"path"`                 // a file or a glob
	Format     string `toml:"format"`               // a name of lists.Formats, with its argument
	Action     string `toml:"action"`               // "block" or "allow"
	Subdomains *bool  `toml:"subdomains,omitempty"` // unset: as the format's own manual has it
	Mode       string `toml:"mode"`                 // "enforce" or "shadow"
	Reason     string `toml:"reason"`
	Optional   bool   `toml:"optional"`
	AllowEmpty bool   `toml:"allow_empty"`

	// Of the gate. A bound that is unset is that of [index]; the protected domains
	// come on top of those there.
	Force             []string `toml:"force,omitempty"`
	Protected         []string `toml:"protected,omitempty"`
	MaxProtected      *int     `toml:"max_protected,omitempty"`
	MaxBadRatio       *float64 `toml:"max_bad_ratio,omitempty"`
	MaxShrink         *float64 `toml:"max_shrink,omitempty"`
	MaxGrow           *float64 `toml:"max_grow,omitempty"`
	AllowPublicSuffix *bool    `toml:"allow_public_suffix,omitempty"`
}

// Index is [index]: the compiled file, when the list files are looked at, and
// what may not go into it.
type Index struct {
	Path  string   `toml:"path"`
	Quiet Duration `toml:"quiet"`
	Poll  Duration `toml:"poll"`

	// The gate, for every list that says nothing else.
	Protected         []string `toml:"protected"` // besides lists.ShippedProtected and ownDomains
	MaxProtected      int      `toml:"max_protected"`
	MaxBadRatio       float64  `toml:"max_bad_ratio"` // of the lines of a file
	MaxShrink         float64  `toml:"max_shrink"`    // share of the entries that must stay
	MaxGrow           float64  `toml:"max_grow"`      // so many times as many at most
	AllowPublicSuffix bool     `toml:"allow_public_suffix"`
}

// SMTP is [smtp]: the filter's own door and the server behind it.
type SMTP struct {
	Listen              string   `toml:"listen"`      // HOST:PORT, "" = no SMTP door
	Hostname            string   `toml:"hostname"`    // "" = the machine's name
	Upstream            string   `toml:"upstream"`    // see parseUpstream
	ClientInfo          string   `toml:"client_info"` // what upstream learns of the client
	RejectAt            string   `toml:"reject_at"`   // "rcpt" or "mail"
	RecipientsExempt    []string `toml:"recipients_exempt"`
	MaxConnections      int      `toml:"max_connections"`
	MaxConnectionsPerIP int      `toml:"max_connections_per_ip"` // IPv4 address or IPv6 /64
	OnError             string   `toml:"on_error"`               // "accept" or "tempfail"
	AllowOpenUpstream   bool     `toml:"allow_open_upstream"`
}

// HTTP is [http].
type HTTP struct {
	Listen    string `toml:"listen"`     // HOST:PORT, "" = no HTTP door
	TokenFile string `toml:"token_file"` // "" = no token asked, on loopback only
}

// Log is [log]; it goes to standard error.
type Log struct {
	Format string `toml:"format"` // "text" or "json"
	Level  string `toml:"level"`  // "debug", "info", "warn", "error"
}

// Duration is a time.Duration that is written as text: "500ms", "1m30s".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`want a duration such as "500ms" or "1m30s", have %q`, text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String drops the zero units that time.Duration prints: "1m", not "1m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Default is what an empty file means, and what the reference config.toml shows.
func Default() Config {
	guard := lists.DefaultGuard()
	return Config{
		Index: Index{
			Path: "var/blockd.bdx", Quiet: Duration(500 * time.Millisecond), Poll: Duration(30 * time.Second),
			Protected: []string{}, MaxProtected: guard.MaxProtected, MaxBadRatio: guard.MaxBadRatio, MaxShrink: 0.5, MaxGrow: 10,
		},
		SMTP: SMTP{
			Listen: "127.0.0.1:2525", Upstream: "maildir:var/mail",
			RejectAt: "rcpt", RecipientsExempt: []string{"postmaster", "abuse"},
			MaxConnections: 4096, MaxConnectionsPerIP: 50, OnError: "accept",
		},
		HTTP: HTTP{Listen: "127.0.0.1:8025"},
		Log:  Log{Format: "text", Level: "info"},
	}
}

// defaultList is what a [[list]] has that says nothing of it.
func defaultList() List { return List{Format: "auto", Action: "block", Mode: "enforce"} }

// relativeTo turns the paths of c, which are relative to the folder of its
// file, into paths for this process. A daemon that is started with an absolute
// -c from anywhere then finds what its administrator meant.
func (c *Config) relativeTo(dir string) {
	resolve := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	resolve(&c.Index.Path)
	resolve(&c.HTTP.TokenFile)
	for i := range c.Lists {
		resolve(&c.Lists[i].Path)
	}
	for _, scheme := range []string{"maildir:", "lmtp+unix:"} {
		if path, ok := strings.CutPrefix(c.SMTP.Upstream, scheme); ok {
			resolve(&path)
			c.SMTP.Upstream = scheme + path
		}
	}
}
