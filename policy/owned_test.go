package policy_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// users is a list per recipient of lines OWNER,ENTRY,ACTION.
func users(t testing.TB, lines ...string) index.Source {
	t.Helper()
	return index.Source{List: "users", Path: testkit.File(t, "users.csv", "owner,entry,action\n"+strings.Join(lines, "\n")+"\n"),
		Settings: lists.Settings{Format: "csv:entry", PerRecipient: true}}
}

// TestOwnersGoBeforeEverybody holds what becomes of mail against a golden model of the order in docs/recipients.md, for random
// lists of everybody and of owners. The entries of one owner never change the mail of another.
func TestOwnersGoBeforeEverybody(t *testing.T) {
	domains := []string{"a.example", "b.example", "c.example", "d.example"}
	said := func(rng *rand.Rand) map[string]string {
		all := map[string]string{}
		for _, d := range domains {
			if w := []string{"", "", "block", "allow"}[rng.IntN(4)]; w != "" {
				all[d] = w
			}
		}
		return all
	}
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(2, uint64(round)))
		bad, fixed, good := said(rng), said(rng), said(rng)
		own := map[string]map[string]string{}
		for _, owner := range []string{"anna@here.example", "bob@here.example", "here.example", "there.example"} {
			own[owner] = said(rng)
		}
		text := func(all map[string]string, word string) string {
			var b strings.Builder
			b.WriteString("unrelated.invalid\n")
			for d, w := range all {
				if w == word {
					b.WriteString(d + "\n")
				}
			}
			return b.String()
		}
		var lines []string
		for owner, all := range own {
			for d, w := range all {
				lines = append(lines, fmt.Sprintf("%s,%s,%s", owner, d, w))
			}
		}
		sources := sourcesOf(t, []list{block("bad", text(bad, "block")), block("fixed", text(fixed, "block")), allow("good", text(good, "allow"))})
		ix := indexes.Build(t, append(sources, users(t, lines...))...)
		c, _ := checker(t, ix, policy.Settings{Owners: rule.DefaultOwners(), RecipientsExempt: []string{"postmaster"},
			Lists: map[string]rule.List{"fixed": {NoOverride: true}}})
		var b policy.Batch
		for _, d := range append(domains, "clear.example") {
			for _, recipient := range []string{"anna@here.example", "Anna+Shop@here.example", "bob@here.example", "eve@here.example", "anna@there.example", "x@elsewhere.example", "postmaster@here.example"} {
				want := "accept"
				everybody := "accept"
				if good[d] != "allow" && (bad[d] == "block" || fixed[d] == "block") {
					everybody = "refuse"
				}
				mailbox, domain, _ := strings.Cut(strings.ToLower(strings.Replace(recipient, "+Shop", "", 1)), "@")
				switch say := own[mailbox+"@"+domain][d] + own[domain][d]; {
				case mailbox == "postmaster":
				case strings.HasPrefix(say, "allow") && fixed[d] == "block" && good[d] != "allow":
					want = "refuse"
				case strings.HasPrefix(say, "block"):
					want = "refuse"
				case !strings.HasPrefix(say, "allow"):
					want = everybody
				}
				q := policy.Question{Text: "x@" + d, Recipient: recipient}
				v := c.Ask(q)
				if v.Outcome != want {
					t.Fatalf("round %d: x@%s to %s: %s, want %s; bad %v fixed %v good %v own %v", round, d, recipient, v.Outcome, want, bad, fixed, good, own)
				}
				if both := c.AskAll(&b, []policy.Question{q, {Text: "x@" + d}}); both[0].Outcome != want || hasOwner(both[1]) {
					t.Fatalf("of a batch: %s, %v", both[0].Outcome, both[1].Matches)
				}
				if v := c.Ask(policy.Question{Text: "x@" + d}); hasOwner(v) {
					t.Fatalf("without a recipient: %v", v.Matches)
				}
				for _, m := range v.Matches {
					if owner := m.Owner.Text; owner != "" && owner != domain && owner != mailbox+"@"+domain {
						t.Fatalf("%s hears an entry of %s", recipient, owner)
					}
				}
			}
		}
	}
}

func hasOwner(v verdict.Verdict) bool {
	for _, m := range v.Matches {
		if m.Owner.Text != "" || m.Kind == lists.Recipient {
			return true
		}
	}
	return false
}

// TestRefusalOfAnOwnerNamesNoList: what the client reads.
func TestRefusalOfAnOwnerNamesNoList(t *testing.T) {
	ix := indexes.Build(t, append(sourcesOf(t, []list{block("own", "recipient:info@here.example")}), users(t, "anna@here.example,bulk.example,block"))...)
	c, _ := checker(t, ix, policy.Settings{Owners: rule.DefaultOwners(), NewRef: func() string { return "abc" }})
	for recipient, want := range map[string]string{
		"anna@here.example": "550 5.7.1 recipient does not accept mail from promo@bulk.example (ref abc)",
		"info@here.example": "550 5.7.1 recipient address does not accept mail (ref abc)",
		"bob@here.example":  "",
	} {
		var tx policy.Transaction
		tx.Begin(c, &policy.Door{Name: "smtp", Log: slog.New(slog.DiscardHandler)}, policy.Client{})
		tx.Mail(policy.Mail{Sender: "promo@bulk.example"})
		d := tx.Recipient(recipient)
		if got := d.Reply.String(); got != want && (want != "" || d.Outcome != policy.Accept) {
			t.Errorf("%s: %q, want %q", recipient, got, want)
		}
	}
}

