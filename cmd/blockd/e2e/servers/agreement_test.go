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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/e2e/agreement"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/transaction"
)

// TestAgreement shows every file of testdata/transactions to every door of one
// daemon, and to the real mail servers in front of those that mail servers ask: all
// must say what the file says. docs/agreement.md has the table of cases and doors;
// -update writes it.
func TestAgreement(t *testing.T) {
	cases := testkit.Value(transaction.Load(filepath.Join(e2e.Root, "testdata", "transactions")))(t)
	if len(cases) < 60 {
		t.Fatalf("%d transactions, want 60 at least", len(cases))
	}
	a := withServers(t, cases)
	order, logged := vocabulary(t), map[string]bool{}
	table := [][]string{append([]string{"transaction"}, a.Names()...)}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			row := make([]string, len(table[0]))
			row[0] = c.Name
			d := a.Run(t, c, row[1:])
			checkVocabulary(t, d.WholeLog(t), order, logged)
			table = append(table, row)
		})
	}
	t.Logf("\n%s", e2e.Aligned(table))
	if len(table) == 1+len(cases) && !t.Failed() { // all of them were run
		if len(logged) != len([]string{"smtp", "milter", "policy", "socketmap", "tcp"}) {
			t.Errorf("doors with a line about a decision: %v", logged)
		}
		e2e.ComparePage(t, filepath.Join(e2e.Root, "docs", "agreement.md"), "agreement", table)
	}
}

// withServers has the real mail servers in front of the doors that mail servers ask.
func withServers(t *testing.T, cases []*transaction.Case) *agreement.Agreement {
	a := agreement.New(t)
	for _, p := range []struct{ name, door, option string }{
		{"Postfix + policy", "policy", e2e.Restrictions("smtpd_sender_restrictions", "check_policy_service inet:"+a.Policy)},
		{"Postfix + milter", "milter", "smtpd_milters=inet:" + a.Milter},
		{"Postfix + socketmap", "", e2e.Restrictions("smtpd_sender_restrictions", "check_sender_access socketmap:inet:"+a.Socketmap+":senders")},
		{"Postfix + tcp", "", e2e.Restrictions("smtpd_sender_restrictions", "check_sender_access tcp:"+a.TCP)},
	} {
		// max_use: a new smtpd, with new connections to us, for every session.
		server := e2e.StartPostfix(t, e2e.FreeAddress(t), p.option, "max_use=1", "milter_default_action=tempfail")
		b := behindPostfix{p.door, server.SMTP}
		a.Others = append(a.Others, agreement.Other{Name: p.name, Ask: func(t *testing.T, c *transaction.Case, _ string) string { return b.ask(t, c) }})
	}
	a.Others = append(a.Others, agreement.Other{Name: "Sendmail + milter", Ask: newAgreeingSendmail(t, a.Milter, cases).agrees})
	return a
}

// behindPostfix is a Postfix that asks one of the doors.
type behindPostfix struct {
	door string // whose exceptions hold; "" = a table
	smtp string
}

// ask shows a case to the door through its Postfix, up to RCPT.
func (b behindPostfix) ask(t *testing.T, c *transaction.Case) string {
	if c.Client.Is6() { // these Postfixes speak IPv4, and take no such XCLIENT
		return "-"
	}
	got := askPostfix(t, c, b.smtp)
	for i, r := range c.Recipients {
		switch {
		case got[i] == agreement.Denied && b.door == "milter": // which is asked behind that, and was not
			got[i] = agreement.AtRcpt(r.Want)
		case got[i] == agreement.Denied: // behind what we are asked in
			got[i] = transaction.Outcome{Word: "accept"}
		case r.Address == "postmaster" && b.door == "" && got[i].Word == "accept":
			got[i] = got[(i+1)%len(got)] // Postfix asks no table about him without a domain
		}
	}
	switch b.door {
	case "milter":
		return agreement.Each(t, c, "postfix-milter", got, agreement.AtRcpt)
	case "policy":
		return agreement.Each(t, c, b.door, got, agreement.AtRcpt)
	}
	for i := range got { // a table is not told the recipient
		if got[i].Word != got[0].Word {
			t.Errorf("<%s> to <%s>: %s, and to the first %s", c.Sender, c.Recipients[i].Address, got[i], got[0])
		}
	}
	return agreement.One(t, c, got[0], agreement.AtRcpt)
}

