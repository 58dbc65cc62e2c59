package config

import (
	"fmt"

	"blockd/addr"
)

// defaultHTTP is [http] of an empty file. A rate of 1,000 is more than mail and people
// ask, and a thirtieth of what two cores answer: a program that asks in circles leaves
// them to the mail.
func defaultHTTP() HTTP {
	return HTTP{Listen: "127.0.0.1:8025", TokenFile: Auto, Hosts: []string{}, Socket: Auto,
		MaxConnections: 256, MaxRate: 1000, Fast: true}
}

func (h HTTP) validate(f *Faults) {
	f.hostPort("http.listen", h.Listen)
	if h.Listen != "" && !h.Closed() && !OnLoopback(h.Listen) {
		f.add("http.listen", "%s can be reached from other machines: it needs http.token_file or http.tokens", h.Listen)
	}
	switch {
	case h.TLSCert != "" && h.TLSKey == "":
		f.add("http.tls_key", "is missing; http.tls_cert needs it")
	case h.TLSCert == "" && h.TLSKey != "":
		f.add("http.tls_cert", "is missing; http.tls_key needs it")
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

// warnings are what h allows and its administrator may not mean.
func (h HTTP) warnings() (w []string) {
	if h.Listen != "" && !OnLoopback(h.Listen) && h.TLSCert == "" {
		w = append(w, fmt.Sprintf("http.listen %s without http.tls_cert: tokens cross the network as they are", h.Listen))
	}
	return w
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
