package stores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// exported compiles a list of the plain format and writes it in another one, in a
// folder that servers with a user of their own can read.
func exported(t *testing.T, list, format string) (bdx, file string) {
	t.Helper()
	dir := testkit.Value(os.MkdirTemp("", "blockd-export-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	bdx, file = filepath.Join(dir, "x.bdx"), filepath.Join(dir, "list")
	testkit.Write(t, filepath.Join(dir, "plain.txt"), list)
	e2e.Blockd(t, "compile", "-o", bdx, "--format", "plain", filepath.Join(dir, "plain.txt"))
	out, err := exec.Command(e2e.Program, "export", "-i", bdx, "--format", format, "-o", file).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatalf("export: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return bdx, file
}

// exportNames are entries for names with exceptions above and below each other, and
// with all the characters that names may have.
const exportNames = `bulk.test
!good.bulk.test
bad.good.bulk.test
=alone.test
.below.test
!=own.test
own.test
!.under.test
under.test
_dmarc.odd.test
xn--bcher-kva.test
-.odd.test
0.odd.test
127.0.0.1.odd.test
rpz-ip.odd.test
x.rpz-ip
soa
`

// exportAsked are senders to ask about, by their domains.
var exportAsked = []string{"bulk.test", "a.bulk.test", "good.bulk.test", "a.good.bulk.test", "bad.good.bulk.test", "alone.test", "a.alone.test", "below.test",
	"a.below.test", "own.test", "a.own.test", "under.test", "a.under.test", "_dmarc.odd.test", "xn--bcher-kva.test", "0.odd.test", "127.0.0.1.odd.test",
	"rpz-ip.odd.test", "odd.test", "clear.test", "x.rpz-ip", "soa", "a.soa", "dnset.test", "test"}

// verdicts is what blockd says of each.
func verdicts(t *testing.T, bdx string, asked []string) map[string]bool {
	t.Helper()
	cmd := exec.Command(e2e.Program, "check", "-i", bdx, "-")
	cmd.Stdin = strings.NewReader(strings.Join(asked, "\n") + "\n")
	out := testkit.Value(cmd.Output())(t)
	blocked := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		blocked[fields[0]] = fields[1] == "blocked"
	}
	if len(blocked) != len(asked) {
		t.Fatalf("%d answers to %d questions:\n%s", len(blocked), len(asked), out)
	}
	return blocked
}

// TestExportIsServedByRbldnsd: a real rbldnsd lists the names and addresses that
// blockd blocks, and no others.
func TestExportIsServedByRbldnsd(t *testing.T) {
	command := testkit.Peer(t, "rbldnsd")
	bdx, file := exported(t, exportNames+"198.51.100.0/25\n!198.51.100.8/30\n198.51.100.9\n203.0.113.7\n", "rbldnsd:combined")
	address := e2e.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	var says bytes.Buffer
	server := exec.Command(command, "-n", "-b", host+"/"+port, "bl.test:combined:"+file)
	server.Stdout, server.Stderr = &says, &says
	testkit.Must(t, server.Start())
	stop := func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
	}
	defer stop()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", address)
	}}
	listed := func(name string) (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := resolver.LookupHost(ctx, name+".bl.test.")
		if none := (*net.DNSError)(nil); errors.As(err, &none) && none.IsNotFound {
			return false, nil
		}
		return err == nil, err
	}
	testkit.Eventually(t, "rbldnsd to answer", func() bool {
		yes, _ := listed("bulk.test")
		return yes
	})
	// "-" is a label that Go does not ask for.
	var asked []string
	for _, name := range exportAsked {
		asked = append(asked, "x@"+name)
	}
	for sender, want := range verdicts(t, bdx, asked) {
		if have, err := listed(sender[2:]); have != want || err != nil {
			t.Errorf("rbldnsd lists %s: %t, %v; blockd blocks it: %t", sender[2:], have, err, want)
		}
	}
	for ip, want := range verdicts(t, bdx, []string{"198.51.100.7", "198.51.100.8", "198.51.100.9", "198.51.100.12", "198.51.100.128", "203.0.113.7", "203.0.113.8"}) {
		octets := strings.Split(ip, ".")
		slices.Reverse(octets)
		if have, err := listed(strings.Join(octets, ".")); have != want || err != nil {
			t.Errorf("rbldnsd lists %s: %t, %v; blockd blocks it: %t", ip, have, err, want)
		}
	}
	stop()
	for line := range strings.Lines(says.String()) {
		if strings.Contains(line, file+"(") { // what it says of a line
			t.Errorf("rbldnsd complains: %s", line)
		}
	}
}

