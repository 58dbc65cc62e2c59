package config

import "blockd/mail/addr"

// Milter is [milter]: the door that a Postfix or Sendmail asks while it receives mail (docs/milter.md).
// What it decides is set in [smtp] and [[list]], for all doors alike.
type Milter struct {
	// HOST:PORT or "unix:/PATH", for smtpd_milters of Postfix; "" shuts this door.
	Listen string `toml:"listen"`
	// Networks of the mail servers that may connect by TCP.
	AllowFrom []string `toml:"allow_from"`
	// Connections at one time. A mail server has one for each of its SMTP sessions.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// The group that may connect to "unix:/PATH", a name or a number; "" is that of the process.
	SocketGroup string `toml:"socket_group"`
	// The name for Authentication-Results, which say what SPF and DKIM said if blockd looked for proof.
	// Fields from outside that claim this name are taken out of every message. "" does neither.
	AuthenticationResults string `toml:"authentication_results"`
}

func defaultMilter() Milter {
	return Milter{
		Listen: "127.0.0.1:8892", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024,
	}
}

// Open reports whether [milter] asks for a door at all.
func (m Milter) Open() bool { return m.Listen != "" }

func (m Milter) validate(f *Faults) {
	f.door("milter.listen", m.Listen)
	f.networks("milter.allow_from", m.AllowFrom, "whoever connects could ask who is listed")
	if len(m.AllowFrom) == 0 && byTCP(m.Listen) {
		f.add("milter.allow_from", "nobody may connect by TCP: want networks, or listen = \"unix:/PATH\"")
	}
	if m.AuthenticationResults != "" {
		if _, err := addr.DomainKey(m.AuthenticationResults); err != nil {
			f.add("milter.authentication_results", "want the mail server's name, as it calls itself to others, have %q", m.AuthenticationResults)
		}
	}
}