// askPostfix plays the client of a Postfix, which believes it who it is (XCLIENT).
func askPostfix(t *testing.T, c *transaction.Case, address string) []transaction.Outcome {
	s := e2e.DialTalk(t, address)
	defer s.Conn.Close()
	s.Command("EHLO %s", c.Helo)
	who := "XCLIENT NAME=[UNAVAILABLE] ADDR=" + c.Client.String()
	if c.Login != "" {
		who += " LOGIN=" + c.Login
	}
	e2e.MustBegin(t, who, s.Command("%s", who), "220")
	s.Command("EHLO %s", c.Helo)
	got, _ := agreement.SayEnvelope(s, c)
	return got
}

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
	testkit.Write(t, s.jail.path("usr/lib/sasl2/Sendmail.conf"), "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: /etc/sasldb2\nmech_list: PLAIN\n")
	for _, c := range cases {
		if c.Login != "" {
			saslUser(t, s.jail.path("etc/sasldb2"), "mail.here.example", c.Login, "secret")
		}
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

// vocabulary are the fields of a decision's log line in their order, from docs/operation.md.
func vocabulary(t *testing.T) (fields []string) {
	t.Helper()
	text := testkit.Value(os.ReadFile(filepath.Join(e2e.Root, "docs", "operation.md")))(t)
	_, table, _ := strings.Cut(string(text), "\n### Fields\n")
	table, _, _ = strings.Cut(table, "\n#")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		fields = append(fields, row[1])
	}
	if len(fields) < 20 {
		t.Fatalf("docs/operation.md: fields %q", fields)
	}
	return fields
}

// decided are the words of the lines that are about a decision, as docs/operation.md has them.
var decided = regexp.MustCompile(`msg="(?:sender (?:blocked|deferred|quarantined|tagged|discarded|allowed|excused|would be blocked|unchecked)|recipient (?:exempt|put off|not taken))(?: again)?"`)

