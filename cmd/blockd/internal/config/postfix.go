package config

// Postfix is [postfix]: the services that a Postfix can ask (docs/postfix.md). What they decide is
// set in [smtp] and [[list]], for all doors alike.
type Postfix struct {
	// Policy delegation, check_policy_service of Postfix: HOST:PORT or "unix:/PATH"; "" shuts this door.
	PolicyListen string `toml:"policy_listen"`
	// The same for socketmap_table(5), with the map "senders" for all lists together and a map for each
	// list, by its name. A table does not know the recipient, so exempt recipients are not exempt there.
	SocketmapListen string `toml:"socketmap_listen"`
	// The same for tcp_table(5).
	TCPListen string `toml:"tcp_listen"`
	// Networks that may ask by TCP.
	AllowFrom []string `toml:"allow_from"`
	// Connections of each service at one time.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// The group that may connect to "unix:/PATH", a name or a number; "" is that of the process.
	SocketGroup string `toml:"socket_group"`
}

func defaultPostfix() Postfix {
	return Postfix{
		PolicyListen: "127.0.0.1:8893", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024,
	}
}

// Open reports whether [postfix] asks for a door at all.
func (p Postfix) Open() bool {
	return p.PolicyListen != "" || p.SocketmapListen != "" || p.TCPListen != ""
}

func (p Postfix) validate(f *Faults) {
	f.door("postfix.policy_listen", p.PolicyListen)
	f.door("postfix.socketmap_listen", p.SocketmapListen)
	f.door("postfix.tcp_listen", p.TCPListen)
	f.networks("postfix.allow_from", p.AllowFrom, "whoever connects could ask who is listed")
	if len(p.AllowFrom) == 0 && (byTCP(p.PolicyListen) || byTCP(p.SocketmapListen) || byTCP(p.TCPListen)) {
		f.add("postfix.allow_from", "nobody may ask by TCP: want networks, or services at unix:/PATH alone")
	}
}
