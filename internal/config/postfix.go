package config

import (
	"fmt"
	"slices"

	"blockd/postfix"
)

// Postfix is [postfix]: the services that a Postfix can ask. What they decide is
// set in [smtp] and [[list]], for all doors alike.
type Postfix struct {
	PolicyListen    string   `toml:"policy_listen"`    // HOST:PORT or unix:/PATH, "" = shut; as the next two
	SocketmapListen string   `toml:"socketmap_listen"` // socketmap_table(5)
	TCPListen       string   `toml:"tcp_listen"`       // tcp_table(5)
	AllowFrom       []string `toml:"allow_from"`       // networks of those who may ask by TCP
	MaxConnections  int      `toml:"max_connections"`  // of each service
	SocketMode      string   `toml:"socket_mode"`      // of unix:/PATH, octal
	SocketGroup     string   `toml:"socket_group"`     // a name or a number; "" = that of the process
}

func defaultPostfix() Postfix {
	return Postfix{
		PolicyListen: "127.0.0.1:8893", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024, SocketMode: "0660",
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
	const most = 1 << 20
	if p.MaxConnections < 1 || p.MaxConnections > most {
		f.add("postfix.max_connections", "want 1 to %d, have %d", most, p.MaxConnections)
	}
	if _, err := SocketMode(p.SocketMode); err != nil {
		f.add("postfix.socket_mode", "%v", err)
	}
}

// socketmapWarnings are about a list that cannot be asked alone, because the name of
// its map means all lists.
func (c Config) socketmapWarnings() []string {
	named := func(l List) bool { return l.Name == postfix.WholeDecision }
	if c.Postfix.SocketmapListen == "" || len(c.Lists) < 2 || !slices.ContainsFunc(c.Lists, named) {
		return nil
	}
	return []string{fmt.Sprintf("list %[1]q: the socketmap %[1]q is all lists together, and no map is this list alone: give it another name to have one", postfix.WholeDecision)}
}
