// Package config is config.toml: its keys and their defaults, every fault of a file with its
// line, and what each package is told of it. Commands and the daemon import it; no other
// package does, each takes its own small struct of settings from here.
package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"blockd/lists"
)

// Config is the configuration file. The toml tags are its keys; config.toml at
// the root of the tree explains each, and docs and man page name no others.
type Config struct {
	Index    Index    `toml:"index"`
	SMTP     SMTP     `toml:"smtp"`
	Milter   Milter   `toml:"milter"`
	Postfix  Postfix  `toml:"postfix"`
	Auth     Auth     `toml:"auth"`
	Refusal  Refusal  `toml:"refusal"`
	HTTP     HTTP     `toml:"http"`
	Live     Live     `toml:"live"`
	History  History  `toml:"history"`
	Log      Log      `toml:"log"`
	Lists    []List   `toml:"list,omitempty"`
	Policies []Policy `toml:"policy,omitempty"`
}

// List is one [[list]]: the files of one name, read alike.
type List struct {
	Name       string `toml:"name"`
	Path       string `toml:"path"`                 // a file or a glob
	Format     string `toml:"format"`               // a name of lists.Formats, with its argument
	Action     string `toml:"action"`               // "block" or "allow"
	Subdomains *bool  `toml:"subdomains,omitempty"` // unset: as the format's own manual has it
	Patterns   bool   `toml:"patterns"`             // globs and regular expressions are entries
	Mode       string `toml:"mode"`                 // "enforce" or "shadow"
	Reason     string `toml:"reason"`
	Optional   bool   `toml:"optional"`
	AllowEmpty bool   `toml:"allow_empty"`

	// What a match leads to.
	OnMatch string   `toml:"on_match"` // "refuse", "tempfail", "quarantine" or "tag"
	Match   []string `toml:"match"`    // words of policy.ParseSources: which addresses it is asked about
	Tarpit  Duration `toml:"tarpit"`   // the answer is held back for so long
	Discard bool     `toml:"discard"`  // discard entries drop the message, at a door that can

	Exceptions string `toml:"exceptions"` // "own", "all" or "none": what those of a list that blocks reach

	// What the refused reads.
	Text    string `toml:"text,omitempty"`    // instead of the standard words
	Contact string `toml:"contact,omitempty"` // instead of that of [refusal]

	// Of an allow list: what its entries need to count, any one of them. Unset: they
	// are believed on the sender's word.
	Require []string `toml:"require,omitempty"`

	// Of the gate. A bound that is unset is that of [index]; the protected domains
	// come on top of those there.
	Force             []string  `toml:"force,omitempty"`
	Protected         []string  `toml:"protected,omitempty"`
	MaxProtected      *int      `toml:"max_protected,omitempty"`
	MaxBadRatio       *float64  `toml:"max_bad_ratio,omitempty"`
	MaxShrink         *float64  `toml:"max_shrink,omitempty"`
	MaxGrow           *float64  `toml:"max_grow,omitempty"`
	AllowPublicSuffix *bool     `toml:"allow_public_suffix,omitempty"`
	MaxAge            *Duration `toml:"max_age,omitempty"`
	MaxRecentBlocked  *float64  `toml:"max_recent_blocked,omitempty"`
	MaxFreed          *float64  `toml:"max_freed,omitempty"`

	// Of a list that is fetched: see docs/remote.md. Path is then its copy.
	URL          string    `toml:"url,omitempty"`
	Every        *Duration `toml:"every,omitempty"` // unset: 1 h
	Checksum     string    `toml:"checksum,omitempty"`
	Signature    string    `toml:"signature,omitempty"`
	InsecureHTTP bool      `toml:"insecure_http,omitempty"`
}

// Refusal is [refusal]: what every refused client reads.
type Refusal struct {
	Contact string `toml:"contact"` // at the end of the reply
}

// Index is [index]: the compiled file, when the list files are looked at, and
// what may not go into it.
type Index struct {
	Path   string   `toml:"path"`
	Quiet  Duration `toml:"quiet"`
	Poll   Duration `toml:"poll"`
	Memory Memory   `toml:"memory"` // for records while an index is built

	// The gate, for every list that says nothing else.
	Protected         []string `toml:"protected"` // besides lists.ShippedProtected and ownDomains
	MaxProtected      int      `toml:"max_protected"`
	MaxBadRatio       float64  `toml:"max_bad_ratio"` // of the lines of a file
	MaxShrink         float64  `toml:"max_shrink"`    // share of the entries that must stay
	MaxGrow           float64  `toml:"max_grow"`      // so many times as many at most
	AllowPublicSuffix bool     `toml:"allow_public_suffix"`
	MaxAge            Duration `toml:"max_age"`            // of a file; 0 = any
	Recent            int      `toml:"recent"`             // accepted senders that are remembered; 0 = none
	MaxRecentBlocked  float64  `toml:"max_recent_blocked"` // share of them that a list may newly block
	MaxFreed          float64  `toml:"max_freed"`          // share of the refusals of the last days that a Load may lift
}

