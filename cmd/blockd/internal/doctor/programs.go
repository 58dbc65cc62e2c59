package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/internal/control"
	"blockd/doors/dnsbl"
)

// probe is a question in a zone of which the answer is known.
type probe struct {
	name    string // below the zone; "" = the zone itself
	qtype   uint16
	records bool // whether the answer has any
}

// The questions, by the kind of the zone: names that are always listed, and never (RFC 5782, section 5).
// For digests there are no such names.
var probes = map[dnsbl.Kind][]probe{
	dnsbl.IP:     {{"2.0.0.127", dns.TypeA, true}, {"1.0.0.127", dns.TypeA, false}},
	dnsbl.Domain: {{"test", dns.TypeA, true}, {"invalid", dns.TypeA, false}},
	dnsbl.Hash:   {{"", dns.TypeSOA, true}},
}

// checkZones asks each zone for its test entries, or for its SOA record, by UDP and by TCP.
func (d *doctor) checkZones(ctx context.Context, r *report) {
	address := control.Reachable(d.DNS.Listen)
	conn, err := d.dial(ctx, "tcp", address)
	switch {
	case err != nil && !d.running: // which one line says, and not one for each door
		return
	case err != nil:
		r.fault("is the daemon running with this configuration? Does a firewall stand in between?", "%s cannot be reached: %v", address, control.Cause(err))
		return
	}
	conn.Close()
	for _, zone := range d.DNSDoor().Zones {
		for _, network := range []string{"udp", "tcp"} {
			if hint, err := checkZone(ctx, network, address, zone.Name, probes[zone.Kind]); err != nil {
				r.fault(hint, "%s, zone %s by %s: %v", address, zone.Name, strings.ToUpper(network), err)
				return // the others have the same
			}
		}
		if zone.Kind == dnsbl.Hash {
			r.ok("%s: zone %s answers", address, zone.Name)
		} else {
			r.ok("%s: zone %s has the test entries of RFC 5782", address, zone.Name)
		}
	}
}

// checkZone asks the questions, and compares.
func checkZone(ctx context.Context, network, address, zone string, questions []probe) (hint string, err error) {
	client := dns.Client{Net: network, Timeout: doorTimeout}
	for _, p := range questions {
		name := strings.TrimPrefix(p.name+"."+zone, ".")
		var q dns.Msg
		q.SetQuestion(dns.Fqdn(name), p.qtype)
		m, _, err := client.ExchangeContext(ctx, &q, address)
		switch {
		case err != nil:
			return "is it blockd that listens there, and does a firewall let UDP and TCP through?", control.Cause(err)
		case m.Rcode == dns.RcodeServerFailure:
			return "its lists have never loaded, or the index cannot be read: see blockd lists and the daemon's log", fmt.Errorf("SERVFAIL for %s", name)
		case m.Rcode == dns.RcodeRefused:
			return "does dns.allow_from have this machine, and the daemon this configuration?", fmt.Errorf("REFUSED for %s", name)
		case p.records != (len(m.Answer) > 0):
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
		return fmt.Errorf("no answer to PING (does resp.allow_from let %s in?): %v", conn.LocalAddr(), control.Cause(err)) // not wrapped: the report would show the cause alone
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
