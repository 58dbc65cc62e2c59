package config

import "blockd/addr"

// Milter is [milter]: the door that Postfix and Sendmail ask while they receive
// mail. What it decides is set in [smtp] and [[list]], for all doors alike.
type Milter struct {
	Listen         string   `toml:"listen"`          // HOST:PORT or unix:/PATH, "" = shut
	AllowFrom      []string `toml:"allow_from"`      // networks of the mail servers that may connect by TCP
	MaxConnections int      `toml:"max_connections"` // one for each SMTP session of the mail server
	SocketMode     string   `toml:"socket_mode"`     // of unix:/PATH, octal
	SocketGroup    string   `toml:"socket_group"`    // a name or a number; "" = that of the process

	// The name in which Authentication-Results are written; "" = none are.
	AuthenticationResults string `toml:"authentication_results"`
}

func defaultMilter() Milter {
	return Milter{
		Listen: "127.0.0.1:8892", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024, SocketMode: "0660",
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
	const most = 1 << 20
	if m.MaxConnections < 1 || m.MaxConnections > most {
		f.add("milter.max_connections", "want 1 to %d, have %d", most, m.MaxConnections)
	}
	if m.AuthenticationResults != "" {
		if _, err := addr.DomainKey(m.AuthenticationResults); err != nil {
			f.add("milter.authentication_results", "want the mail server's name, as it calls itself to others, have %q", m.AuthenticationResults)
		}
	}
	if _, err := SocketMode(m.SocketMode); err != nil {
		f.add("milter.socket_mode", "%v", err)
	}
}
