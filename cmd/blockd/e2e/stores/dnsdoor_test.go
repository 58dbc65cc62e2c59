package stores

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

func TestDNSDoorByItself(t *testing.T) {
	address := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.DNSDoor(address))
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]string{
			"bulk.example.dbl.here.example.":      "127.0.0.2",
			"good.bulk.example.dbl.here.example.": "NXDOMAIN",
			"new.example.dbl.here.example.":       "NXDOMAIN",
			"7.2.0.192.ip.here.example.":          "127.0.0.4",
			"8.2.0.192.ip.here.example.":          "NXDOMAIN",
			"bulk.example.":                       "REFUSED",
		} {
			testkit.Equal(t, fmt.Sprintf("%s by %s", name, network), e2e.Resolve(t, network, address, name, dns.TypeA), want)
		}
	}
	text := e2e.Resolve(t, "udp", address, "bulk.example.dbl.here.example.", dns.TypeTXT)
	before, ref, _ := strings.Cut(strings.Trim(text, `")`), " (ref ")
	if before != "listed in bad, line 1" || len(ref) != 10 {
		t.Errorf("TXT %s", text)
	}
	testkit.Eventually(t, "the reference in the history", func() bool {
		out, err := exec.Command(e2e.Program, "history", "-c", d.Path("config.toml"), "--ref", ref).CombinedOutput()
		return err == nil && strings.Contains(string(out), "bulk.example")
	})

	// A live entry acts at once, and a saved list soon.
	e2e.Blockd(t, "add", "-c", d.Path("config.toml"), "new.example")
	testkit.Equal(t, "a live entry", e2e.Resolve(t, "udp", address, "new.example.dbl.here.example.", dns.TypeA), "127.0.0.2")
	testkit.Write(t, d.Path("bad.txt"), "other.example\nbulk.example\n")
	testkit.Eventually(t, "the list to act", func() bool {
		return e2e.Resolve(t, "udp", address, "other.example.dbl.here.example.", dns.TypeA) == "127.0.0.2"
	})
}

// systemd hands over sockets of both kinds by one name. A query that comes between two daemons
// waits for the next.
func TestDNSSocketsOfSystemd(t *testing.T) {
	elsewhere := e2e.FreeAddress(t)
	d := e2e.Configure(t, e2e.DNSDoor(elsewhere))
	tcp := testkit.Value(net.Listen("tcp", e2e.FreeAddress(t)))(t)
	defer tcp.Close()
	address := tcp.Addr().String()
	udp := testkit.Value(net.ListenPacket("udp", address))(t)
	defer udp.Close()
	names := []string{"dns", "dns"}
	files := []*os.File{e2e.FileOf(t, udp.(*net.UDPConn)), e2e.FileOf(t, tcp.(*net.TCPListener))}

	answer := make(chan string, 1)
	go func() { // before there is a daemon
		q := new(dns.Msg)
		q.SetQuestion("bulk.example.dbl.here.example.", dns.TypeA)
		client := dns.Client{Timeout: 2 * time.Minute}
		m, _, err := client.Exchange(q, address)
		answer <- fmt.Sprint(m != nil && len(m.Answer) == 1, err)
	}()
	for range 2 {
		d.Run(t, e2e.PassingFiles(d, names, files))
		for _, network := range []string{"udp", "tcp"} {
			testkit.Equal(t, "by "+network, e2e.Resolve(t, network, address, "bulk.example.dbl.here.example.", dns.TypeA), "127.0.0.2")
		}
		if e2e.Listens(elsewhere) {
			t.Errorf("%s of the configuration is open as well", elsewhere)
		}
		d.Stop(t)
	}
	testkit.Equal(t, "a query that came before the daemon", <-answer, "true <nil>")
}

// A port that another server has is said in one line.
func TestDNSPortInUse(t *testing.T) {
	l := testkit.Listen(t)
	d := e2e.Configure(t, e2e.DNSDoor(l.Addr().String()))
	out, err := exec.Command(e2e.Program, "serve", "-c", d.Path("config.toml")).CombinedOutput()
	if want := "dns.listen: " + l.Addr().String() + " is in use; is another blockd running?"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("blockd serve: %v\n%s\nwant %q", err, out, want)
	}
}
