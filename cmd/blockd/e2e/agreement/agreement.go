// Package agreement shows transactions (testdata/transactions) to the doors of a daemon, all of which must say the same:
// to its own doors as their clients, and to those that real mail servers ask, if a test has some.
package agreement

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/d--j/go-milter"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/sealed"
	"blockd/internal/testkit/selfsigned"
	"blockd/internal/testkit/transaction"
)

// Agreement shows transactions to the doors of a daemon: all of them must say what a transaction's file says. The places of
// the doors stay the same from one daemon to the next, for mail servers that ask them.
type Agreement struct {
	Policy, Socketmap, TCP, Milter, dns, resp string
	Others                                    []Other
	Upstream                                  atomic.Pointer[script.Server]
	Next                                      string // HOST:PORT of upstream
}

// Other is a way to a door that is not its own: a mail server that asks it. Ask returns the cell of the table.
type Other struct {
	Name string
	Ask  func(t *testing.T, c *transaction.Case, text string) string
}

// New has all doors of blockd at places that are free, and no others.
func New(t *testing.T) *Agreement {
	a := &Agreement{Policy: e2e.FreeAddress(t), Socketmap: e2e.FreeAddress(t), TCP: e2e.FreeAddress(t), Milter: e2e.FreeAddress(t), dns: e2e.FreeAddress(t), resp: e2e.FreeAddress(t)}
	a.listen(t)
	return a
}

// listen opens the place of upstream.
func (a *Agreement) listen(t *testing.T) {
	l := testkit.Listen(t)
	a.Next = l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go a.Upstream.Load().Serve(conn)
		}
	}()
}

func (a *Agreement) Names() []string {
	names := []string{"smtp", "policy", "milter", "socketmap", "tcp", "http"}
	for _, o := range a.Others {
		names = append(names, o.Name)
	}
	for _, p := range programs {
		names = append(names, p.name)
	}
	return names
}

// Run shows one case to all doors of a daemon, some at a time, and fills in their cells of
// the table.
func (a *Agreement) Run(t *testing.T, c *transaction.Case, cells []string) *e2e.Daemon {
	d, text := a.serve(t, c)
	doors := []func(*testing.T) string{
		func(t *testing.T) string { return Each(t, c, "smtp", a.AskSMTP(t, c, d, text), InFull) },
		func(t *testing.T) string { return Each(t, c, "policy", a.AskPolicy(t, c), InFull) },
		func(t *testing.T) string { return Each(t, c, "milter", a.AskMilter(t, c, text), InFull) },
		func(t *testing.T) string { return One(t, c, a.askSocketmap(t, c), InFull) },
		func(t *testing.T) string { return One(t, c, a.askTCP(t, c), InFull) },
		func(t *testing.T) string { return askHTTP(t, c, d) },
	}
	for _, o := range a.Others {
		doors = append(doors, func(t *testing.T) string { return o.Ask(t, c, text) })
	}
	for _, p := range programs {
		doors = append(doors, func(t *testing.T) string { return p.ask(a, t, c, d) })
	}
	t.Run("doors", func(t *testing.T) { // ends when all of them have answered
		for i, name := range a.Names() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cells[i] = doors[i](t)
			})
		}
	})
	return d
}

// serve starts the daemon of a case, and returns the message beside it.
func (a *Agreement) serve(t *testing.T, c *transaction.Case) (d *e2e.Daemon, text string) {
	t.Helper()
	upstream := &script.Server{Caps: []string{"PIPELINING", "SIZE 10000000", "8BITMIME", "SMTPUTF8", "AUTH PLAIN"}}
	a.Upstream.Store(upstream)
	resolver := ""
	text = "Subject: x\r\n\r\nx\r\n"
	if c.Proves() {
		post := sealed.NewPost(t, c.Zone)
		resolver = post.Address
		if c.From != "" {
			text = sealed.Letter(c.From)
		}
		if c.Signer != "" {
			text = post.Sign(t, text, c.Signer, sealed.Ed25519, nil)
		}
	}
	tables, files := c.Tables(resolver)
	cert, key := selfsigned.New(t, "localhost").Write(t, t.TempDir())
	d = e2e.Serve(t, e2e.Setup{
		Upstream: "smtp://" + a.Next, Lists: a.programDoors() + tables, Files: files,
		SMTP: fmt.Sprintf("client_info = \"none\"\nallow_open_upstream = true\nproxy_from = [\"127.0.0.0/8\"]\nquarantine = \"aside\"\n"+
			"auth = \"forward\"\ntls_cert = %q\ntls_key = %q\n%s", cert, key, c.SMTP()),
		Milter:  fmt.Sprintf("listen = %q", a.Milter),
		Postfix: fmt.Sprintf("policy_listen = %q\nsocketmap_listen = %q\ntcp_listen = %q", a.Policy, a.Socketmap, a.TCP),
	})
	if c.Broken {
		e2e.BreakStore(t, d.Path("blockd.bdx"), c.Lists[0].Entries[0])
	}
	return d, text
}

