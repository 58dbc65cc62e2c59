// Package agreement shows transactions (testdata/transactions) to the doors of a daemon, all of which must say the same:
// to its own doors as their clients, and to those that real mail servers ask, if a test has some.
package agreement

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

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