// SMTP is [smtp]: the filter's own door and the server behind it.
type SMTP struct {
	Listen            string   `toml:"listen"`      // HOST:PORT, "" = no SMTP door
	Hostname          string   `toml:"hostname"`    // "" = the machine's name
	Upstream          string   `toml:"upstream"`    // see ParseUpstream
	ClientInfo        string   `toml:"client_info"` // what upstream learns of the client
	RejectAt          string   `toml:"reject_at"`   // "rcpt" or "mail"
	RecipientsExempt  []string `toml:"recipients_exempt"`
	OnError           string   `toml:"on_error"` // "accept" or "tempfail"
	AllowOpenUpstream bool     `toml:"allow_open_upstream"`
	SelfTestRecipient string   `toml:"selftest_recipient"` // of the open-relay test; "" = one below .invalid

	// Clients, and what is done with mail beside refusing it.
	ClientRejectAt    string   `toml:"client_reject_at"`   // "rcpt" or "connect"
	Trusted           []string `toml:"trusted"`            // networks of whom no list is asked
	Helo              string   `toml:"helo"`               // "off" or "valid"
	PTR               string   `toml:"ptr"`                // "off", "exists" or "confirmed"
	Auth              string   `toml:"auth"`               // "off" or "forward"
	SkipAuthenticated bool     `toml:"skip_authenticated"` // no list of senders is asked of them
	Chunking          bool     `toml:"chunking"`           // BDAT
	Quarantine        string   `toml:"quarantine"`         // a Maildir; "" = none
	QuarantineMax     int      `toml:"quarantine_max"`     // octets of all its mail
	MaxTarpits        int      `toml:"max_tarpits"`        // sessions whose answer is held back

	// TLS with clients, and who may speak for them.
	TLSListen string   `toml:"tls_listen"` // HOST:PORT, TLS from the first octet; "" = no such door
	TLSCert   string   `toml:"tls_cert"`   // PEM, with its chain; "" = no TLS
	TLSKey    string   `toml:"tls_key"`
	ProxyFrom []string `toml:"proxy_from"` // networks whose connections begin with a PROXY header

	// TLS with upstream.
	UpstreamTLS     string   `toml:"upstream_tls"`      // "none", "starttls" or "implicit"
	UpstreamTLSName string   `toml:"upstream_tls_name"` // "" = the host of upstream
	UpstreamTLSCA   string   `toml:"upstream_tls_ca"`   // PEM; "" = the system's
	UpstreamTLSPin  []string `toml:"upstream_tls_pin"`  // SHA-256 of public keys, base64

	// Limits of clients.
	MaxConnections      int      `toml:"max_connections"`
	MaxConnectionsPerIP int      `toml:"max_connections_per_ip"` // IPv4 address or IPv6 /64, as the next
	MaxRatePerIP        int      `toml:"max_rate_per_ip"`        // new connections a minute; 0 = any
	MaxCommandRate      int      `toml:"max_command_rate"`       // commands a minute of one session; 0 = any
	MaxRecipients       int      `toml:"max_recipients"`         // of a message
	MaxMessageSize      int      `toml:"max_message_size"`       // octets
	MaxJunkCommands     int      `toml:"max_junk_commands"`      // without mail in between
	SoftErrors          int      `toml:"soft_errors"`            // beyond them each waits for error_delay
	HardErrors          int      `toml:"hard_errors"`            // the end of the session
	ErrorDelay          Duration `toml:"error_delay"`
	MinDataRate         int      `toml:"min_data_rate"` // octets a second
	GreetWait           Duration `toml:"greet_wait"`

	// Deadlines.
	CommandTimeout         Duration `toml:"command_timeout"`
	StressTimeout          Duration `toml:"stress_timeout"` // in place of it from 80 % of max_connections on
	DataStartTimeout       Duration `toml:"data_start_timeout"`
	DataTimeout            Duration `toml:"data_timeout"`
	SessionTimeout         Duration `toml:"session_timeout"`
	TLSTimeout             Duration `toml:"tls_timeout"`
	ProxyTimeout           Duration `toml:"proxy_timeout"`
	UpstreamConnectTimeout Duration `toml:"upstream_connect_timeout"` // an address
	UpstreamTimeout        Duration `toml:"upstream_timeout"`
	UpstreamFinalTimeout   Duration `toml:"upstream_final_timeout"`
	DrainTimeout           Duration `toml:"drain_timeout"`
}

// HTTP is [http].
type HTTP struct {
	Listen    string `toml:"listen"`     // HOST:PORT, "" = no HTTP door
	TokenFile string `toml:"token_file"` // a path: wanted of everybody, and may read; "auto" (also ""), "none": see firstToken
	Tokens    string `toml:"tokens"`     // a file of tokens with scopes; "" = none

	TLSCert string   `toml:"tls_cert"` // PEM, with its chain; "" = no TLS
	TLSKey  string   `toml:"tls_key"`
	Hosts   []string `toml:"hosts"` // names in Host beside localhost, where no token is asked

	MaxConnections      int `toml:"max_connections"`
	MaxConnectionsPerIP int `toml:"max_connections_per_ip"` // IPv4 address or IPv6 /64, as the next
	MaxRate             int `toml:"max_rate"`               // requests a second of a token, or of an address without; 0 = any

	Fast bool `toml:"fast"` // repeated checks go past net/http's loop

	// Of the same answers by a Unix socket, where who can open it may write.
	Socket      string `toml:"socket"`       // a path, "auto" or "none"
	SocketMode  string `toml:"socket_mode"`  // octal
	SocketGroup string `toml:"socket_group"` // "" = that of the process
}

