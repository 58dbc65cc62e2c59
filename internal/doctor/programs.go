package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/miekg/dns"

	"blockd/dnsbl"
	"blockd/internal/control"
)

// testEntries are names of a zone that are always listed, and never (RFC 5782, section 5).
var testEntries = map[dnsbl.Kind][2]string{dnsbl.IP: {"2.0.0.127", "1.0.0.127"}, dnsbl.Domain: {"test", "invalid"}}

// checkZones asks each zone for its test entries, by UDP and by TCP.
func (d *doctor) checkZones(ctx context.Context, r *report) {
	address := control.Reachable(d.DNS.Listen)
	conn, err := d.dial(ctx, "tcp", address)
	switch {
	case err != nil && !d.running:
		r.warning("it opens when the daemon starts", "%s is shut: no daemon runs", address)
		return
	case err != nil:
		r.fault("is the daemon running with this configuration? Does a firewall stand in between?", "%s cannot be reached: %v", address, control.Cause(err))
		return
	}
	conn.Close()
	for _, zone := range d.DNSDoor().Zones {
		names, known := testEntries[zone.Kind]
		if !known {
			continue
		}
		for _, network := range []string{"udp", "tcp"} {
			if hint, err := checkZone(ctx, network, address, zone.Name, names); err != nil {
				r.fault(hint, "%s, zone %s by %s: %v", address, zone.Name, strings.ToUpper(network), err)
				return // the others have the same
			}
		}
		r.ok("%s: zone %s has the test entries of RFC 5782", address, zone.Name)
	}
}

// checkZone asks for the name that is always listed and for the one that never is.
func checkZone(ctx context.Context, network, address, zone string, names [2]string) (hint string, err error) {
	client := dns.Client{Net: network, Timeout: doorTimeout}
	for i, name := range names {
		var q dns.Msg
		q.SetQuestion(dns.Fqdn(name+"."+zone), dns.TypeA)
		m, _, err := client.ExchangeContext(ctx, &q, address)
		switch listed := i == 0; {
		case err != nil:
			return "is it blockd that listens there, and does a firewall let UDP and TCP through?", control.Cause(err)
		case m.Rcode == dns.RcodeServerFailure:
			return "its lists have never loaded, or the index cannot be read: see blockd lists and the daemon's log", fmt.Errorf("SERVFAIL for %s", name)
		case m.Rcode == dns.RcodeRefused:
			return "does dns.allow_from have this machine, and the daemon this configuration?", fmt.Errorf("REFUSED for %s", name)
		case listed != (len(m.Answer) > 0):
			return "is it blockd that listens there?", fmt.Errorf("%d records for %s", len(m.Answer), name)
		}
	}
	return "", nil
}

// speakRESP sends PING, which is answered, or refused to those who have to log in.
func (d *doctor) speakRESP(conn net.Conn, r *report) error {
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no answer to PING (does resp.allow_from let %s in?): %w", conn.LocalAddr(), err)
	}
	switch line = strings.TrimSpace(line); {
	case line == "+PONG":
		r.ok("%s answers PING", d.RESP.Listen)
	case strings.HasPrefix(line, "-NOAUTH"):
		r.ok("%s answers, and wants a password of %s", d.RESP.Listen, conn.LocalAddr())
	default:
		return fmt.Errorf("no blockd answers there: %q", line)
	}
	return nil
}
