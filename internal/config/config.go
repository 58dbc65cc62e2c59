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

// List is [[list]], one table a list; all are served together. Between blocks the most specific entry
// decides.
type List struct {
	// The name in the refusal: letters, digits and . _ -, at most 64.
	Name string `toml:"name"`
	// A file or a glob; gzip is recognised. For a list with a url, the one file for its copy.
	Path string `toml:"path"`
	// What a line means: plain, hosts, adblock, postfix and others (docs/lists.md, 6), some with an
	// argument (csv:COLUMN, csv:COLUMN,SCORE>=N, json:KEY). "auto" guesses, and is refused if two formats
	// fit.
	Format string `toml:"format"`
	// What its entries do.
	Action string `toml:"action" want:"block|allow"`
	// Whether a bare domain covers the names below it; without it, what the format's own manual says.
	Subdomains *bool `toml:"subdomains,omitempty"`
	// Globs and regular expressions are entries (docs/lists.md, 2); without it such lines are refused.
	Patterns bool `toml:"patterns"`
	// With "shadow", matches are logged and counted, and nothing is refused.
	Mode string `toml:"mode" want:"enforce|shadow"`
	// A note for the log, the history and blockd check, for entries without one of their own; at most 400
	// octets.
	Reason string `toml:"reason"`
	// Be ready even if the file has never been there.
	Optional bool `toml:"optional"`
	// A list that had entries may become empty.
	AllowEmpty bool `toml:"allow_empty"`
	// What a blocking entry leads to: 550, 451, the message is set aside (smtp.quarantine; at the milter,
	// the mail server holds it), or it is passed on with a header field that names the list.
	OnMatch string `toml:"on_match" want:"refuse|tempfail|quarantine|tag"`
	// The addresses that the list checks: "envelope", and in the header "from", "reply-to" and
	// "return-path", which the SMTP filter and the milter read.
	Match []string `toml:"match"`
	// The time that the answer to such a match is held back. At most a sixteenth of smtp.max_connections
	// wait so; beyond them answers come at once.
	Tarpit Duration `toml:"tarpit" want:"0s to 5m"`
	// A DISCARD entry drops the message at a door that can (a milter); else it counts as a block.
	Discard bool `toml:"discard"`
	// What the exceptions of a list that blocks lift: what the same list blocks, what every list blocks, or
	// nothing. Those of a list with action = "allow" reach all lists.
	Exceptions string `toml:"exceptions" want:"own|all|none"`
	// What refused clients read instead of the standard words, perhaps after codes ("554 5.7.1 …").
	// %sender, %list, %reason, %ref and %contact are filled in, %% is a percent sign. The text of an entry
	// of Postfix, Sendmail or Exim is used instead of it.
	Text string `toml:"text,omitempty"`
	// Instead of refusal.contact.
	Contact string `toml:"contact,omitempty"`
	// The proof that its allow entries need, any one of "client", "auth", "spf", "dkim" (docs/auth.md);
	// without it they are believed.
	Require []string `toml:"require,omitempty"`
	// Protected domains that this list may block as a whole, each as the entry writes it: ["mail.example"].
	Force []string `toml:"force,omitempty"`
	// More domains that this list may not block as a whole.
	Protected []string `toml:"protected,omitempty"`
	// As in [index], for this list.
	MaxProtected *int `toml:"max_protected,omitempty" want:"0 to 1000000"`
	// As in [index], for this list.
	MaxBadRatio *float64 `toml:"max_bad_ratio,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxShrink *float64 `toml:"max_shrink,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxGrow *float64 `toml:"max_grow,omitempty" want:"1 to 1000000"`
	// As in [index], for this list.
	AllowPublicSuffix *bool `toml:"allow_public_suffix,omitempty"`
	// As in [index], for this list.
	MaxAge *Duration `toml:"max_age,omitempty" want:"0s or 1m to 3650d"`
	// As in [index], for this list.
	MaxRecentBlocked *float64 `toml:"max_recent_blocked,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxFreed *float64 `toml:"max_freed,omitempty" want:"0 to 1"`
	// The address that the list is fetched from, https://HOST/FILE (docs/remote.md). User name and password
	// may stand in it.
	URL string `toml:"url,omitempty"`
	// How often its server is asked, give or take a tenth; 1h if it is not set.
	Every *Duration `toml:"every,omitempty" want:"1m to 31d"`
	// "sha256:" and the checksum of the file, or the place where it is published: an ending of the URL such
	// as ".sha256", a name beside it such as "SHA256SUMS", or a URL.
	Checksum string `toml:"checksum,omitempty"`
	// "minisign:" and the public key that signs the file; the signature is published beside it with the
	// ending ".minisig".
	Signature string `toml:"signature,omitempty"`
	// Let url be http://, where anyone on the way can change the list.
	InsecureHTTP bool `toml:"insecure_http,omitempty"`
}

// Refusal is [refusal]: what every refused client reads.
type Refusal struct {
	// An address where refused clients can ask, at the end of every refusal: a web address, a "mailto:…" or
	// a telephone number. %ref becomes the reference of the log and the history, %list the name of the
	// list.
	Contact string `toml:"contact"`
}

// Index is [index]: the compiled lists, when their files are looked at, and the gate, which says
// what a list may not hold and how far it may change at once. A list that breaks a bound of the
// gate is refused whole, and what served before serves on.
type Index struct {
	// The file that all lists are compiled into. It is written anew beside the old one whenever a list has
	// changed, and then put in its place.
	Path string `toml:"path"`
	// A list is read when it has been left alone for this time.
	Quiet Duration `toml:"quiet" want:"10ms to 1m"`
	// How often all list files are looked at, in case the system's own notice of a change is missing
	// (network file systems).
	Poll Duration `toml:"poll" want:"1s to 24h"`
	// The memory for the entries while the lists are compiled. The rest goes to a temporary file beside the
	// index. "auto" is a quarter of what the machine or the control group allows, 448 MiB at most. More
	// than half of that is never taken.
	Memory Memory `toml:"memory" want:"auto or 1 MiB to 1 TiB"`
	// Domains that no entry may block as a whole, besides those of big mailbox providers (blockd config
	// --defaults prints them) and this server's own. Such an entry is refused; single addresses there may
	// be listed.
	Protected []string `toml:"protected"`
	// A list with more entries for protected domains is refused: it is one of providers, or poisoned.
	MaxProtected int `toml:"max_protected" want:"0 to 1000000"`
	// The share of a file's lines that may be refused; the rule begins at 100 lines, and lines that are
	// unsupported do not count.
	MaxBadRatio float64 `toml:"max_bad_ratio" want:"0 to 1"`
	// The share of its entries that a list must keep in one load; the rule begins at 100 entries. An
	// intended change passes once with blockd compile --accept.
	MaxShrink float64 `toml:"max_shrink" want:"0 to 1"`
	// The factor by which a list may grow in one load; the rule begins at 1,000 entries.
	MaxGrow float64 `toml:"max_grow" want:"1 to 1000000"`
	// Entries such as "shop" or "com.tr" block all names below; without it they are refused. "com" is
	// refused in either case: protected domains are below it.
	AllowPublicSuffix bool `toml:"allow_public_suffix"`
	// A changed file that is older is refused, such as a backup that was put back, and a file that serves
	// and gets older is reported. "0s" is any age. For a remote list: the time since its server has last
	// confirmed it.
	MaxAge Duration `toml:"max_age" want:"0s or 1m to 3650d"`
	// The number of remembered senders of messages that the next server has accepted, through restarts; 0
	// is none. A domain counts once a day, and a client network (/24 or /48) for three domains a day.
	Recent int `toml:"recent" want:"0 to 1000000"`
	// The share of these senders that a list may newly refuse in one load; the rule begins at 100 domains.
	// Beyond it the entries that would refuse them are held back (blockd lint --held); beyond a tenth the
	// list is refused.
	MaxRecentBlocked float64 `toml:"max_recent_blocked" want:"0 to 1"`
	// The share of the refusals of the last 7 days that one load of a list may lift, by new exceptions or
	// by blocks that go; the rule begins at 20 refusals.
	MaxFreed float64 `toml:"max_freed" want:"0 to 1"`
}

// SMTP is [smtp]: the SMTP filter, the server behind it, and what all doors decide alike:
// reject_at, recipients_exempt, on_error, client_reject_at, trusted, skip_authenticated and
// drain_timeout.
type SMTP struct {
	// Where mail comes in: HOST:PORT; "" shuts this door.
	Listen string `toml:"listen"`
	// The name in greetings and EHLO; "" is the machine's own.
	Hostname string `toml:"hostname"`
	// The next server, which gets every message that is not refused: "smtp://HOST:PORT",
	// "lmtp://HOST:PORT", "lmtp+unix:/PATH", or "maildir:DIR" for a Maildir that blockd writes itself.
	Upstream string `toml:"upstream"`
	// What the next server learns about the client: "xclient", "proxy-v2" or "none". It is required for
	// smtp://, because a server that trusts this machine would relay for every client.
	ClientInfo string `toml:"client_info"`
	// Where a listed sender is refused. At "mail" no recipient is known yet, so recipients_exempt and
	// [[policy]] do not act.
	RejectAt string `toml:"reject_at" want:"rcpt|mail"`
	// Recipients that always accept mail, by local part and at any domain, so that a sender who is refused
	// by mistake can complain (RFC 5321, section 4.5.1).
	RecipientsExempt []string `toml:"recipients_exempt"`
	// What happens to mail while the index cannot be read. An error never refuses for good.
	OnError string `toml:"on_error" want:"accept|tempfail"`
	// Serve in front of an smtp:// server that takes mail for any recipient from any client. Without it, a
	// test at the start and each minute finds such a server, and it is not served.
	AllowOpenUpstream bool `toml:"allow_open_upstream"`
	// The recipient that this test offers: an address whose domain resolves in DNS and is not yours. "" is
	// one whose domain does not exist; /readyz says when that is not enough.
	SelfTestRecipient string `toml:"selftest_recipient"`
	// Where a listed client is refused. At "rcpt" exempt recipients still get its mail, at "connect" it
	// gets 554 instead of the greeting.
	ClientRejectAt string `toml:"client_reject_at" want:"rcpt|connect"`
	// Clients in these networks are never checked, such as your own: ["10.0.0.0/8"].
	Trusted []string `toml:"trusted"`
	// "valid" refuses a client at RCPT if its EHLO is no host name and no address literal, or is this
	// server's own name.
	Helo string `toml:"helo" want:"off|valid"`
	// "exists" refuses a client at RCPT if its address has no name in DNS (PTR), "confirmed" also if none
	// of its names leads back to it. Clients in trusted networks, authenticated clients and this machine
	// are spared. A failure of DNS is no reason to refuse.
	PTR string `toml:"ptr" want:"off|exists|confirmed"`
	// "forward" passes AUTH on to the next server. It is offered only under TLS, and only if that server is
	// reached by TLS or is on this machine.
	Auth string `toml:"auth" want:"off|forward"`
	// Clients that have logged in are not checked against lists of senders.
	SkipAuthenticated bool `toml:"skip_authenticated"`
	// Offer CHUNKING and BINARYMIME (the command BDAT) if the next server does. A chunk has no lines, so
	// bare LF and the like pass.
	Chunking bool `toml:"chunking"`
	// A Maildir for mail that matches a list with on_match = "quarantine". blockd never deletes anything
	// there.
	Quarantine string `toml:"quarantine"`
	// The size of that Maildir, at least max_message_size. When it is full, such mail gets 451.
	QuarantineMax Octets `toml:"quarantine_max"`
	// A second door, with TLS from the first octet (port 465); "" is none.
	TLSListen string `toml:"tls_listen"`
	// The certificate for clients, with its chain, in PEM; with it STARTTLS is offered. A renewed pair is
	// taken up by itself, and one that cannot be used leaves the one before in service.
	TLSCert string `toml:"tls_cert"`
	// Its key, in PEM.
	TLSKey string `toml:"tls_key"`
	// Networks of load balancers, such as ["10.0.0.0/8"]. Their connections must begin with a PROXY header
	// (version 1 or 2) that names the client; all others must not.
	ProxyFrom []string `toml:"proxy_from"`
	// TLS with the next server. It is demanded, never optional: if it fails, no mail passes.
	UpstreamTLS string `toml:"upstream_tls" want:"none|starttls|implicit"`
	// The name that the next server's certificate must have; "" is the host of upstream.
	UpstreamTLSName string `toml:"upstream_tls_name"`
	// A PEM file of the authorities that may have signed it; "" is the system's.
	UpstreamTLSCA string `toml:"upstream_tls_ca"`
	// Public keys that the next server may have, each the base64 of its SHA-256. Then name and authority do
	// not matter.
	UpstreamTLSPin []string `toml:"upstream_tls_pin"`
	// Clients at one time. From 80 % of them on, a client has 30 s for a command instead of 5 min.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// Clients at one time from one IPv4 address or IPv6 /64, loopback too.
	MaxConnectionsPerIP int `toml:"max_connections_per_ip" want:"1 to 1048576"`
	// New connections a minute from such an address; 0 is any number.
	MaxRatePerIP int `toml:"max_rate_per_ip" want:"0 to 1048576"`
	// Commands a minute of one session; 0 is any number.
	MaxCommandRate int `toml:"max_command_rate" want:"0 to 1048576"`
	// Recipients of a message (RFC 5321, section 4.5.3.1.8, asks for 100).
	MaxRecipients int `toml:"max_recipients" want:"100 to 100000"`
	// The size of a message; the next server's own SIZE counts too.
	MaxMessageSize Octets `toml:"max_message_size" want:"64 KiB to 1 TiB"`
	// The errors of a client since its last accepted message, refusals by lists included, that end its
	// session. After half of them each answer waits for 1 s. Five times as many commands that move no mail
	// end it too.
	HardErrors int `toml:"hard_errors" want:"2 to 1048576"`
	// A client that talks before the greeting, within this time, is sent away. "0s" greets at once.
	GreetWait Duration `toml:"greet_wait" want:"0s to 1m"`
	// The time that a transaction has until its end of data after SIGTERM.
	DrainTimeout Duration `toml:"drain_timeout" want:"1s to 1h"`
}

// HTTP is [http]: checks, state of the lists, metrics and the console (docs/http.md).
type HTTP struct {
	// HOST:PORT; "" shuts this door. On other addresses than loopback it needs token_file or tokens.
	Listen string `toml:"listen"`
	// "auto": the first start makes a token that may write, beside the index with the ending ".token";
	// requests for senders and recipients need it. "none": there is no token, and only the Unix socket
	// shows senders and recipients. A path: the file with a token that every request must bring; it may
	// read and change nothing.
	TokenFile string `toml:"token_file"`
	// A file of tokens that may read, or write too; blockd token new makes them.
	Tokens string `toml:"tokens"`
	// The certificate at listen, with its chain, in PEM. A renewed one is taken up by itself.
	TLSCert string `toml:"tls_cert"`
	// Its key, in PEM.
	TLSKey string `toml:"tls_key"`
	// Names that requests without a token may have in their Host header, besides localhost and IP
	// addresses: such as ["mail.example.org"], for a door behind a web server.
	Hosts []string `toml:"hosts"`
	// Connections at one time, at most half of them from one IPv4 address or IPv6 /64. When all are taken,
	// those without a request give way.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// Requests a second with one token, or of one address without a token; 0 is any number. Beyond it: 429
	// with Retry-After. The socket has no such bound.
	MaxRate int `toml:"max_rate" want:"0 to 1048576"`
	// Repeated checks on one connection go past the loop of Go's net/http, with the same answers (docs/http.md).
	Fast bool `toml:"fast"`
	// The same answers by a Unix socket, which needs no token and may write: a path, "auto" (beside the
	// index with the ending ".sock") or "none".
	Socket string `toml:"socket"`
	// The group that may connect to the socket, a name or a number; "" is that of the process.
	SocketGroup string `toml:"socket_group"`
}

// Log is [log]; the log goes to standard error.
type Log struct {
	// How a line is written.
	Format string `toml:"format" want:"text|json"`
	// The least that is logged.
	Level string `toml:"level" want:"debug|info|warn|error"`
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
			QuarantineMax: 1 << 30,
			ProxyFrom:     []string{},
			UpstreamTLS:   "none", UpstreamTLSPin: []string{},
			MaxConnections: 4096, MaxConnectionsPerIP: 50,
			MaxRecipients: 1000, MaxMessageSize: 50 << 20, HardErrors: 20, DrainTimeout: Duration(time.Minute),
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