// Each holds a door's answers to those that it must give, recipient by recipient.
func Each(t *testing.T, c *transaction.Case, door string, got []transaction.Outcome, seen func(transaction.Outcome) transaction.Outcome) string {
	t.Helper()
	cell := ""
	for i, r := range c.Recipients {
		want := seen(r.Expect(door))
		if got[i] != want {
			t.Errorf("<%s> to <%s>: %s, want %s", c.Sender, r.Address, got[i], want)
		}
		cell += letter(got[i])
	}
	return cell
}

// One is each for doors that are not told the recipient.
func One(t *testing.T, c *transaction.Case, got transaction.Outcome, seen func(transaction.Outcome) transaction.Outcome) string {
	t.Helper()
	if want := seen(c.Alone); got != want {
		t.Errorf("<%s>: %s, want %s", c.Sender, got, want)
	}
	return letter(got)
}

func InFull(o transaction.Outcome) transaction.Outcome { return o }

// AtRcpt is what a client of Postfix sees of an outcome at RCPT: what is done with
// the message is done later.
func AtRcpt(o transaction.Outcome) transaction.Outcome {
	switch o.Word {
	case "tag", "quarantine", "discard", "unproved":
		return transaction.Outcome{Word: "accept"}
	}
	return o
}

// AtTheEnd is what became of recipients by the answer to the message.
func AtTheEnd(got []transaction.Outcome, o transaction.Outcome) []transaction.Outcome {
	for i := range got {
		if got[i].Word == "accept" {
			got[i] = o
		}
	}
	return got
}

func letter(o transaction.Outcome) string {
	return map[string]string{"accept": "A", "refuse": "R", "unproved": "U", "defer": "D", "tag": "T", "quarantine": "Q", "discard": "X", "again": "2", "syntax": "S"}[o.Word]
}

var (
	listedIn = regexp.MustCompile(`listed in ([\w.-]+) \(ref [0-9a-z]{10}\)`)
	owners   = regexp.MustCompile(`recipient does not accept mail from .*\(ref [0-9a-z]{10}\)`)
	unwanted = regexp.MustCompile(`recipient address does not accept mail \(ref [0-9a-z]{10}\)`)
	Tagged   = regexp.MustCompile(`list=([\w.-]+) ref=[0-9a-z]{10}`)
)

// Denied is Postfix's own refusal of a recipient that is not its own.
var Denied = transaction.Outcome{Word: "relay denied"}