// Log is [log]; it goes to standard error.
type Log struct {
	Format string `toml:"format"` // "text" or "json"
	Level  string `toml:"level"`  // "debug", "info", "warn", "error"
}

// Duration is a time.Duration that is written as text: "500ms", "1m30s", "30d".
// A day has 24 hours.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`want a duration such as "500ms", "1m30s" or "30d", have %q`, text)
	}
	*d = Duration(parsed)
	return nil
}

const day = 24 * time.Hour

// ParseDuration is time.ParseDuration with days in front: "7d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	const most = 36_500 // a hundred years, far from where a Duration ends
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > most {
		return 0, strconv.ErrRange
	}
	var more time.Duration
	if rest != "" {
		if more, err = time.ParseDuration(rest); err != nil || rest[0] == '-' || rest[0] == '+' || more > most*day {
			return 0, strconv.ErrSyntax
		}
	}
	return time.Duration(n)*day + more, nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String drops the zero units that time.Duration prints, "1m" and not "1m0s",
// and counts whole days from two on.
func (d Duration) String() string {
	if d := time.Duration(d); d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
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
			Recent: 10_000, MaxRecentBlocked: 0.01, MaxFreed: 0.2,
		},
		SMTP: SMTP{
			Listen: "127.0.0.1:2525", Upstream: "maildir:var/mail",
			RejectAt: "rcpt", RecipientsExempt: []string{"postmaster", "abuse"}, OnError: "accept",
			ClientRejectAt: "rcpt", Trusted: []string{}, Helo: "off", PTR: "off", Auth: "off", SkipAuthenticated: true,
			QuarantineMax: 1 << 30, MaxTarpits: 256,
			ProxyFrom:   []string{},
			UpstreamTLS: "none", UpstreamTLSPin: []string{},
			MaxConnections: 4096, MaxConnectionsPerIP: 50,
			MaxRecipients: 1000, MaxMessageSize: 50 << 20, MaxJunkCommands: 100,
			SoftErrors: 10, HardErrors: 20, ErrorDelay: Duration(time.Second), MinDataRate: 500,
			CommandTimeout: Duration(5 * time.Minute), StressTimeout: Duration(30 * time.Second),
			DataStartTimeout: Duration(2 * time.Minute), DataTimeout: Duration(3 * time.Minute),
			SessionTimeout: Duration(time.Hour), TLSTimeout: Duration(10 * time.Second), ProxyTimeout: Duration(5 * time.Second),
			UpstreamConnectTimeout: Duration(5 * time.Second), UpstreamTimeout: Duration(5 * time.Minute),
			UpstreamFinalTimeout: Duration(10 * time.Minute), DrainTimeout: Duration(time.Minute),
		},
		Milter:  defaultMilter(),
		Postfix: defaultPostfix(),
		Auth:    defaultAuth(),
		HTTP:    defaultHTTP(),
		Live:    Live{Folder: Auto},
		History: defaultHistory(),
		Log:     Log{Format: "text", Level: "info"},
	}
}

// defaultList is what a [[list]] has that says nothing of it.
func defaultList() List {
	return List{Format: "auto", Action: "block", Mode: "enforce", OnMatch: "refuse", Match: []string{"envelope"}, Exceptions: "own"}
}

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
	resolve(&c.HTTP.Tokens)
	resolve(&c.HTTP.TLSCert)
	resolve(&c.HTTP.TLSKey)
	for _, path := range []*string{&c.HTTP.TokenFile, &c.HTTP.Socket, &c.Live.Folder, &c.History.Folder} {
		if *path != Auto && *path != None {
			resolve(path)
		}
	}
	resolve(&c.SMTP.Quarantine)
	resolve(&c.SMTP.TLSCert)
	resolve(&c.SMTP.TLSKey)
	resolve(&c.SMTP.UpstreamTLSCA)
	for i := range c.Lists {
		resolve(&c.Lists[i].Path)
	}
	for _, door := range []*string{&c.Milter.Listen, &c.Postfix.PolicyListen, &c.Postfix.SocketmapListen, &c.Postfix.TCPListen} {
		if path, ok := strings.CutPrefix(*door, UnixPrefix); ok {
			resolve(&path)
			*door = UnixPrefix + path
		}
	}
	for _, scheme := range []string{"maildir:", "lmtp+unix:"} {
		if path, ok := strings.CutPrefix(c.SMTP.Upstream, scheme); ok {
			resolve(&path)
			c.SMTP.Upstream = scheme + path
		}
	}
}