// TestRbldnsdDatasets: a file with datasets of every type that rbldnsd serves is a list of the same clients and names,
// with the same texts.
func TestRbldnsdDatasets(t *testing.T) {
	command := testkit.Peer(t, "rbldnsd")
	dir := testkit.Value(os.MkdirTemp("", "blockd-rbldnsd-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	file, bdx := filepath.Join(dir, "zone"), filepath.Join(dir, "x.bdx")
	testkit.Write(t, file, `$SOA 60 ns.bl.test hostmaster.bl.test 0 60 60 60 60
$NS 60 ns.bl.test
$DATASET ip4trie:trie @
:127.0.0.2:all of $
198.51.100.0/25
198.51.100.64/27 :127.0.0.3:a worse part
!198.51.100.8
203.0.113
$DATASET ip4tset:single @
:127.0.0.2:alone
192.0.2.9
$DATASET ip6trie:six @
:127.0.0.2:six $
2001:db8:17::/48
!2001:db8:17::bead
2001:db8:18:1
$DATASET generic:other @
bulk.test TXT "why bulk"
bulk.test A 127.0.0.2
9.113.0.192 60 A 127.0.0.4
$DATASET dnset:names @
:127.0.0.2:a name
.shop.test
`)
	e2e.Blockd(t, "compile", "-o", bdx, "--format", "rbldnsd:combined", file)
	address := e2e.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	server := exec.Command(command, "-n", "-b", host+"/"+port, "bl.test:combined:"+file)
	testkit.Must(t, server.Start())
	defer func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
	}()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", address)
	}}
	text := func(name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		texts, _ := resolver.LookupTXT(ctx, name+".bl.test.")
		return strings.Join(texts, "")
	}
	testkit.Eventually(t, "rbldnsd to answer", func() bool { return text("bulk.test") != "" })
	asked := map[string]string{"x@bulk.test": "bulk.test", "x@a.bulk.test": "a.bulk.test", "x@shop.test": "shop.test", "x@a.shop.test": "a.shop.test"}
	for _, ip := range []string{"198.51.100.1", "198.51.100.8", "198.51.100.65", "198.51.100.128", "203.0.113.200", "192.0.2.9", "192.0.2.10", "192.0.113.9",
		"2001:db8:17::1", "2001:db8:17::bead", "2001:db8:18:1::7", "2001:db8:18:2::7"} {
		asked[ip] = e2e.Reversed(netip.MustParseAddr(ip))
	}
	have := verdicts(t, bdx, slices.Collect(maps.Keys(asked)))
	for question, name := range asked {
		if theirs := text(name); have[question] != (theirs != "") && name != e2e.Reversed(netip.MustParseAddr("192.0.113.9")) {
			t.Errorf("%s: blocked %v, rbldnsd says %q", question, have[question], theirs)
		}
	}
	if !have["192.0.113.9"] {
		t.Error("an address of a generic dataset is not blocked")
	}
	for question, want := range map[string]string{"x@bulk.test": "why bulk", "198.51.100.65": "a worse part", "x@shop.test": "a name"} {
		testkit.Equal(t, "rbldnsd of "+question, text(asked[question]), want)
		out, _ := exec.Command(e2e.Program, "check", "--explain", "-i", bdx, question).CombinedOutput()
		testkit.Has(t, string(out), want)
	}
}

// TestExportIsLoadedByBind: BIND takes the policy zone, all of it.
func TestExportIsLoadedByBind(t *testing.T) {
	checkzone := testkit.Peer(t, "named-checkzone")
	long := strings.Repeat("long.", 37) + "tests" // with "*." and the zone's name as long as names may be
	_, file := exported(t, exportNames+long+"\n"+strings.Repeat("longer.", 30)+"test\n", "rpz")
	text := testkit.Read(t, file)
	zone := strings.Repeat("z", 31) + "." + strings.Repeat("y", 28)
	out, err := exec.Command(checkzone, "-i", "none", "-D", "-s", "full", "-o", "-", zone, file).CombinedOutput()
	if err != nil {
		t.Fatalf("named-checkzone: %v\n%s", err, out)
	}
	records := func(text string) int { return strings.Count(text, "CNAME") }
	if n := records(string(text)); n < 20 || records(string(out)) != n {
		t.Errorf("%d records were written, %d are loaded\n%s\n%s", n, records(string(out)), text, out)
	}
	if !strings.Contains(string(text), "\n*."+long+" ") {
		t.Error("a name of a length that fits is not there")
	}
}

