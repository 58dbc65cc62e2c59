package servers

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/e2e/agreement"
	"blockd/internal/testkit"
	"blockd/internal/testkit/transaction"
)

// agreeingSendmail is a Sendmail that asks blockd's milter about the transactions. It has no
// XCLIENT, and believes of a client's address what its socket says: so a session is
// a process with a socket that came from a network where all addresses are ours,
// as inetd would start it (-bs). There is no daemon to wait for.
type agreeingSendmail struct {
	*mailServer
	jail    *jail
	network *network
}

// agreeingMC has users (a password for each is in a file), and takes mail for all the domains that
// transactions are sent to: where Sendmail itself refuses a recipient, nobody asks blockd.
const agreeingMC = `define(` + "`confAUTH_MECHANISMS', `PLAIN'" + `)dnl
TRUST_AUTH_MECH(` + "`PLAIN'" + `)dnl
LOCAL_DOMAIN(` + "`vip.example mx.vip.example'" + `)dnl
INPUT_MAIL_FILTER(` + "`blockd', `S=inet:%s@%s, F=T, T=S:10s;R:10s'" + `)dnl
LOCAL_RULE_0
R$+ < @ $=w . >	$#inbox $@ [127.0.0.1] $: $1 < @ $2 . >
R$-	$#inbox $@ [127.0.0.1] $: $1 < @ here.example . >`

func newAgreeingSendmail(t *testing.T, milter string, cases []*transaction.Case) *agreeingSendmail {
	t.Helper()
	host, port, _ := net.SplitHostPort(milter)
	s := &agreeingSendmail{network: newNetwork(t)}
	s.jail, s.mailServer = configureSendmail(t, fmt.Sprintf(agreeingMC, port, host))
	saslpasswd := testkit.Peer(t, "saslpasswd2")
	testkit.Write(t, s.jail.path("usr/lib/sasl2/Sendmail.conf"), "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: /etc/sasldb2\nmech_list: PLAIN\n")
	for _, c := range cases {
		if c.Login == "" {
			continue
		}
		cmd := exec.Command(saslpasswd, "-p", "-c", "-f", s.jail.path("etc/sasldb2"), "-u", "mail.here.example", c.Login)
		cmd.Stdin = strings.NewReader("secret")
		e2e.Ran(t, cmd)
	}
	return s
}

// dial begins a session of a client at an address.
func (s *agreeingSendmail) dial(t *testing.T, from netip.Addr) *e2e.Client {
	t.Helper()
	near, far := s.network.pair(t, from)
	defer far.Close()
	cmd := exec.Command(sendmailProgram, "-bs", "-C", sendmailCF)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.jail.dir}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, s.jail.log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("sendmail: %v", err)
	}
	t.Cleanup(func() {
		near.Close() // it ends
		cmd.Wait()
	})
	c := &e2e.Client{T: t, Conn: near, R: bufio.NewReader(near)}
	e2e.MustBegin(t, "greeting", c.Reply(), "220 ")
	return c
}

// eightBit is what Debian's Sendmail answers to a sender that is not all ASCII. It is built without USE_EAI,
// offers no SMTPUTF8, and asks no milter.
var eightBit = regexp.MustCompile(`^(501 5\.1\.7 8-bit character in mailbox address|555 5\.5\.4 SMTPUTF8 parameter unrecognized)`)

// agrees shows a case to the milter through Sendmail, to the end.
func (s *agreeingSendmail) agrees(t *testing.T, c *transaction.Case, text string) string {
	got := s.ask(t, c, text)
	if !agreement.IsASCII(c.Sender) {
		for _, o := range got {
			if !eightBit.MatchString(o.List) {
				t.Errorf("<%s>: %s, want that Sendmail itself refuses it", c.Sender, o)
			}
		}
		return "-"
	}
	return agreement.Each(t, c, "sendmail", got, agreement.InFull)
}

