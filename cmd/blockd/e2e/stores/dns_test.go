package stores

import (
	"context"
	"crypto/sha1"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestDNSDoor shows one daemon to the programs that ask lists by DNS. Resolvers of mail
// servers know port 53 alone, so it listens there, on an address of its own.
func TestDNSDoor(t *testing.T) {
	address := dnsAddress(t)
	d := e2e.Configure(t, e2e.Setup{
		Lists: fmt.Sprintf("[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n"+
			"[[dns.zone]]\nname = %q\nkind = \"hash\"\nhash = \"sha1\"\n"+
			"[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n", address, e2e.IPZone, e2e.DomainZone, e2e.HashZone),
		Files: map[string]string{"own.txt": e2e.DnsList},
	})
	d.Edit(t, "[index]\n", "[index]\nhashes = [\"sha1\"]\n")
	d.Start(t)
	t.Run("beside rbldnsd", func(t *testing.T) { besideRbldnsd(t, address) })
	t.Run("mail programs", func(t *testing.T) { asMailProgramsSee(t, address) })
	t.Run("reload", func(t *testing.T) { reloadUnderQueries(t, d, address) })
	t.Run("damaged", func(t *testing.T) { damagedUnderQueries(t, d, address) })
}

// dnsAddress is port 53 of an address that no other program is likely to use.
func dnsAddress(t *testing.T) string {
	t.Helper()
	address := e2e.OneOfLoopback() + ":53"
	l, err := net.Listen("tcp", address)
	if err != nil {
		testkit.Missing(t, "port 53 is not for this user, or somebody's for all addresses: "+err.Error())
	}
	l.Close()
	return address
}

// dnsCase is a message and the zones that have something of it.
type dnsCase struct {
	client, sender string
	want           string // of "ip", "domain" and "hash"
}

var dnsCases = []dnsCase{
	{"198.51.100.7", "x@a.bulk.test", "ip domain"},
	{"198.51.100.8", "x@good.bulk.test", ""},
	{"203.0.113.9", "x@a.alone.test", "ip"},
	{"192.0.2.1", "x@a.below.test", "domain"},
	{"192.0.2.1", "promo@other.test", "hash"}, // an address on the list, and no domain
	{"192.0.2.1", "x@other.test", ""},
	{"2001:db8:17::9", "x@alone.test", "ip domain"},
	{"2001:db8:18::9", "x@below.test", ""},
}

// asMailProgramsSee has each mail program ask about each case.
func asMailProgramsSee(t *testing.T, address string) {
	t.Run("rspamd", func(t *testing.T) {
		t.Parallel()
		r := startRspamd(t, address)
		for _, c := range dnsCases {
			testkit.Equal(t, fmt.Sprintf("rspamd: zones of %s and <%s>", c.client, c.sender), r.seen(t, c.client, c.sender), c.want)
		}
	})
	t.Run("SpamAssassin", func(t *testing.T) {
		t.Parallel()
		for i, got := range spamAssassinSees(t, address, dnsCases) {
			if c := dnsCases[i]; got != c.want {
				t.Errorf("SpamAssassin has %s and <%s> in %q, want %q", c.client, c.sender, got, c.want)
			}
		}
	})
	t.Run("Postfix", func(t *testing.T) {
		t.Parallel()
		p := startDNSPostfix(t, address)
		for _, c := range dnsCases {
			if strings.Contains(c.client, ":") { // this Postfix speaks IPv4, and takes no such XCLIENT
				continue
			}
			want := strings.TrimSuffix(c.want, "hash") // which Postfix cannot ask for
			testkit.Equal(t, fmt.Sprintf("Postfix: zones of %s and <%s>", c.client, c.sender), p.seen(t, c.client, c.sender), want)
			screened := p.screened(t, c.client)
			if blocked := strings.HasPrefix(screened, "550 5.7.1 Service unavailable; client ["+c.client+"] blocked using "+e2e.IPZone); blocked != strings.HasPrefix(c.want, "ip") ||
				!blocked && !strings.HasPrefix(screened, "250 ") {
				t.Errorf("postscreen says %q to %s, want it in %q", screened, c.client, c.want)
			}
		}
	})
}

// dig asks a server questions of a name and a type each, by UDP without another option, and returns the answers in few words.
func dig(t *testing.T, address string, questions []string, options ...string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	batch := testkit.Write(t, filepath.Join(t.TempDir(), "questions"), strings.Join(questions, "\n")+"\n")
	args := append([]string{"-r", "@" + host, "-p", port, "+noall", "+comments", "+answer", "+authority", "+notcp", "+time=60", "+tries=2"}, options...)
	out, err := exec.Command(testkit.Peer(t, "dig"), append(args, "-f", batch)...).CombinedOutput()
	parts := strings.Split(string(out), ";; Got answer:\n")
	if err != nil || len(parts) != len(questions)+1 {
		t.Fatalf("dig: %v, %d questions\n%s", err, len(questions), out)
	}
	var answers []string
	for _, part := range parts[1:] {
		answers = append(answers, digested(part))
	}
	return answers
}

var (
	digStatus = regexp.MustCompile(`status: ([A-Z]+)`)
	digRecord = regexp.MustCompile(`(?m)^[^;\s]\S*\s+\d+\s+IN\s+([A-Z]+)\s+(.*)$`)
)

// digested is one answer as dig prints it: the code, the records, and "(SOA)" for what says
// how long "no" holds. Of most records the type is enough.
func digested(text string) string {
	words := []string{"?"}
	if m := digStatus.FindStringSubmatch(text); m != nil {
		words[0] = m[1]
	}
	answer, authority, _ := strings.Cut(text, ";; AUTHORITY SECTION:")
	for _, m := range digRecord.FindAllStringSubmatch(answer, -1) {
		if m[1] == "A" {
			m[1] += " " + m[2]
		}
		words = append(words, m[1])
	}
	slices.Sort(words[1:])
	if m := digRecord.FindStringSubmatch(authority); m != nil && m[1] == "SOA" {
		words = append(words, "(SOA)")
	}
	return strings.Join(words, " ")
}

// besideRbldnsd asks blockd and a real rbldnsd with the same list the same questions.
// docs/dns.md has those that the two answer differently; -update writes it.
func besideRbldnsd(t *testing.T, address string) {
	other := startRbldnsd(t)
	questions := rbldnsdQuestions()
	ours, theirs := dig(t, address, questions), dig(t, other, questions)
	table := [][]string{{"question", "blockd", "rbldnsd"}}
	same := 0
	for i, q := range questions {
		if ours[i] == theirs[i] {
			same++
			continue
		}
		table = append(table, []string{"`" + q + "`", ours[i], theirs[i]})
	}
	t.Logf("%d of %d questions have the same answer\n%s", same, len(questions), e2e.Aligned(table))
	for i, tcp := range dig(t, address, questions, "+tcp") {
		if tcp != ours[i] {
			t.Errorf("%s: %s by UDP, %s by TCP", questions[i], ours[i], tcp)
		}
	}
	for i, plain := range dig(t, address, questions, "+noedns", "+nocookie") {
		if plain != ours[i] {
			t.Errorf("%s: %s with EDNS, %s without", questions[i], ours[i], plain)
		}
	}
	e2e.ComparePage(t, filepath.Join(e2e.Root, "docs", "dns.md"), "rbldnsd", table)
}

func rbldnsdQuestions() (all []string) {
	nibbles := func(ip string) string { return e2e.Reversed(netip.MustParseAddr(ip)) }
	for _, name := range []string{"bulk.test", "BULK.Test", "a.bulk.test", "a.b.c.bulk.test", "good.bulk.test", "a.good.bulk.test", "alone.test", "a.alone.test",
		"below.test", "a.below.test", "other.test", "clear.test", "test", "invalid", "xn--bcher-kva.test"} {
		all = append(all, name+"."+e2e.DomainZone+" A", name+"."+e2e.DomainZone+" TXT")
	}
	for _, name := range []string{"7.100.51.198", "8.100.51.198", "9.113.0.203", "10.113.0.203", "2.0.0.127", "1.0.0.127", nibbles("2001:db8:17::1"), nibbles("2001:db8:18::1"),
		"2.0.0.0.0.0.f.7.f.f.f.f" + strings.Repeat(".0", 20), "100.51.198", "7.7.100.51.198", "300.100.51.198", "07.100.51.198", "bulk.test"} {
		all = append(all, name+"."+e2e.IPZone+" A", name+"."+e2e.IPZone+" TXT")
	}
	for _, kind := range []string{"AAAA", "MX", "ANY"} {
		all = append(all, "bulk.test."+e2e.DomainZone+" "+kind, "clear.test."+e2e.DomainZone+" "+kind, "7.100.51.198."+e2e.IPZone+" "+kind)
	}
	for _, kind := range []string{"A", "TXT", "SOA", "NS", "MX"} {
		all = append(all, e2e.DomainZone+" "+kind)
	}
	return append(all, "bulk.test.elsewhere.test A")
}

// startRbldnsd serves dnsList until the test ends.
func startRbldnsd(t *testing.T) (address string) {
	t.Helper()
	command := testkit.Peer(t, "rbldnsd")
	const head = "$SOA 60 ns.dns.test hostmaster.dns.test 0 60 60 60 60\n$NS 60 ns.dns.test\n$TTL 60\n:127.0.0.2:listed\n"
	zone := func(format string) string {
		_, file := exported(t, e2e.DnsList, format)
		testkit.Write(t, file, head+string(testkit.Read(t, file)))
		return file
	}
	domains, four := zone("rbldnsd"), zone("rbldnsd:ip4set")
	six := testkit.Write(t, filepath.Join(filepath.Dir(four), "six"), ":127.0.0.2:listed\n2001:db8:17::/48\n")
	address = e2e.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	cmd := exec.Command(command, "-n", "-b", host+"/"+port, e2e.DomainZone+":dnset:"+domains, e2e.IPZone+":ip4set:"+four, e2e.IPZone+":ip6trie:"+six)
	e2e.StartProgram(t, cmd, func() string { return "" }, func() bool {
		m, err := e2e.AskDNS("udp", address, "bulk.test."+e2e.DomainZone, time.Second)
		return err == nil && len(m.Answer) > 0
	})
	return address
}

// reloadUnderQueries changes the list while programs ask: none is left without the right answer.
func reloadUnderQueries(t *testing.T, d *e2e.Daemon, address string) {
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for _, network := range []string{"udp", "tcp"} {
		for name, listed := range map[string]bool{"a.bulk.test": true, "clear.test": false} {
			asking.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					m, err := e2e.AskDNS(network, address, name+"."+e2e.DomainZone, time.Minute)
					if err != nil || listed != (len(m.Answer) == 1) || listed != (m.Rcode == dns.RcodeSuccess) {
						t.Errorf("question %d for %s by %s: %v\n%v", n, name, network, err, m)
						return
					}
				}
			})
		}
	}
	for i := range 10 {
		name := fmt.Sprintf("new-%d.test", i)
		e2e.Replace(t, d.Path("own.txt"), e2e.DnsList+name+"\n")
		testkit.Eventually(t, "the new entry to be listed", func() bool {
			m, err := e2e.AskDNS("udp", address, name+"."+e2e.DomainZone, time.Minute)
			return err == nil && len(m.Answer) == 1
		})
	}
	stop()
	asking.Wait()
}

