package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/testkit"
)

// dnsDoor is a setup with a DNS door at an address.
func dnsDoor(address string) setup {
	return setup{
		files: map[string]string{"bad.txt": "bulk.example\n!good.bulk.example\npromo@ads.example\n192.0.2.7\n"},
		lists: fmt.Sprintf(`
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

// resolve asks for the one record of a name: its data, or the code of the answer.
func resolve(t *testing.T, network, address, name string, qtype uint16) string {
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

func TestDNSDoorByItself(t *testing.T) {
	address := freeAddress(t)
	d := serve(t, dnsDoor(address))
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]string{
			"bulk.example.dbl.here.example.":      "127.0.0.2",
			"good.bulk.example.dbl.here.example.": "NXDOMAIN",
			"new.example.dbl.here.example.":       "NXDOMAIN",
			"7.2.0.192.ip.here.example.":          "127.0.0.4",
			"8.2.0.192.ip.here.example.":          "NXDOMAIN",
			"bulk.example.":                       "REFUSED",
		} {
			if got := resolve(t, network, address, name, dns.TypeA); got != want {
				t.Errorf("%s by %s: %s, want %s", name, network, got, want)
			}
		}
	}
	text := resolve(t, "udp", address, "bulk.example.dbl.here.example.", dns.TypeTXT)
	before, ref, _ := strings.Cut(strings.Trim(text, `")`), " (ref ")
	if before != "listed in bad, line 1" || len(ref) != 10 {
		t.Errorf("TXT %s", text)
	}
	testkit.Eventually(t, "the reference in the history", func() bool {
		out, err := exec.Command(program, "history", "-c", d.path("config.toml"), "--ref", ref).CombinedOutput()
		return err == nil && strings.Contains(string(out), "bulk.example")
	})

	// A live entry acts at once, and a saved list soon.
	if out, err := exec.Command(program, "add", "-c", d.path("config.toml"), "new.example").CombinedOutput(); err != nil {
		t.Fatalf("blockd add: %v\n%s", err, out)
	}
	if got := resolve(t, "udp", address, "new.example.dbl.here.example.", dns.TypeA); got != "127.0.0.2" {
		t.Errorf("a live entry: %s", got)
	}
	testkit.Write(t, d.path("bad.txt"), "other.example\nbulk.example\n")
	testkit.Eventually(t, "the list to act", func() bool {
		return resolve(t, "udp", address, "other.example.dbl.here.example.", dns.TypeA) == "127.0.0.2"
	})
}

// systemd hands over sockets of both kinds by one name. A query that comes between two daemons
// waits for the next.
func TestDNSSocketsOfSystemd(t *testing.T) {
	elsewhere := freeAddress(t)
	d := configure(t, dnsDoor(elsewhere))
	tcp, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	address := tcp.Addr().String()
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	names := []string{"dns", "dns"}
	files := []*os.File{fileOf(t, udp.(*net.UDPConn)), fileOf(t, tcp.(*net.TCPListener))}

	answer := make(chan string, 1)
	go func() { // before there is a daemon
		q := new(dns.Msg)
		q.SetQuestion("bulk.example.dbl.here.example.", dns.TypeA)
		client := dns.Client{Timeout: 2 * time.Minute}
		m, _, err := client.Exchange(q, address)
		answer <- fmt.Sprint(m != nil && len(m.Answer) == 1, err)
	}()
	for range 2 {
		d.run(t, passingFiles(d, names, files))
		for _, network := range []string{"udp", "tcp"} {
			if got := resolve(t, network, address, "bulk.example.dbl.here.example.", dns.TypeA); got != "127.0.0.2" {
				t.Errorf("by %s: %s", network, got)
			}
		}
		if listens(elsewhere) {
			t.Errorf("%s of the configuration is open as well", elsewhere)
		}
		d.stop(t)
	}
	if got := <-answer; got != "true <nil>" {
		t.Errorf("a query that came before the daemon: %s", got)
	}
}

// A port that another server has is said in one line.
func TestDNSPortInUse(t *testing.T) {
	l := testkit.Listen(t)
	d := configure(t, dnsDoor(l.Addr().String()))
	out, err := exec.Command(program, "serve", "-c", d.path("config.toml")).CombinedOutput()
	if want := "dns.listen: " + l.Addr().String() + " is in use; is another blockd running?"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("blockd serve: %v\n%s\nwant %q", err, out, want)
	}
}
