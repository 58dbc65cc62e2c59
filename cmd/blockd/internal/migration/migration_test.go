package migration_test

import (
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// Hostile and broken configurations give an error or a note with the line, never a
// guess.
func TestFaultsNameTheirLine(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"a loop of parameters", "main.cf", "a = $b\nb = $a\nsmtpd_sender_restrictions = $a\n", `postconf: warning: unreasonable macro call nesting: "b"`},
		{"an open bracket", "main.cf", "x = 1\nsmtpd_sender_restrictions = ${x\n", `postconf: warning: truncated macro reference: "${x"`},
		{"an open brace", "main.cf", "smtpd_sender_restrictions = check_sender_access inline:{ a\n", "main.cf:1: smtpd_sender_restrictions: a brace that is not closed"},
		{"a class in itself", "main.cf", "smtpd_restriction_classes = c\nc = c\nsmtpd_sender_restrictions = c\n", "restriction classes name one another"},
		{"a NUL", "main.cf", "a = 1\nb = \x00\n", "main.cf:2: a NUL"},
		{"a line without a value", "main.cf", "x = 1\nsmtpd_sender_restrictions\n", `postconf: fatal: ./main.cf, line 2: missing '=' after attribute name`},
		{"an open section", "multimap.conf", "A {\n type = \"from\";\n", "multimap.conf:3 unmatched open brace at 1"},
		{"an open quote", "multimap.conf", "A {\n type = \"from;\n}\n", "multimap.conf: line: 2, column: 14 - 'unexpected newline'"},
		{"an open comment", "multimap.conf", "\n/* A\n", "multimap.conf: at the end of chunk: unfinished multiline comment"},
		{"sections without end", "multimap.conf", strings.Repeat("a {", 100), "unmatched open brace at 1"},
		{"an include of itself", "local.cf", "include local.cf\n", "local.cf:1: files include one another more than 10 deep"},
		{"conditions without end", "local.cf", strings.Repeat("ifplugin x\n", 100), "local.cf:65: conditions more than 64 deep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, tt.file, tt.text)
			testkit.Got(migration.Read(t, path))(t, "error", "…", "…"+tt.want+"…")
		})
	}
}