var logField = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)`)

// checkVocabulary holds the lines of a log that are about decisions to the fields and their
// order, and notes which doors have written some.
func checkVocabulary(t *testing.T, log string, order []string, doors map[string]bool) {
	t.Helper()
	for line := range strings.Lines(log) {
		at := decided.FindStringIndex(line)
		if at == nil {
			continue
		}
		var names []string
		for _, field := range logField.FindAllStringSubmatch(line[at[1]:], -1) {
			if names = append(names, field[1]); field[1] == "door" {
				doors[field[2]] = true
			}
			if field[1] == "client" && strings.Count(field[2], ":") == 1 {
				t.Errorf("client with a port: %s", line)
			}
		}
		if !slices.IsSortedFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
			t.Errorf("fields %q, want the order of docs/operation.md: %s", names, line)
		}
		for _, name := range names {
			if !slices.Contains(order, name) {
				t.Errorf("docs/operation.md does not have field %q: %s", name, line)
			}
		}
		for _, name := range []string{"door", "client", "helo", "ref", "sender", "recipient"} {
			if !slices.Contains(names, name) {
				t.Errorf("field %q is missing: %s", name, line)
			}
		}
	}
}

// TestAskedAtEachDoor shows senders of lists that are asked to the SMTP filter, the milter and the policy service, while their Redis is well,
// answers nonsense, hangs and is dead. A sender that is on no list is refused at none of them, and one that an
// exception lets pass is put off at most.
func TestAskedAtEachDoor(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	do := func(args ...any) {
		t.Helper()
		testkit.Must(t, client.Do(t.Context(), args...).Err())
	}
	var d *e2e.Daemon
	states := []struct {
		name            string
		begin           func()
		listed, excused string // outcomes; the second one: of a sender that a file blocks, and an asked list lets pass
	}{
		{"well", func() {}, "refuse asked", "accept"},
		{"nonsense", func() {
			for _, key := range []string{"blocked", "friends"} {
				do("rename", key, key+".kept")
				do("set", key, "no set")
			}
		}, "accept", "defer"},
		{"well again", func() {
			for _, key := range []string{"blocked", "friends"} {
				do("rename", key+".kept", key)
			}
			testkit.Eventually(t, "both lists to be asked again", func() bool {
				_, blocked := d.Get("/v1/check?sender=x@probe.blocked.example")
				_, allowed := d.Get("/v1/check?sender=x@probe.friends.example")
				return strings.Contains(blocked, `"blocked"`) && strings.Contains(allowed, `"allowed"`)
			})
		}, "refuse asked", "accept"},
		{"hung", func() { do("client", "pause", "3600000") }, "accept", "defer"},
		{"dead", server.Kill, "accept", "defer"},
	}
	for _, key := range []string{"blocked", "friends"} {
		do("sadd", key, "probe."+key+".example")
	}
	for i := range states { // each has senders of its own, whose answers are not cached
		do("sadd", "blocked", fmt.Sprintf("listed%d.example", i), fmt.Sprintf("gone%d.example", i))
		do("sadd", "friends", fmt.Sprintf("excused%d.example", i))
	}

	a := agreement.New(t)
	a.Upstream.Store(&script.Server{Caps: []string{"PIPELINING"}})
	list := "[[list]]\nname = %q\naction = %q\nexceptions = %q\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = %q\nkey = %q\nevery = \"1h\"\ntimeout = \"2s\"\nbreaker = { failures = 2, pause = \"100ms\" }\n"
	d = e2e.Serve(t, e2e.Setup{
		Upstream: "smtp://" + a.Next, Files: map[string]string{"bad.txt": "excused0.example\nexcused1.example\nexcused2.example\nexcused3.example\nexcused4.example\n"},
		Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n" +
			fmt.Sprintf(list, "asked", "block", "own", "redis://"+server.Address, "blocked") + fmt.Sprintf(list, "friends", "allow", "all", "redis://"+server.Address, "friends"),
		SMTP:    "client_info = \"none\"\nallow_open_upstream = true\nproxy_from = [\"127.0.0.0/8\"]\nquarantine = \"aside\"\n",
		Milter:  fmt.Sprintf("listen = %q", a.Milter),
		Postfix: fmt.Sprintf("policy_listen = %q", a.Policy),
	})
	d.Counted(t, `blockd_ask_filter_keys{list="asked"}`, "11")
	d.Counted(t, `blockd_ask_filter_keys{list="friends"}`, "6")
	for i := range states { // whom the filters go on to take for listed perhaps
		do("srem", "blocked", fmt.Sprintf("gone%d.example", i))
	}
	for i, s := range states {
		s.begin()
		t.Run(s.name, func(t *testing.T) {
			for sender, outcome := range map[string]string{
				fmt.Sprintf("x@listed%d.example", i):  s.listed,
				fmt.Sprintf("x@gone%d.example", i):    "accept",
				fmt.Sprintf("x@excused%d.example", i): s.excused,
				"x@clear.example":                     "accept",
			} {
				c := testkit.Value(transaction.Parse(s.name, "list asked: as.the.configuration.has.it.example\nfrom "+sender+"\nto bob@here.example "+outcome+"\nalone "+outcome+"\nverdict clear\n"))(t)
				const text = "Subject: x\r\n\r\nx\r\n"
				agreement.Each(t, c, "smtp", a.AskSMTP(t, c, d, text), agreement.InFull)
				agreement.Each(t, c, "policy", a.AskPolicy(t, c), agreement.InFull)
				agreement.Each(t, c, "milter", a.AskMilter(t, c, text), agreement.InFull)
			}
		})
	}
}
