package servers

import (
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/e2e/agreement"
	"blockd/internal/testkit"
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