// ask sends the case as a message, and looks what Sendmail has done with it.
func (s *agreeingSendmail) ask(t *testing.T, c *transaction.Case, text string) (got []transaction.Outcome) {
	t.Helper()
	before := len(s.inbox.all())
	talk := s.dial(t, c.Client)
	talk.Command("EHLO %s", c.Helo)
	if c.Login != "" {
		e2e.MustBegin(t, "AUTH", talk.Command("AUTH PLAIN %s", base64.StdEncoding.EncodeToString([]byte("\x00"+c.Login+"\x00secret"))), "235")
	}
	got, ok := agreement.SayEnvelope(talk, c)
	if !ok || !agreement.Taken(got) {
		return got
	}
	e2e.MustBegin(t, "DATA", talk.Command("DATA"), "354")
	talk.Write(e2e.Stuffed([]byte(text)))
	if o := agreement.OutcomeOf(talk.Command(".")); o.Word != "accept" {
		return agreement.AtTheEnd(got, o)
	}
	for i, r := range c.Recipients {
		if got[i].Word == "accept" {
			got[i] = s.wentTo(t, c, r.Address, s.inbox.all()[before:])
		}
	}
	return got
}

var heldFor = regexp.MustCompile(`(?m)^qblockd: .*(?:listed in |list=)([\w.-]+)`)

// wentTo finds the message of a recipient: handed on, with a tag or without one, or in the queue and
// in quarantine.
func (s *agreeingSendmail) wentTo(t *testing.T, c *transaction.Case, recipient string, arrived []arrival) transaction.Outcome {
	t.Helper()
	for _, a := range arrived {
		for _, to := range a.to {
			if !strings.EqualFold(mailbox(to), mailbox(recipient)) {
				continue
			}
			if tag := agreement.Tagged.FindStringSubmatch(a.text); tag != nil && strings.Contains(a.text, "X-Blockd: ") {
				return transaction.Outcome{Word: "tag", List: tag[1]}
			}
			return transaction.Outcome{Word: "accept"}
		}
	}
	held := testkit.Value(filepath.Glob(s.jail.path("var/spool/mqueue/hf*")))(t)
	for _, path := range held {
		text := testkit.Read(t, path)
		os.Remove(path)
		if reason := heldFor.FindSubmatch(text); reason != nil && strings.Contains(string(text), "<"+recipient+">") {
			return transaction.Outcome{Word: "quarantine", List: string(reason[1])}
		}
	}
	if len(arrived) == 0 && len(held) == 0 { // 250, and nowhere
		return transaction.Outcome{Word: "discard", List: c.Lists[0].Name}
	}
	return transaction.Outcome{Word: "?", List: "250, and elsewhere"}
}

// mailbox is the local-part of an address: Sendmail takes needless quotes off, and gives postmaster a
// domain.
func mailbox(path string) string {
	path = transaction.Internal(path)
	if at := strings.LastIndexByte(path, '@'); at >= 0 {
		path = path[:at]
	}
	return path
}

// network is a network namespace (network_namespaces(7)) of one thread: sockets that it makes
// belong there, and may be used anywhere.
type network struct {
	ip string // the command
	do chan func()
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n, failed := &network{ip: testkit.Peer(t, "ip"), do: make(chan func())}, make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			err = exec.Command(n.ip, "link", "set", "lo", "up").Run()
		}
		failed <- err
		for f := range n.do {
			f()
		}
	}()
	t.Cleanup(func() { close(n.do) })
	if err := <-failed; err != nil {
		testkit.Missing(t, "no network namespace: "+err.Error())
	}
	return n
}

// pair is a connection of a client from any address: its end, and the server's.
func (n *network) pair(t *testing.T, from netip.Addr) (near net.Conn, far *os.File) {
	t.Helper()
	failed := make(chan error)
	n.do <- func() {
		failed <- func() error {
			args := []string{"address", "replace", netip.PrefixFrom(from, from.BitLen()).String(), "dev", "lo"}
			if from.Is6() {
				args = append(args, "nodad") // it is free, and wanted at once
			}
			if out, err := exec.Command(n.ip, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip: %w: %s", err, out)
			}
			l, err := net.Listen("tcp", net.JoinHostPort(from.String(), "0"))
			if err != nil {
				return err
			}
			defer l.Close()
			// The kernel makes the route to a new IPv6 address a moment later.
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
			near, err = dialer.Dial("tcp", l.Addr().String())
			for deadline := time.Now().Add(time.Minute); errors.Is(err, syscall.ENETUNREACH) && time.Now().Before(deadline); {
				<-time.After(10 * time.Millisecond)
				near, err = dialer.Dial("tcp", l.Addr().String())
			}
			if err != nil {
				return err
			}
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			far, err = conn.(*net.TCPConn).File()
			return err
		}()
	}
	testkit.Must(t, <-failed)
	return near, far
}
