package config

import (
	"fmt"
	"maps"
	"slices"

	"blockd/doors/resp"
)

// RESP is [resp]: the door that programs ask which speak the protocol of Redis (docs/resp.md). What it
// answers is set in [[list]], for all doors alike.
type RESP struct {
	// HOST:PORT, such as "127.0.0.1:8637", or "unix:/PATH"; "" shuts this door.
	Listen string `toml:"listen"`
	// Networks that may ask by TCP. Clients on other addresses than loopback need users too.
	AllowFrom []string `toml:"allow_from"`
	// Connections at one time.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// The group that may connect to "unix:/PATH", a name or a number; "" is that of the process.
	SocketGroup string `toml:"socket_group"`
	// Users of AUTH, each with the path of a file that holds the password in one line. AUTH with one word
	// means the user "default". Clients on loopback and on a Unix socket need not log in. SIGHUP reads the
	// files again.
	Users map[string]string `toml:"users"`
}

func defaultRESP() RESP {
	return RESP{AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024, Users: map[string]string{}}
}

// Open reports whether [resp] asks for a door at all.
func (r RESP) Open() bool { return r.Listen != "" }

func (r RESP) validate(f *Faults) {
	f.door("resp.listen", r.Listen)
	f.networks("resp.allow_from", r.AllowFrom, "whoever connects could ask who is listed")
	if len(r.AllowFrom) == 0 && byTCP(r.Listen) {
		f.add("resp.allow_from", "nobody may connect by TCP: want networks, or listen = \"unix:/PATH\"")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Users)) {
		switch path := r.Users[name]; {
		case !listName.MatchString(name):
			f.add("resp.users", "want names of letters, digits and \"._-\", have %q", name)
		case path == "":
			f.add("resp.users", "%q has no file with a password", name)
		}
	}
	if !byTCP(r.Listen) || len(r.Users) > 0 {
		return
	}
	for i, n := range Networks(r.AllowFrom) {
		if !n.Addr().IsLoopback() {
			f.add(fmt.Sprintf("resp.allow_from[%d]", i), "clients on other machines have to log in: they need resp.users")
		}
	}
}

// validateRESPNames checks that no list has a name which means something else to RESP clients.
func (c Config) validateRESPNames(f *Faults) {
	if !c.RESP.Open() {
		return
	}
	for i, l := range c.Lists {
		switch l.Name {
		case resp.Verdict:
			f.add(fmt.Sprintf("list[%d].name", i), "%q is all lists together at the RESP door: want another name, or resp.listen = \"\"", l.Name)
		case resp.Raw:
			f.add(fmt.Sprintf("list[%d].name", i), "%q begins the keys of single entries at the RESP door: want another name, or resp.listen = \"\"", l.Name)
		}
	}
}