// OutcomeOf reads a reply of SMTP, or of a door in the words of SMTP.
func OutcomeOf(reply string) transaction.Outcome {
	list := ""
	if m := listedIn.FindStringSubmatch(reply); m != nil {
		list = m[1]
	}
	switch {
	case owners.MatchString(reply) && strings.HasPrefix(reply, "550 5.7.1 "):
		return transaction.Outcome{Word: "refuse", List: "owner"}
	case unwanted.MatchString(reply) && strings.HasPrefix(reply, "550 5.7.1 "):
		return transaction.Outcome{Word: "refuse", List: "recipient"}
	case strings.HasPrefix(reply, "452 4.5.3 "):
		return transaction.Outcome{Word: "again"}
	case list != "" && strings.HasPrefix(reply, "554 5.7.1 "):
		return transaction.Outcome{Word: "unproved", List: list}
	case list != "" && strings.HasPrefix(reply, "550 5.7.1 "):
		return transaction.Outcome{Word: "refuse", List: list}
	case list != "" && strings.HasPrefix(reply, "45"), strings.HasPrefix(reply, "45") && (strings.Contains(reply, "not checked: try again later (ref ") || strings.Contains(reply, "not verified: try again later (ref ")),
		strings.HasPrefix(reply, "451 4.3.5 "): // what Postfix makes of a table that says to come again
		return transaction.Outcome{Word: "defer", List: list}
	case strings.HasPrefix(reply, "250 "):
		return transaction.Outcome{Word: "accept"}
	case strings.HasPrefix(reply, "553 5.1."), strings.HasPrefix(reply, "501 5.1.7 Syntax error"):
		return transaction.Outcome{Word: "syntax"}
	case strings.HasPrefix(reply, "554 5.7.1 ") && strings.Contains(reply, ": Relay access denied"):
		return Denied
	}
	return transaction.Outcome{Word: "?", List: reply}
}

// outcomeOfAction reads an access(5) action.
func outcomeOfAction(action string) transaction.Outcome {
	list := ""
	if m := listedIn.FindStringSubmatch(action); m != nil {
		list = m[1]
	}
	word, _, _ := strings.Cut(action, " ")
	switch word {
	case "DUNNO":
		return transaction.Outcome{Word: "accept"}
	case "DEFER_IF_PERMIT":
		return OutcomeOf("450 " + action)
	case "HOLD":
		return transaction.Outcome{Word: "quarantine", List: list}
	case "PREPEND":
		if m := Tagged.FindStringSubmatch(action); m != nil {
			return transaction.Outcome{Word: "tag", List: m[1]}
		}
	}
	return OutcomeOf(action)
}

// AskSMTP sends the case as a message through the filter, and looks where it went.
func (a *Agreement) AskSMTP(t *testing.T, c *transaction.Case, d *e2e.Daemon, text string) (got []transaction.Outcome) {
	conn, r := e2e.DialRaw(t, d.SMTP)
	s := &e2e.Client{T: t, Conn: conn, R: r}
	family, self := "TCP4", "127.0.0.1"
	if c.Client.Is6() {
		family, self = "TCP6", "::1"
	}
	s.Write(fmt.Appendf(nil, "PROXY %s %s %s 40000 25\r\n", family, c.Client, self))
	s.Reply()
	s.Command("EHLO %s", c.Helo)
	if c.Login != "" {
		e2e.MustBegin(t, "STARTTLS", s.Command("STARTTLS"), "220")
		s.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is the test's own
		s.R = bufio.NewReader(s.Conn)
		s.Command("EHLO %s", c.Helo)
		e2e.MustBegin(t, "AUTH", s.Command("AUTH PLAIN %s", base64.StdEncoding.EncodeToString([]byte("\x00"+c.Login+"\x00secret"))), "235")
	}
	if got, ok := SayEnvelope(s, c); !ok {
		return got
	} else {
		if Taken(got) {
			e2e.MustBegin(t, "DATA", s.Command("DATA"), "354")
			s.Write(e2e.Stuffed([]byte(text)))
			reply := s.Command(".")
			if o := OutcomeOf(reply); o.Word != "accept" {
				return AtTheEnd(got, o)
			}
		}
		s.Command("QUIT")
		for i := range got {
			if got[i].Word == "accept" {
				got[i] = a.wentTo(t, c.Recipients[i].Address, d.Path("aside"))
			}
		}
		return got
	}
}

// SayEnvelope says MAIL and each RCPT. It reports false if MAIL was refused, and
// so every recipient.
func SayEnvelope(s *e2e.Client, c *transaction.Case) (got []transaction.Outcome, ok bool) {
	parameter := ""
	if !IsASCII(c.Sender) {
		parameter = " SMTPUTF8"
	}
	if reply := s.Command("%s", "MAIL FROM:<"+c.Sender+">"+parameter); !strings.HasPrefix(reply, "250") {
		for range c.Recipients {
			got = append(got, OutcomeOf(reply))
		}
		return got, false
	}
	for _, r := range c.Recipients {
		got = append(got, OutcomeOf(s.Command("%s", "RCPT TO:<"+r.Address+">")))
	}
	return got, true
}

