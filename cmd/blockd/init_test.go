package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// Questions, and no more than four; a wrong answer is asked for again, a flag answers before.
func TestInit(t *testing.T) {
	list := filepath.Join(testkit.Root(t), "testdata/lists/example.txt")
	const (
		which = "Which mail server do you have?"
		how   = "How is it to ask blockd?"
		lists = "Which lists, besides your own"
		look  = "Look at it now"
	)
	for _, tt := range []struct {
		name, answers string
		args          []string
		asked         []string
		config, told  []string
	}{
		{"flags answer all", "", []string{"--server", "postfix", "--way", "milter", "--list", "ipsum-4", "--doctor=false"}, nil,
			[]string{"listen = \"unix:/var/spool/postfix/blockd/milter\"", "name = \"ipsum-4\"", "mode = \"shadow\""},
			[]string{"    smtpd_milters = unix:/blockd/milter\n", "list ipsum-4: it only watches"}},
		{"answers", "postfx\npostfix\nfront\nnone.txt\n" + list + "\nplain=" + list + "\nno\n", nil, []string{which, which, how, lists, lists, lists, look},
			[]string{"client_info = \"xclient\"", "name = \"example\""}, []string{"    postconf -M# smtp/inet\n", "list example: "}},
		{"no mail server", "none\n\nno\n", nil, []string{which, lists, look}, []string{"policy_listen = \"\""}, []string{"/v1/check?sender="}},
		{"the usual, and the doctor", "\n\nyes\n", []string{"--server", "exim"}, []string{how, lists, look}, []string{"policy_listen = \"127.0.0.1:8893\""},
			[]string{"set acl_m_blockd", "config.toml: 1 list"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			code, out, stderr := blockd(t, tt.answers, append([]string{"init", "-c", file}, tt.args...)...)
			testkit.MustEqual(t, stderr, code, 0)
			var asked []string
			for _, line := range strings.Split(stderr, "\n") {
				for _, q := range []string{which, how, lists, look} {
					if strings.Contains(line, q) {
						asked = append(asked, q)
					}
				}
			}
			testkit.Equal(t, fmt.Sprintf("asked %q, want %q", asked, tt.asked), strings.Join(asked, "|"), strings.Join(tt.asked, "|"))
			config := string(testkit.Read(t, file))
			testkit.Has(t, config, tt.config...)
			testkit.Has(t, out, tt.told...)
			runs(t, "config", "--check", "-c", file)
			prints(t, 0, "removed: "+file, "init", "--undo", "-c", file)
		})
	}
}

func TestInitFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	testkit.Write(t, file, "mine\n")
	for _, tt := range []struct {
		args    []string
		answers string
		code    int
		want    string
	}{
		{nil, "", exitFault, "config.toml is there already; --force"},
		{[]string{"--force", "--server", "qmail"}, "", exitUsage, "--server: no mail server \"qmail\"; it is one of postfix, exim"},
		{[]string{"--force", "--server", "sendmail", "--way", "policy"}, "", exitUsage, "--way: sendmail has no way \"policy\""},
		{[]string{"--force", "--server", "postfix", "--way", "milter", "--list", "no-such"}, "", exitFault, "no such file or directory; nor is it a name of blockd catalogue"},
		{[]string{"--force", "--server", "postfix", "--way", "milter", "--list", "ipsum-4", "--list", "ipsum-4"}, "", exitFault, "ipsum-4 is subscribed to already"},
		{[]string{"--force"}, "qmail\n", exitFault, "no mail server \"qmail\""},
		{[]string{"--force"}, "qmail", exitFault, "no mail server \"qmail\""},
		{[]string{"--undo", "--force"}, "", exitUsage, "--undo goes with -c alone"},
		{[]string{"--undo"}, "", exitFault, "nothing here that could be taken back"},
		{[]string{"postfix"}, "", exitUsage, "unexpected argument"},
	} {
		code, _, stderr := blockd(t, tt.answers, append([]string{"init", "-c", file}, tt.args...)...)
		testkit.Got(code, stderr)(t, fmt.Sprintf("init %v", tt.args), tt.code, "…"+tt.want+"…")
		testkit.MustEqual(t, fmt.Sprintf("init %v: config.toml", tt.args), string(testkit.Read(t, file)), "mine\n")
	}
}

// The end of a command ends its question, too.
func TestInitInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	file := filepath.Join(t.TempDir(), "config.toml")
	var out, stderr bytes.Buffer
	list := filepath.Join(testkit.Root(t), "testdata/lists/example.txt")
	code := runContext(ctx, []string{"init", "-c", file, "--server", "postfix", "--way", "milter", "--list", "plain=" + list, "--doctor=false"}, strings.NewReader(""), &out, &stderr)
	testkit.Got(code, stderr.String())(t, "runContext", exitFault, "…interrupted…")
}
