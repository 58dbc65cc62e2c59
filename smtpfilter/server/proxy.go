package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"
)

// The PROXY protocol (HAProxy's doc/proxy-protocol.txt): a load balancer
// names the client, before anything that the client sends.

// Bounds of a header.
const (
	maxProxy1 = 107     // octets of version 1, with CRLF, by its specification
	maxProxy2 = 4 << 10 // of version 2, which allows 64 KiB; addresses and usual attributes are 300
)

// errProxy reports a connection that does not begin with a PROXY header, or
// begins with one that names no client.
var errProxy = errors.New("no PROXY header that names a client")

// trusts reports whether connections from ip begin with a PROXY header. From
// other addresses a client could name any address as its own.
func (s *Server) trusts(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, net := range s.set.Proxies {
		if net.Contains(ip) {
			return true
		}
	}
	return false
}

// proxied reads the header that conn begins with. It returns the client in it,
// or the other end of conn if the proxy speaks for itself (its health checks).
func (s *Server) proxied(conn net.Conn) (netip.AddrPort, error) {
	if err := conn.SetReadDeadline(time.Now().Add(s.set.ProxyTimeout)); err != nil {
		return netip.AddrPort{}, err
	}
	header, err := readProxy(conn)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return netip.AddrPort{}, err
	}
	if header.Command.IsLocal() {
		return clientAddr(conn.RemoteAddr()), nil
	}
	client := clientAddr(header.SourceAddr)
	if !client.IsValid() {
		return netip.AddrPort{}, errProxy
	}
	return client, nil
}

// readProxy reads a header and not one octet more: the rest is the
// client's. The library parses the header, but would read ahead.
func readProxy(r io.Reader) (*proxyproto.Header, error) {
	header := make([]byte, len(proxyproto.SIGV2), 64)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	var err error
	switch {
	case bytes.Equal(header, proxyproto.SIGV2):
		header, err = readProxy2(r, header)
	case bytes.HasPrefix(header, append(proxyproto.SIGV1, ' ')):
		header, err = readProxy1(r, header)
	default:
		err = errProxy
	}
	if err != nil {
		return nil, err
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(header), len(header)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProxy, err)
	}
	return h, nil
}

// readProxy2 reads on after the signature: version and command, family, length,
// and as many octets as the length says.
func readProxy2(r io.Reader, header []byte) ([]byte, error) {
	n := len(header)
	header = append(header, make([]byte, 4)...)
	if _, err := io.ReadFull(r, header[n:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(header[n+2:]))
	if length > maxProxy2 {
		return nil, fmt.Errorf("%w: %d octets long", errProxy, length)
	}
	n = len(header)
	header = append(header, make([]byte, length)...)
	_, err := io.ReadFull(r, header[n:])
	return header, err
}

// readProxy1 reads on to the end of the line, an octet at a time: some 40 system
// calls a connection. Version 2 avoids them.
func readProxy1(r io.Reader, header []byte) ([]byte, error) {
	for header[len(header)-1] != '\n' {
		if len(header) == maxProxy1 {
			return nil, fmt.Errorf("%w: line too long", errProxy)
		}
		header = append(header, 0)
		if _, err := io.ReadFull(r, header[len(header)-1:]); err != nil {
			return nil, err
		}
	}
	return header, nil
}
