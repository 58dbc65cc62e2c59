package config

import (
	"path/filepath"
	"strings"
)

// UnixPrefix begins the place of a door that is a Unix socket: "unix:/PATH".
const UnixPrefix = "unix:"

// byTCP reports whether a door is open to a network, where allow_from says to whom. Who
// may use a Unix socket is said by its mode and owner.
func byTCP(listen string) bool { return listen != "" && !strings.HasPrefix(listen, UnixPrefix) }

// MaxSocketPath is below the 108 octets of sockaddr_un: a folder may come in front.
const MaxSocketPath = 100

// door checks the place of a door that may be a Unix socket.
func (f *Faults) door(key, have string) {
	path, isUnix := strings.CutPrefix(have, UnixPrefix)
	switch {
	case !isUnix:
		f.hostPort(key, have)
	case !filepath.IsAbs(path) || strings.HasSuffix(path, string(filepath.Separator)):
		f.add(key, `want "unix:/PATH" or HOST:PORT, have %q`, have)
	case len(path) > MaxSocketPath:
		f.add(key, "a socket's path has at most %d octets, this one has %d", MaxSocketPath, len(path))
	}
}