func IsASCII(s string) bool { return utf8.RuneCountInString(s) == len(s) }

func Taken(all []transaction.Outcome) bool {
	for _, o := range all {
		if o.Word == "accept" {
			return true
		}
	}
	return false
}

// wentTo finds the message of a recipient: upstream, with a tag or without one, or
// in quarantine.
func (a *Agreement) wentTo(t *testing.T, recipient, aside string) transaction.Outcome {
	for _, m := range a.Upstream.Load().Messages() {
		for _, line := range m.Rcpt {
			if !strings.Contains(line, "<"+recipient+">") {
				continue
			}
			if tag := Tagged.FindSubmatch(m.Data); bytes.Contains(m.Data, []byte("X-Blockd: ")) && tag != nil {
				return transaction.Outcome{Word: "tag", List: string(tag[1])}
			}
			return transaction.Outcome{Word: "accept"}
		}
	}
	for _, path := range e2e.Messages(t, aside) {
		text := testkit.Read(t, path)
		if tag := Tagged.FindSubmatch(text); tag != nil && bytes.Contains(text, []byte(recipient)) {
			return transaction.Outcome{Word: "quarantine", List: string(tag[1])}
		}
	}
	return transaction.Outcome{Word: "?", List: "250, and nowhere"}
}

// AskPolicy asks as Postfix does, once for each recipient on one connection.
func (a *Agreement) AskPolicy(t *testing.T, c *transaction.Case) (got []transaction.Outcome) {
	conn, r := e2e.DialRaw(t, a.Policy)
	tag := transaction.Outcome{}
	for _, to := range c.Recipients {
		fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nhelo_name=%s\nqueue_id=\nsender=%s\n"+
			"recipient=%s\nclient_address=%s\nsasl_username=%s\ninstance=1.2.3\n\n",
			c.Helo, transaction.Internal(c.Sender), transaction.Internal(to.Address), c.Client, c.Login)
		line, err := r.ReadString('\n')
		if empty, err2 := r.ReadString('\n'); err != nil || err2 != nil || empty != "\n" {
			t.Fatalf("policy: %q, %q, %v", line, empty, err)
		}
		o := outcomeOfAction(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "action="))
		switch {
		case o.Word == "tag":
			tag = o
		case o.Word == "accept" && tag.Word != "":
			o = tag // the field is in the message, and once is enough
		}
		got = append(got, o)
	}
	return got
}

// AskMilter plays the mail server's part with a client that is not ours.
func (a *Agreement) AskMilter(t *testing.T, c *transaction.Case, text string) (got []transaction.Outcome) {
	macros := milter.NewMacroBag()
	macros.Set(milter.MacroMTAFQDN, "mail.here.example")
	if c.Login != "" {
		macros.Set(milter.MacroAuthAuthen, c.Login)
	}
	s := testkit.Value(milter.NewClient("tcp", a.Milter).Session(macros))(t)
	defer s.Close()
	must := func(action *milter.Action, err error) *milter.Action {
		t.Helper()
		if err != nil {
			t.Fatalf("milter: %v", err)
		}
		return action
	}
	family := milter.FamilyInet
	if c.Client.Is6() {
		family = milter.FamilyInet6
	}
	must(s.Conn(c.Helo, family, 40000, c.Client.String()))
	must(s.Helo(c.Helo))
	_, address, routed := strings.Cut(c.Sender, ":")
	if !routed || !strings.HasPrefix(c.Sender, "@") {
		address = c.Sender
	}
	macros.Set(milter.MacroMailAddr, address)
	reply := func(action *milter.Action) transaction.Outcome {
		switch action.Type {
		case milter.ActionContinue, milter.ActionAccept:
			return transaction.Outcome{Word: "accept"}
		case milter.ActionRejectWithCode:
			return OutcomeOf(strings.TrimSpace(action.SMTPReply))
		}
		return transaction.Outcome{Word: "?", List: fmt.Sprint(action)}
	}
	if action := must(s.Mail(c.Sender, "")); action.Type != milter.ActionContinue {
		for range c.Recipients {
			got = append(got, reply(action))
		}
		return got
	}
	for _, r := range c.Recipients {
		macros.Set(milter.MacroRcptAddr, r.Address)
		got = append(got, reply(must(s.Rcpt(r.Address, ""))))
	}
	if !Taken(got) {
		return got
	}
	must(s.DataStart())
	header, body, _ := strings.Cut(text, "\r\n\r\n")
	for _, field := range regexp.MustCompile(`\r\n(?:\b)`).Split(header, -1) {
		name, value, _ := strings.Cut(field, ":")
		must(s.HeaderField(name, strings.ReplaceAll(value, "\r\n", "\n"), nil))
	}
	must(s.HeaderEnd())
	changes, action, err := s.BodyReadFrom(strings.NewReader(body))
	must(action, err)
	if action.Type == milter.ActionRejectWithCode {
		return AtTheEnd(got, reply(action))
	}
	how := transaction.Outcome{Word: "accept"}
	for _, change := range changes {
		if tag := Tagged.FindStringSubmatch(change.HeaderValue); tag != nil {
			how = transaction.Outcome{Word: "tag", List: tag[1]}
		}
		if change.Type == milter.ActionQuarantine {
			how = transaction.Outcome{Word: "quarantine"}
			if list := regexp.MustCompile(`(?:listed in |list=)([\w.-]+)`).FindStringSubmatch(change.Reason); list != nil {
				how.List = list[1]
			}
		}
	}
	if action.Type == milter.ActionDiscard { // says no more than that
		how = transaction.Outcome{Word: "discard", List: c.Lists[0].Name}
	}
	for i := range got {
		if got[i].Word == "accept" {
			got[i] = how
		}
	}
	return got
}