// TestExportIsFoundByPostfix: postmap indexes the table without a word, and finds
// every key with what is to be done.
func TestExportIsFoundByPostfix(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	_, file := exported(t, "bulk.test\nbulk.test\n!good.bulk.test\npromo@other.test\n!boss@bulk.test\na+b=c@other.test\n'x'@other.test\noffers@\n198.51.100.7\n"+
		"198.51.100.0/24\n2001:db8:17::/48\n2001:db8::1\n.below.test\njörg@other.test\n", "postfix")
	config := e2e.PostmapConfig(t)
	table := "hash:" + file
	if out, err := exec.Command(postmap, "-c", config, table).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("postmap: %v\n%s", err, out)
	}
	var keys, want strings.Builder
	for _, pair := range [][2]string{{"bulk.test", "REJECT"}, {"good.bulk.test", "OK"}, {"promo@other.test", "REJECT"}, {"boss@bulk.test", "OK"},
		{"a+b=c@other.test", "REJECT"}, {"'x'@other.test", "REJECT"}, {"offers@", "REJECT"}, {"198.51.100.7", "REJECT"}, {"198.51.100", "REJECT"},
		{"2001:db8:17", "REJECT"}, {"2001:db8::1", "REJECT"}, {".below.test", "REJECT"}, {"jörg@other.test", "REJECT"}} {
		fmt.Fprintf(&keys, "%s\nno.%s\n", pair[0], pair[0])
		fmt.Fprintf(&want, "%s\t%s\n", pair[0], pair[1])
	}
	query := exec.Command(postmap, "-c", config, "-q", "-", table)
	query.Stdin = strings.NewReader(keys.String())
	if out, err := query.CombinedOutput(); err != nil || string(out) != want.String() {
		t.Errorf("postmap -q: %v\n%s\nwant\n%s", err, out, want.String())
	}
}

// TestPostfixRefusesByAnExport: a real Postfix refuses by the table the senders that blockd blocks,
// whatever characters their local-parts have, and no others.
func TestPostfixRefusesByAnExport(t *testing.T) {
	locals := []string{"a!b", "a#b", "a$b", "a*b", "a/b", "a?b", "a^b", "a~b", "!a", "$a", "*a", "a*", "/a", "/a/", "?a", "^a", "~a", "{a}|`'=&%"}
	list := "other@bulk.test\n@[192.0.2.1]\n"
	var senders []string
	for i, local := range locals {
		if i%2 == 0 {
			list += fmt.Sprintf("\"%s\"@bulk.test\n", local)
		} else {
			list += fmt.Sprintf("\"%s\"@\n", local)
		}
		senders = append(senders, local+"@bulk.test", local+"x@bulk.test", "x"+local+"@bulk.test")
	}
	senders = append(senders, "x@[192.0.2.1]", "x@[192.0.2.2]", "a@bulk.test", "b@bulk.test", "ab@bulk.test", "aab@bulk.test")
	bdx, file := exported(t, list, "postfix")
	if out, err := exec.Command(testkit.Peer(t, "postmap"), "-c", configOnly(t), "hash:"+file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("postmap: %v\n%s", err, out)
	}
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_sender_restrictions=check_sender_access,hash:"+file, "smtpd_error_sleep_time=0")
	c := e2e.DialSMTP(t, p.SMTP)
	for sender, want := range verdicts(t, bdx, senders) {
		e2e.MustBegin(t, fmt.Sprintf("MAIL FROM:<%s>", sender), c.Command("MAIL FROM:<%s>", sender), "250")
		got := c.Command("RCPT TO:<user@here.example>")
		if refused := strings.HasPrefix(got, "554 5.7.1 "); refused != want || !refused && !strings.HasPrefix(got, "250") {
			t.Errorf("<%s>: Postfix says %q, blockd blocks it: %t", sender, got, want)
		}
		c.Command("RSET")
	}
}

// configOnly is a folder with a main.cf for Postfix's commands, which need no more.
func configOnly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "main.cf"), "compatibility_level = 3.6\n")
	return dir
}
