package migration_test

import (
	"blockd/internal/testkit"
	"strings"
	"testing"
)

// What SpamAssassin believes of a proved author alone needs the proof here, and rules about
// From: are about From:.
func TestAuthorsAndProofsAreCarriedOver(t *testing.T) {
	lists, config := listsOf(t, "local.cf", map[string]string{"local.cf": "blocklist_from *@bulk.test\n" +
		"welcomelist_from_dkim dear@bulk.test\nwelcomelist_from_dkim news@bulk.test bulk.test\nwelcomelist_from_dkim other@bulk.test esp.test\n" +
		"welcomelist_from_spf spf@bulk.test\nwhitelist_auth any@bulk.test gone@bulk.test\nunwelcomelist_auth gone@bulk.test\n" +
		"def_welcomelist_auth few@bulk.test\n"})
	testkit.Equal(t, "lists", lists, "=bulk.test\n!dear@bulk.test\n!news@bulk.test\n!spf@bulk.test\n!any@bulk.test\n")
	for name, want := range map[string]string{"spamassassin": "", "spamassassin-dkim": `["dkim"]`, "spamassassin-spf": `["spf"]`, "spamassassin-auth": `["spf", "dkim"]`} {
		_, table, ok := strings.Cut(config, "name = \""+name+"\"\n")
		table, _, _ = strings.Cut(table, "[[list]]")
		if !ok || !strings.Contains(table, `match = ["envelope", "from"]`) || strings.Contains(table, "require") != (want != "") || !strings.Contains(table, want) {
			t.Errorf("%s:\n%s", name, table)
		}
	}
}

func TestRulesAboutAuthorsOfRspamd(t *testing.T) {
	for rule, want := range map[string]string{
		`extract_from = "mime"; type = "from"`:                        `match = ["from"]`,
		`extract_from = "both"; type = "from"`:                        `match = ["envelope", "from"]`,
		`type = "header"; header = "Reply-To"; filter = "email:addr"`: `match = ["reply-to"]`,
		`type = "from"`: "",
	} {
		_, config := listsOf(t, "multimap.conf", map[string]string{
			"multimap.conf": "A { " + rule + "; action = \"reject\"; map = \"m\"; }\n", "m": "a@bulk.test\n"})
		if !strings.Contains(config, want) || strings.Contains(config, "match = ") != (want != "") {
			t.Errorf("%s:\n%s", rule, config)
		}
	}
}