// damagedUnderQueries damages the index that serves. What was listed is then not known; that
// is SERVFAIL, and no client refuses mail by it.
func damagedUnderQueries(t *testing.T, d *e2e.Daemon, address string) {
	e2e.Replace(t, d.Path("own.txt"), e2e.DnsList) // a whole index again, of which nothing was read
	testkit.Eventually(t, "the last entry to be gone", func() bool {
		m, err := e2e.AskDNS("udp", address, "new-9.test."+e2e.DomainZone, time.Minute)
		return err == nil && m.Rcode == dns.RcodeNameError
	})
	e2e.BreakStore(t, d.Path("blockd.bdx"), "bulk.test")
	questions := []string{"a.bulk.test." + e2e.DomainZone + " A", "a.bulk.test." + e2e.DomainZone + " TXT", "7.100.51.198." + e2e.IPZone + " A", "clear.test." + e2e.DomainZone + " A",
		"test." + e2e.DomainZone + " A",
		fmt.Sprintf("%x.%s A", sha1.Sum([]byte("promo@other.test")), e2e.HashZone)}
	want := []string{"SERVFAIL", "SERVFAIL", "SERVFAIL", "NXDOMAIN (SOA)", "NOERROR A 127.0.0.2", "SERVFAIL"}
	if got := dig(t, address, questions); !slices.Equal(got, want) {
		t.Errorf("a damaged index answers %q to\n%q, want\n%q", got, questions, want)
	}
	listed, hashed := dnsCase{"198.51.100.7", "x@a.bulk.test", ""}, dnsCase{"192.0.2.1", "promo@other.test", ""}
	t.Run("rspamd", func(t *testing.T) {
		t.Parallel()
		r := startRspamd(t, address)
		for _, c := range []dnsCase{listed, hashed} {
			testkit.Equal(t, "rspamd: SERVFAIL is a listing in", r.seen(t, c.client, c.sender), "")
		}
	})
	t.Run("SpamAssassin", func(t *testing.T) {
		t.Parallel()
		testkit.Equal(t, "SpamAssassin: SERVFAIL is a listing in", strings.Join(spamAssassinSees(t, address, []dnsCase{listed, hashed}), ""), "")
	})
	t.Run("Postfix", func(t *testing.T) {
		t.Parallel()
		p := startDNSPostfix(t, address)
		testkit.Equal(t, "Postfix: SERVFAIL is a listing in", p.seen(t, listed.client, listed.sender), "")
		testkit.Begins(t, "postscreen, of SERVFAIL", p.screened(t, listed.client), "250 ")
		for _, said := range []string{"RBL lookup error", "dnsblog_query: lookup error for DNS query " + "7.100.51.198." + e2e.IPZone} {
			testkit.Eventually(t, "Postfix to log: "+said, func() bool { return strings.Contains(p.Log(), said) })
		}
	})
}

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