// key is the sender as Postfix looks it up.
func key(c *transaction.Case) string {
	if c.Sender == "" {
		return "<>"
	}
	return strings.ToLower(transaction.Internal(c.Sender))
}

func (a *Agreement) askSocketmap(t *testing.T, c *transaction.Case) transaction.Outcome {
	conn, r := e2e.DialRaw(t, a.Socketmap)
	request := "senders " + key(c)
	fmt.Fprintf(conn, "%d:%s,", len(request), request)
	length := 0
	if _, err := fmt.Fscanf(r, "%d:", &length); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, length+1)
	if _, err := io.ReadFull(r, text); err != nil {
		t.Fatal(err)
	}
	switch status, data, _ := strings.Cut(string(text[:length]), " "); status {
	case "NOTFOUND":
		return transaction.Outcome{Word: "accept"}
	case "OK":
		return outcomeOfAction(data)
	case "TEMP":
		return OutcomeOf("450 4.3.0 " + data)
	}
	return transaction.Outcome{Word: "?", List: string(text)}
}

func (a *Agreement) askTCP(t *testing.T, c *transaction.Case) transaction.Outcome {
	conn, r := e2e.DialRaw(t, a.TCP)
	fmt.Fprintf(conn, "get %s\n", url.PathEscape(key(c))) // encodes more than it must
	line := testkit.Value(r.ReadString('\n'))(t)
	code, encoded, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	data := testkit.Value(url.PathUnescape(encoded))(t)
	switch code {
	case "500":
		return transaction.Outcome{Word: "accept"}
	case "200":
		return outcomeOfAction(data)
	case "400":
		return OutcomeOf("450 4.3.0 " + data)
	}
	return transaction.Outcome{Word: "?", List: line}
}

// askHTTP compares the verdict, and the list of the entry that decided.
func askHTTP(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	status, body := d.Get("/v1/check?sender=" + strings.ReplaceAll(url.QueryEscape(c.Sender), "+", "%20") + "&client=" + c.Client.String())
	var answer struct {
		Verdict string
		Matches []struct{ List, Action, Mode string }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
		t.Fatalf("http: %d %s", status, body)
	}
	got := answer.Verdict
	for _, m := range answer.Matches {
		if m.Mode == "" && strings.HasPrefix(m.Action, "allow") == (answer.Verdict == "allowed") {
			got += " " + m.List
			break
		}
	}
	if got != c.Verdict {
		t.Errorf("http: %s, want %s", got, c.Verdict)
	}
	return answer.Verdict
}