// TestAliasesLeadToOwners: by address, by the address without its tag, and by domain.
func TestAliasesLeadToOwners(t *testing.T) {
	ix := indexes.Build(t, users(t, "anna@here.example,bulk.example,block"))
	aliases := testkit.Value(rule.ReadAliases(strings.NewReader("alias,owner\nsales@here.example,anna@here.example\n# old\n@old.example,@here.example\n")))(t)
	o := rule.DefaultOwners()
	o.Aliases = &rule.Book{}
	o.Aliases.Set(aliases)
	c, _ := checker(t, ix, policy.Settings{Owners: o})
	for recipient, want := range map[string]string{
		"sales@here.example": "refuse", "sales+x@here.example": "refuse", "anna@old.example": "refuse", "Anna+t@OLD.example": "refuse",
		"bob@here.example": "accept", "bob@old.example": "accept",
	} {
		testkit.Equal(t, recipient, c.Ask(policy.Question{Text: "x@bulk.example", Recipient: recipient}).Outcome, want)
	}
	for _, text := range []string{"a@b.example\n", "a@b.example,b.example\n", "@b.example,a@b.example\n", "a b,c@d.example\n"} {
		if _, err := rule.ReadAliases(strings.NewReader(text)); err == nil {
			t.Errorf("ReadAliases(%q) has no error", text)
		}
	}
}

// An explanation has the keys of the recipient's owners, and only with a recipient.
func TestExplainOwners(t *testing.T) {
	ix := indexes.Build(t, users(t, "anna@here.example,a.example,block", "bob@here.example,b.example,block"), indexes.Source(t, "bad", "recipient:anna+x@here.example\n"))
	c, _ := checker(t, ix, policy.Settings{Owners: rule.DefaultOwners(), RecipientsExempt: []string{"postmaster"}})
	keys := func(recipient string) (all string) {
		for _, k := range explain(c, policy.Question{Text: "x@a.example", Recipient: recipient}).Keys {
			if k.Owner != "" || k.Kind == "recipient" {
				all += fmt.Sprintf("%s %q of %q %s %s %v; ", k.Kind, k.Key, k.Owner, k.Filter, k.Exact, k.Matches)
			}
		}
		return all
	}
	for recipient, want := range map[string]string{
		"": "",
		"anna+x@here.example": `owner "anna@here.example" of "anna@here.example" perhaps listed []; recipient "recipient:anna+x@here.example" of "anna@here.example" no  []; ` +
			`addr "x@a.example" of "anna@here.example" no  []; addr "x@" of "anna@here.example" no  []; domain "a.example" of "anna@here.example" perhaps listed [0]; ` +
			`domain "example" of "anna@here.example" no  []; owner "here.example" of "here.example"   []; recipient "recipient:anna+x@here.example" of "" perhaps listed [1]; `,
		"eve@here.example":        `owner "eve@here.example" of "eve@here.example" no  []; owner "here.example" of "here.example"   []; recipient "recipient:eve@here.example" of "" no  []; `,
		"postmaster@here.example": "",
	} {
		testkit.Equal(t, recipient, keys(recipient), want)
	}
}

// BenchmarkOwners is a clear sender's way to one recipient: without lists of owners, with such lists of others, and with the recipient's own.
func BenchmarkOwners(b *testing.B) {
	var lines []string
	for owner := range 20_000 {
		lines = append(lines, fmt.Sprintf("user%d@here.example,promo@bulk%d.example,block", owner, owner%1000))
	}
	bad := indexes.Source(b, "bad", "bad.example\n")
	for _, c := range []struct{ name, recipient string }{{"no lists of owners", "stranger@here.example"}, {"without entries", "stranger@here.example"}, {"with entries", "user7@here.example"}} {
		sources := []index.Source{bad}
		if c.name != "no lists of owners" {
			sources = append(sources, users(b, lines...))
		}
		ix := indexes.Build(b, sources...)
		testkit.Must(b, ix.Promote(b.Context()))
		checker, _ := checker(b, ix, policy.Settings{Owners: rule.DefaultOwners()})
		x := checker.Begin(relay, policy.Client{Helo: "mx.shop.example"})
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Mail(policy.Mail{Sender: "press@mx.shop.example"})
				if d := x.Recipient(c.recipient); d.Outcome != policy.Accept {
					b.Fatal(d)
				}
			}
		})
	}
}
