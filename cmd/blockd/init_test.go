package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/sources/catalogue"
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
		{"the usual, and the doctor", "\n\nyes\n", []string{"--server", "exim"}, []string{how, lists, look}, []string{"listen = \"\"", "policy_listen = \"unix:/var/spool/postfix/blockd/policy\"", "socket_group = \"Debian-exim\""},
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

// What cannot be done changes nothing, and says why in a line.
func TestSubscribeFaults(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	file := writeFile(t, dir, "config.toml", anyPorts)
	run := func(args ...string) (int, string) {
		t.Helper()
		code, _, stderr := blockd(t, "", append([]string{"subscribe", "-c", file}, args...)...)
		return code, stderr
	}
	for _, tt := range []struct {
		text string
		args []string
		code int
		want string
	}{
		{anyPorts, []string{"no-such-list"}, exitFault, "no such list in the catalogue"},
		{anyPorts, []string{"--enforce", "disposable-domains"}, exitFault, "disposable-domains is not subscribed to"},
		{anyPorts, []string{"--remove", "disposable-domains"}, exitFault, "disposable-domains is not subscribed to"},
		{anyPorts, []string{"--remove", "--enforce", "disposable-domains"}, exitUsage, "not both"},
		{anyPorts, nil, exitUsage, "want one name"},
		{anyPorts + "[[list]]\nname = \"disposable-domains\"\npath = \"lists/a.txt\"\n", []string{"disposable-domains"}, exitFault, `has this list already, as "disposable-domains"`},
		{"[smtp\n", []string{"disposable-domains"}, exitFault, "config.toml:1"},
		{anyPorts + "# subscribed: disposable-domains, 2026-11-23. x\n[[list]]\nname = \"x\"\npath = \"lists/a.txt\"\n", []string{"--remove", "disposable-domains"}, exitFault, "was changed by hand"},
	} {
		testkit.Write(t, file, tt.text)
		if code, stderr := run(tt.args...); code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: %d, %q, want %q", tt.args, code, stderr, tt.want)
		}
		testkit.Equal(t, fmt.Sprintf("%v: the file is now", tt.args), string(testkit.Read(t, file)), tt.text)
	}
	testkit.Write(t, file, anyPorts)
	link := filepath.Join(dir, "link.toml")
	testkit.Must(t, os.Symlink("config.toml", link))
	says(t, exitFault, "is a link to config.toml", "subscribe", "-c", link, "disposable-domains")
	says(t, 0, "no daemon runs; it takes this up when it starts", "subscribe", "-c", file, "ipsum-4")
	text := string(testkit.Read(t, file))
	testkit.Write(t, file, strings.Replace(text, time.Now().UTC().Format(time.DateOnly), "2020-01-31", 1))
	testkit.Got(blockd(t, "", "subscribe", "-c", file, "ipsum-4"))(t, "after a week", 0, "…It would have refused nobody.…To let it count: blockd subscribe --enforce ipsum-4…", "…")
}

func TestCatalogue(t *testing.T) {
	want := testkit.Value(catalogue.Lists())(t)
	var text, object strings.Builder
	testkit.MustEqual(t, "exit", run([]string{"catalogue"}, strings.NewReader(""), &text, io.Discard), 0)
	testkit.MustEqual(t, "exit", run([]string{"catalogue", "--json"}, strings.NewReader(""), &object, io.Discard), 0)
	var got []catalogue.List
	testkit.Must(t, json.Unmarshal([]byte(object.String()), &got))
	testkit.MustEqual(t, "lists in JSON", len(got), len(want))
	for i, l := range want {
		testkit.Equal(t, "JSON", got[i], l)
		testkit.Has(t, text.String(), l.Name, l.Licence, l.URL, l.Complaints, l.Judged.String())
	}
}
