package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// TestRecipientsAreWrittenAsListEntries compares with the plain format, over texts
// made of the marks that matter: what is a recipient means there the same.
func TestRecipientsAreWrittenAsListEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	pieces := []string{"@", "@", "*", ".", "=", "a", "Example", ".org", "bücher.example", `"a b"`, "[192.0.2.1]", "<", ">"}
	var texts []string
	seen := map[string]bool{}
	for len(texts) < 3000 {
		var text strings.Builder
		for range 1 + rng.IntN(5) {
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		if !seen[text.String()] {
			seen[text.String()] = true
			texts = append(texts, text.String())
		}
	}
	file := testkit.File(t, "plain.txt", strings.Join(texts, "\n")+"\n")
	entries := map[int]string{}
	_, _, err := lists.Lint(t.Context(), file, lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		if it.Kind == lists.Addr || it.Kind == lists.Domain {
			entries[it.Line] = it.Key.Text + " " + it.Scope.String()
		}
		return nil
	})
	testkit.Must(t, err)
	good := 0
	for i, text := range texts {
		key, scope, err := rule.RecipientKey(text)
		if err != nil {
			continue
		}
		good++
		if got, want := key.Text+" "+scope.String(), entries[i+1]; got != want {
			t.Errorf("RecipientKey(%q) = %s, a list has %q", text, got, want)
		}
	}
	if good < 200 {
		t.Errorf("only %d of %d texts are recipients", good, len(texts))
	}
}

func TestMostSpecificPolicyDecides(t *testing.T) {
	// Each policy has a list of its own, so the list that refuses names it.
	recipients := []string{"sales@", "example.org", ".example.org", "=mx.example.org", "bob@example.org", "shop.example.org", ".tree.example"}
	s := policy.Settings{RecipientsExempt: []string{"postmaster"}}
	var all []list
	for i, r := range recipients {
		name := fmt.Sprint("list", i)
		all = append(all, block(name, "bad.example"))
		s.Policies = append(s.Policies, rule.Recipients{Recipients: []string{r}, Lists: []string{name}})
	}
	s.Policies = append(s.Policies, rule.Recipients{Recipients: []string{"none.example", "no recipient"}},
		rule.Recipients{Recipients: []string{"example.org"}, Lists: []string{"list6"}}) // the second of this name
	c, _ := checker(t, build(t, all...), s)
	v := askSender(c, "x@bad.example")
	tests := []struct{ name, recipient, want string }{
		{"address before all", "Bob@Example.org", "bob@example.org"},
		{"tree", "eve@example.org", "example.org"},
		{"of tree and names below, the first", "eve@a.example.org", "example.org"},
		{"exact name before tree", "eve@mx.example.org", "=mx.example.org"},
		{"longer name", "eve@a.shop.example.org", "shop.example.org"},
		{"name before local-part", "sales@example.org", "example.org"},
		{"local-part", "sales@elsewhere.example", "sales@"},
		{"names below do not reach the name", "eve@tree.example", "all"},
		{"names below", "eve@a.tree.example", ".tree.example"},
		{"no policy", "eve@elsewhere.example", "all"},
		{"other ending", "eve@myexample.org", "all"},
		{"no list counts", "eve@none.example", "none"},
		{"source route", "@relay.example:bob@example.org", "bob@example.org"},
		{"no recipient yet", "", "all"},
		{"no address", "bob@", "all"},
		{"without a domain", "bob", "all"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "none"
			switch own := c.For(v, tt.recipient); {
			case own.Decider >= 0 && c.Recipient(v, tt.recipient).Outcome == policy.Refuse:
				i := 0
				fmt.Sscanf(own.ListName(own.Decider), "list%d", &i)
				if got = recipients[i]; i == 0 && len(own.Matches) > 0 && tt.want == "all" {
					got = "all" // by the first of all lists
				}
			case own.Kind != verdict.Clear || c.Recipient(v, tt.recipient).Outcome != policy.Accept:
				got = fmt.Sprint(own.Kind)
			}
			testkit.Equal(t, fmt.Sprintf("%s goes by the policy of", tt.recipient), got, tt.want)
		})
	}
}

func TestListsThatDoNotCountForARecipient(t *testing.T) {
	c, _ := checker(t, build(t, block("spam", "bad.example\n192.0.2.0/24"), allow("friends", "x@bad.example\n192.0.2.9"), block("trial", "odd.example").shadow()),
		policy.Settings{Policies: []rule.Recipients{
			{Recipients: []string{"strict.example"}, Lists: []string{"spam"}},
			{Recipients: []string{"free.example"}, Lists: []string{}},
			{Recipients: []string{"trial.example"}, Lists: []string{"trial"}},
		}})
	tests := []struct {
		name, client, sender, recipient string
		want                            policy.Outcome
		shadow                          bool
	}{
		{"all lists: the allow wins", "", "x@bad.example", "bob@here.example", policy.Accept, false},
		{"the allow does not count", "", "x@bad.example", "bob@strict.example", policy.Refuse, false},
		{"nor that of the client", "192.0.2.9", "x@ok.example", "bob@strict.example", policy.Refuse, false},
		{"no list counts", "192.0.2.1", "y@bad.example", "bob@free.example", policy.Accept, false},
		{"a shadow list stays one", "", "x@odd.example", "bob@trial.example", policy.Accept, true},
		{"a shadow list that does not count", "", "x@odd.example", "bob@strict.example", policy.Accept, false},
		{"another list than the one that matches", "", "y@bad.example", "bob@trial.example", policy.Accept, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := askEnvelope(c, client(t, tt.client), tt.sender)
			if to := c.Ask(policy.Question{Text: tt.sender, Client: client(t, tt.client), Recipient: tt.recipient}); to.Outcome != tt.want.String() {
				t.Errorf("Ask: %s, want what a door does, %s", to.Outcome, tt.want)
			}
			if d := c.Recipient(v, tt.recipient); d.Outcome != tt.want || d.Shadow != tt.shadow || d.Ref == "" {
				t.Errorf("Recipient = %+v, want outcome %d, shadow %v", d, tt.want, tt.shadow)
			}
		})
	}
}
