package stores

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// unboundConf runs an Unbound from a folder of its own, that validates. The lines of docs/dns.md follow.
const unboundConf = `server:
    interface: 127.0.0.1
    port: %s
    do-daemonize: no
    use-syslog: no
    username: ""
    chroot: ""
    directory: "%s"
    pidfile: "unbound.pid"
    trust-anchor: ". DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D"
remote-control:
    control-enable: no
%s`

// TestUnboundSendsTheZone: with the lines of docs/dns.md a resolver answers from blockd's zone, although it validates.
func TestUnboundSendsTheZone(t *testing.T) {
	dir, door, resolver := t.TempDir(), e2e.FreeAddress(t), e2e.FreeAddress(t)
	// AppArmor confines the installed program to folders of its own, and not a copy.
	unbound := testkit.Write(t, filepath.Join(dir, "unbound"), testkit.Read(t, testkit.Peer(t, "unbound")))
	testkit.Must(t, os.Chmod(unbound, 0o755))
	s := e2e.DNSDoor(door)
	s.Lists = strings.Replace(s.Lists, "dbl.here.example", "dbl.example.org", 1)
	e2e.Serve(t, s)
	lines := e2e.Fenced(t, "docs/dns.md", "unbound")
	if len(lines) != 1 || !strings.Contains(lines[0], "127.0.0.1@8853") {
		t.Fatalf("docs/dns.md has %q", lines)
	}
	stub := strings.Replace(lines[0], "127.0.0.1@8853", strings.Replace(door, ":", "@", 1), 1)
	_, port, _ := strings.Cut(resolver, ":")
	conf := testkit.Write(t, filepath.Join(dir, "unbound.conf"), fmt.Sprintf(unboundConf, port, dir, stub))
	e2e.StartServer(t, exec.Command(unbound, "-d", "-p", "-c", conf), resolver)
	for name, want := range map[string]string{
		"bulk.example.dbl.example.org.":      "127.0.0.2",
		"mx.bulk.example.dbl.example.org.":   "127.0.0.2",
		"good.bulk.example.dbl.example.org.": "NXDOMAIN",
		"new.example.dbl.example.org.":       "NXDOMAIN",
	} {
		testkit.Equal(t, name, e2e.Resolve(t, "udp", resolver, name, dns.TypeA), want)
	}
}
