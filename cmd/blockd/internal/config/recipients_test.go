package config

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// TestListsPerRecipient: what such a list cannot have is refused by its key, and not left without a word.
func TestListsPerRecipient(t *testing.T) {
	source := "[list.source]\nkind = \"sqlite\"\ndsn = \"sqlite:/var/lib/mail.db\"\n"
	for _, c := range []struct{ list, fault string }{
		{"path = \"users.csv\"\nformat = \"csv:entry\"", ""},
		{source + `query = "select owner, entry from user_lists"`, ""},
		{source + `query = "amavis:wblist"`, ""},
		{source + `query = "mailcow:filterconf"`, "list.source.query"}, // which is in MySQL
		{source + `query = "postfix:/etc/postfix/senders.cf"`, "list.source.query"},
		{source + "query = \"select owner, entry from user_lists\"\nchanges = \"log\"", ""},
		{"[list.source]\nkind = \"ldap\"\ndsn = \"ldap://127.0.0.1/dc=example?mail?sub?(mail=*)\"", "list.source.changes"},
		{"path = \"users.csv\"\nformat = \"csv:entry\"\npatterns = true", "list.patterns"},
		{"path = \"users.csv\"\nformat = \"csv:entry\"\nno_override = true", "list.no_override"},
		{"path = \"users.csv\"\nformat = \"csv:entry\"\naction = \"allow\"", "list.action"},
	} {
		_, err := Load(testkit.File(t, "config.toml", "[[list]]\nname = \"users\"\nper_recipient = true\n"+c.list+"\n"))
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.list, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v, want a fault of %s", c.list, err, c.fault)
		}
	}
}
