package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/policy/printout"
)

// proving makes a configuration that blocks x.example, and lets mail pass that
// proves to come from there. letter writes a message signed by its key.
func proving(t *testing.T, more string) (config string, letter func(name, from, signedBy string) (path string)) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	record := "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	s := nameserver.Serve(t, nameserver.Zone{
		"TXT x.example":                  {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT s1._domainkey.x.example":    {record},
		"TXT s1._domainkey.evil.example": {record},
		"TXT broken.x.example":           {"!SERVFAIL"},
	})
	dir := t.TempDir()
	writeFile(t, dir, "bad.txt", "x.example\n")
	writeFile(t, dir, "good.txt", "x.example\n")
	config = writeFile(t, dir, "config.toml", fmt.Sprintf(`
[index]
path = "a.bdx"
[auth]
resolver = %q
[[list]]
name = "bad"
path = "bad.txt"
format = "plain"
[[list]]
name = "good"
path = "good.txt"
format = "plain"
action = "allow"
require = ["spf", "dkim"]
%s`, s.Address, more))
	runs(t, "compile", "-c", config)
	return config, func(name, from, signedBy string) string {
		text := "From: " + from + "\r\nSubject: hello\r\n\r\nText.\r\n"
		if signedBy != "" {
			var out bytes.Buffer
			o := &dkim.SignOptions{Domain: signedBy, Selector: "s1", Signer: key}
			testkit.Must(t, dkim.Sign(&out, strings.NewReader(text), o))
			text = out.String()
		}
		// As a mail program saves it: LF alone, and the envelope noted on top.
		return writeFile(t, dir, name, strings.ReplaceAll("Return-Path: <a@x.example>\r\n"+text, "\r\n", "\n"))
	}
}

func TestCheckMessage(t *testing.T) {
	config, letter := proving(t, "")
	for _, tt := range []struct {
		name, from, signedBy, client string
		sender                       []string
		code                         int
		want                         []string // patterns of lines, in order
	}{
		{"signed", "Ann <a@x.example>", "x.example", "198.51.100.7", nil, 1, []string{
			`^a@x\.example  allowed$`, `^  client +198\.51\.100\.7$`,
			`^  message +.*signed, \d+ B, author at x\.example$`, `^  helo +mx\.x\.example$`,
			`^  signature 1 +d=x\.example s=s1 a=ed25519-sha256: proved, of the author's organisation$`,
			`^  SPF +fail for x\.example: not proved, matched all$`,
			`^  author +aligned with the sender's domain: x\.example$`,
			`^  match 1 .* list bad: block x\.example and all below it$`,
			`^  match 2 .* list good: allow x\.example and all below it$`,
			`^  so +match 2 decides: an exception with proof goes before every block$`}},
		{"by SPF", "a@x.example", "", "192.0.2.7", nil, 1, []string{
			`^a@x\.example  allowed$`, `^  signatures +none$`, `^  SPF +pass for x\.example: proved, matched ip$`, `with proof`}},
		{"forged", "a@x.example", "evil.example", "198.51.100.7", nil, 0, []string{
			`^a@x\.example  blocked$`, `^  signature 1 +d=evil\.example .*: proved, but not of the author's organisation$`,
			`^  match 2 .*: does not count, allow needs proof: spf, dkim$`, `^  so +match 1 decides: no exception that counts`,
			`^  SMTP says +550 5\.7\.1 <a@x\.example>`}},
		{"two authors", "a@x.example\r\nFrom: b@x.example", "x.example", "198.51.100.7", nil, 0, []string{
			`author at no domain: more than one From field$`, `^  signature 1 .*proved`, `^  author +unknown: no signature and no alignment counts$`}},
		{"of another sender", "a@evil.example", "evil.example", "198.51.100.7", []string{"b@sub.x.example"}, 0, []string{
			`^b@sub\.x\.example  blocked$`, `^  SPF +none for sub\.x\.example: not proved`,
			`^  author +not aligned with the sender's domain: no signature counts for sub\.x\.example$`}},
		{"without a client", "a@x.example", "", "", nil, 0, []string{`^  SPF +not proved, the client's address is not known$`}},
		{"DNS fails", "a@x.example", "", "192.0.2.7", []string{"a@broken.x.example"}, 0, []string{`^  SPF +temperror for broken\.x\.example: unknown`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"check", "--file", "-c", config, "--message", letter(tt.name, tt.from, tt.signedBy), "--helo", "mx.x.example"}
			if tt.client != "" {
				args = append(args, "--client", tt.client)
			}
			code, stdout, stderr := blockd(t, "", append(args, tt.sender...)...)
			testkit.Equal(t, fmt.Sprintf("exit %d, want %d; %s", code, tt.code, stderr), code, tt.code)
			rest := stdout
			for _, want := range tt.want {
				at := regexp.MustCompile("(?m)" + want).FindStringIndex(rest)
				if at == nil {
					t.Fatalf("no line, or not in order: %s\n%s", want, stdout)
				}
				rest = rest[at[1]:]
			}
		})
	}
}

func TestCheckMessageAsJSON(t *testing.T) {
	config, letter := proving(t, "")
	code, stdout, stderr := blockd(t, "", "check", "--file", "-c", config, "--message", letter("a.eml", "a@x.example", "x.example"), "--client", "192.0.2.7", "--json")
	testkit.MustEqual(t, stderr, code, 1)
	var a printout.MailAnswer
	testkit.Must(t, json.Unmarshal([]byte(stdout), &a))
	testkit.MustEqual(t, "lines", strings.Count(stdout, "\n"), 1)
	if got := fmt.Sprintf("%s %s %s %q %s %v %d", a.Verdict, a.Sender, a.Message.Author, a.Message.Proofs, a.Message.SPF.Result, a.Message.Signatures, a.Explain.Decider); got !=
		`allowed a@x.example x.example ["spf" "dkim" "alignment"] pass [{pass x.example s1 ed25519-sha256 true }] 1` {
		t.Errorf("%s\n%s", got, stdout)
	}
}

func TestCheckMessageFaults(t *testing.T) {
	config, letter := proving(t, "")
	path := letter("a.eml", "a@x.example", "")
	bare := writeFile(t, t.TempDir(), "bare.eml", "From: a@x.example\n\ntext\n")
	large := writeFile(t, t.TempDir(), "large.eml", strings.Repeat("x", 10<<20+1))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--message", bare}, "it has no Return-Path: say who the SENDER is"},
		{[]string{"--message", large}, "over auth.max_message, 10 MiB"},
		{[]string{"--message", path + "x"}, "no such file"},
		{[]string{"--helo", "mx.x.example", "a@x.example"}, "want --message FILE with --helo"},
		{[]string{"--message", path, "a@x.example", "b@x.example"}, "at most one SENDER"},
	} {
		testkit.Got(blockd(t, "", append([]string{"check", "--file", "-c", config}, tt.args...)...))(t, fmt.Sprintf("%q", tt.args), exitTrouble, "…", "…"+tt.want+"…")
	}
}
