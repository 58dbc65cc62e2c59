package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/testkit"
)

// The zones of these tests, and the list that they answer from.
const (
	IPZone     = "ip.dns.test"
	DomainZone = "dbl.dns.test"
	HashZone   = "ebl.dns.test"

	DnsList = `bulk.test
!good.bulk.test
=alone.test
.below.test
promo@other.test
198.51.100.0/24
!198.51.100.8
203.0.113.9
2001:db8:17::/48
`
)

// AskDNS asks for the A records of a name.
func AskDNS(network, address, name string, limit time.Duration) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m, _, err := (&dns.Client{Net: network, Timeout: limit}).Exchange(q, address)
	return m, err
}

// DNSDoor is a setup with a DNS door at an address.
func DNSDoor(address string) Setup {
	return Setup{
		Files: map[string]string{"bad.txt": "bulk.example\n!good.bulk.example\npromo@ads.example\n192.0.2.7\n"},
		Lists: fmt.Sprintf(`
[dns]
listen = %q
[[dns.zone]]
name = "dbl.here.example"
kind = "domain"
[[dns.zone]]
name = "ip.here.example"
kind = "ip"
answer = "127.0.0.4"
lists = ["bad"]
[[list]]
name = "bad"
path = "bad.txt"
`, address),
	}
}

// Resolve asks for the one record of a name: its data, or the code of the answer.
func Resolve(t *testing.T, network, address, name string, qtype uint16) string {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	client := dns.Client{Net: network, Timeout: 2 * time.Minute}
	m, _, err := client.Exchange(q, address)
	if err != nil {
		t.Fatalf("%s by %s: %v", name, network, err)
	}
	if len(m.Answer) != 1 {
		return dns.RcodeToString[m.Rcode]
	}
	return strings.TrimPrefix(m.Answer[0].String(), m.Answer[0].Header().String())
}

// Reversed is an address as DNS lists have it in front of their zone.
func Reversed(ip netip.Addr) string {
	name, _ := dns.ReverseAddr(ip.String()) // an Addr is an address
	for _, tree := range []string{".in-addr.arpa.", ".ip6.arpa."} {
		name = strings.TrimSuffix(name, tree)
	}
	return name
}

// OneOfLoopback is an address of this machine that no other program is likely to use.
func OneOfLoopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

// BesideResolver is a command that runs another one in a place of its own in the file system,
// where resolv.conf names a server, of port 53.
func BesideResolver(t *testing.T, dir, address string) []string {
	t.Helper()
	conf := testkit.Write(t, filepath.Join(dir, "resolv.conf"), "nameserver "+strings.TrimSuffix(address, ":53")+"\noptions timeout:5 attempts:2\n")
	by := []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/resolv.conf; exec "$@"`, conf}
	if out, err := exec.Command(by[0], append(by[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace, and so no DNS of the test's own: %v: %s", err, out)
	}
	return by
}
