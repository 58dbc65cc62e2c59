package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"blockd/doors/httpapi"
	"blockd/doors/httpapi/session"
	"blockd/mail/addr"
)

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
	// A file of [[list]] tables, which people of scope admin change in the console and over HTTP; the daemon's user has to be able to write its
	// folder. Its lists count beside those of this file; each is fetched from an https address into the folder subscribed beside the index.
	// "": lists are added by who may write this file alone.
	ListsFile string `toml:"lists_file"`
	// Networks from which these lists may be fetched, besides the public internet, such as ["10.1.2.0/24"].
	ListsFrom []string `toml:"lists_from"`
	// The certificate at listen, with its chain, in PEM. A renewed one is taken up by itself.
	TLSCert string `toml:"tls_cert"`
	// Its key, in PEM.
	TLSKey string `toml:"tls_key"`
	// Where browsers reach this door if a web server stands in front of it: "https://mail.example.org/", with the path that leads here.
	// With https the cookie of a session goes by TLS alone.
	URL string `toml:"url"`
	// A browser that has signed in is signed out after so long without a request, and a console that is open makes some.
	SessionIdle Duration `toml:"session_idle" want:"1m to 31d"`
	// And so long after it has signed in.
	SessionMax Duration `toml:"session_max" want:"1m to 31d"`
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
	// The identity provider with which people sign in; without it they sign in with tokens alone.
	OIDC *OIDC `toml:"oidc,omitempty"`
}

// defaultHTTP is [http] of an empty file. A rate of 1,000 is more than mail and people
// ask, and a thirtieth of what two cores answer: a program that asks in circles leaves
// them to the mail.
func defaultHTTP() HTTP {
	return HTTP{Listen: "127.0.0.1:8025", TokenFile: Auto, ListsFrom: []string{}, Hosts: []string{}, Socket: Auto,
		MaxConnections: 256, MaxRate: 1000, Fast: true, SessionIdle: Duration(httpapi.DefaultIdle), SessionMax: Duration(httpapi.DefaultMax)}
}

func (h HTTP) validate(f *Faults) {
	f.hostPort("http.listen", h.Listen)
	if h.Listen != "" && !h.Closed() && !OnLoopback(h.Listen) {
		f.add("http.listen", "%s can be reached from other machines: it needs http.token_file or http.tokens", h.Listen)
	}
	f.pair("http", h.TLSCert, h.TLSKey)
	f.networks("http.lists_from", h.ListsFrom, "want networks of your own")
	if _, err := h.Address(); err != nil {
		f.add("http.url", "%v", err)
	}
	h.validateOIDC(f)
	if h.SessionIdle > h.SessionMax {
		f.add("http.session_idle", "longer than http.session_max, %s", h.SessionMax)
	}
	for i, host := range h.Hosts {
		if _, err := addr.DomainKey(host); err != nil {
			f.add(fmt.Sprintf("http.hosts[%d]", i), "want a name such as \"mail.example.org\", without a port: %v", err)
		}
	}
	if h.Socket == "" {
		f.add("http.socket", `want a path, "auto" or "none"`)
	} else if h.Socket != Auto && h.Socket != None {
		f.door("http.socket", UnixPrefix+h.Socket)
	}
}

// SessionsSuffix is behind the index's path: the file of the sessions of browsers.
const SessionsSuffix = ".sessions"

// SessionSettings are those of the sessions of browsers.
func (c Config) SessionSettings() session.Settings {
	return session.Settings{Path: c.Index.Path + SessionsSuffix, Idle: time.Duration(c.HTTP.SessionIdle), Max: time.Duration(c.HTTP.SessionMax)}
}

// Address is url with a slash at its end; nil if there is none.
func (h HTTP) Address() (*url.URL, error) {
	if h.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf(`want an address such as "https://mail.example.org/", have %q`, h.URL)
	}
	u.Host = strings.ToLower(u.Host)
	return u.JoinPath("/"), nil
}

// OwnToken is the token that token_file names, "" if that is no path.
func (h HTTP) OwnToken() string {
	if h.TokenFile == Auto || h.TokenFile == None {
		return ""
	}
	return h.TokenFile
}

// Closed reports whether the door answers nobody without a token.
func (h HTTP) Closed() bool { return h.OwnToken() != "" || h.Tokens != "" }

// FirstToken is the file beside the index with a token that the first start makes, so that
// what names senders and recipients is closed to other users of this machine, and open to
// its administrator, before anybody has thought of it. It is "" where there is to be none:
// where other tokens are wanted, where only the Unix socket may ask, and where no door is.
func (c Config) FirstToken() string {
	if c.HTTP.Closed() || c.HTTP.TokenFile == None || c.HTTP.Listen == "" {
		return ""
	}
	return c.Index.Path + ".token"
}

// Scheme is how the door at listen is spoken to.
func (h HTTP) Scheme() string {
	if h.TLSCert != "" {
		return "https"
	}
	return "http"
}

// HTTPSocket is where the Unix socket of the HTTP door is, "" if there is none.
func (c Config) HTTPSocket() string {
	switch c.HTTP.Socket {
	case None:
		return ""
	case Auto:
		return c.Index.Path + ".sock"
	}
	return c.HTTP.Socket
}
