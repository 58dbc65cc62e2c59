package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/httpapi"
	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/race"
	"blockd/policy"
	"blockd/policy/printout"
)

// compiled makes a configuration of one enforced list, one allow list and one in
// shadow mode, compiles it, and returns the path of its config.toml.
func compiled(t *testing.T) (config, dir string) {
	t.Helper()
	dir = t.TempDir()
	writeFile(t, dir, "bad.txt", "# bad\nbulk.example\nspammer@there.example\noffers@\n.below.example\n=alone.example\n")
	writeFile(t, dir, "good.txt", "press@bulk.example\n")
	writeFile(t, dir, "trial.txt", "trial.example\n")
	config = writeFile(t, dir, "config.toml", `
[index]
path = "a.bdx"
[[list]]
name = "bad"
path = "bad.txt"
format = "plain"
reason = "we do not want it"
[[list]]
name = "good"
path = "good.txt"
format = "plain"
action = "allow"
[[list]]
name = "trial"
path = "trial.txt"
format = "plain"
mode = "shadow"
`)
	runs(t, "compile", "-c", config)
	return config, dir
}

func TestCheckPlain(t *testing.T) {
	config, _ := compiled(t)
	for _, tt := range []struct {
		name, sender, want string
		code               int
	}{
		{"listed address", "Spammer@THERE.example", "spammer@there.example\tblocked\tbad:3\tspammer@there.example\twe do not want it", 0},
		{"listed domain", "x@bulk.example", "x@bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it", 0},
		{"name below a listed domain", "x@mx.bulk.example", "x@mx.bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it", 0},
		{"local-part at any domain", "offers@any.example", "offers@any.example\tblocked\tbad:4\toffers@\twe do not want it", 0},
		{"below only", "x@below.example", "x@below.example\tclear\t\t\t", 1},
		{"this name only", "x@mx.alone.example", "x@mx.alone.example\tclear\t\t\t", 1},
		{"exception", "press@bulk.example", "press@bulk.example\tallowed\tgood:1\tpress@bulk.example\t", 1},
		{"shadow list", "x@trial.example", "x@trial.example\tclear\ttrial:1\ttrial.example\tshadow", 1},
		{"same ending, other domain", "x@notbulk.example", "x@notbulk.example\tclear\t\t\t", 1},
		{"null sender", "<>", "<>\tclear\t\t\t", 1},
		{"no sender", "two words@there.example", "two words@there.example\tunknown\t\t\t…", 1},
		{"controls are shown, not sent", "a\t\x1b[2J@there.example", `a\t\x1b[2J@there.example` + "\tunknown\t\t\t…", 1},
		{"no sender, and a listed domain", "two words@bulk.example", "two words@bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it", 0},
		{"at sign behind a listed domain", "x@bulk.example@", "x@bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it", 0},
		{"at sign behind another domain", "x@there.example@", "x@there.example@\tunknown\t\t\t…", 1},
		{"percent for an at sign", "x%bulk.example", "x@bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := blockd(t, "", "check", "--file", "-c", config, tt.sender)
			line := strings.TrimSuffix(stdout, "\n")
			if want, ok := strings.CutSuffix(tt.want, "…"); ok && strings.HasPrefix(line, want) && len(line) > len(want) {
				line = tt.want
			}
			testkit.Got(code, line, stderr, stdout)(t, fmt.Sprintf("check %q", tt.sender), tt.code, tt.want, "", "…")
		})
	}
}

// The recipient of the mail has lists of its own, or all of its mail.
func TestCheckForARecipient(t *testing.T) {
	config, dir := compiled(t)
	text := testkit.Read(t, config)
	writeFile(t, dir, "config.toml", string(text)+"[[policy]]\nrecipients = [\"vip@here.example\"]\nlists = [\"good\"]\n")
	for _, tt := range []struct {
		recipient, want string
		code            int
	}{
		{"bob@here.example", "x@bulk.example\tblocked\tbad:2\tbulk.example\twe do not want it\n", 0},
		{"postmaster@here.example", "x@bulk.example\tblocked\tbad:2\tbulk.example\teverybody may write to postmaster@here.example\n", 1},
		{"vip@here.example", "x@bulk.example\tclear\t\t\t\n", 1},
	} {
		code, stdout, stderr := blockd(t, "", "check", "--file", "-c", config, "--recipient", tt.recipient, "x@bulk.example")
		testkit.Got(code, stdout, stderr)(t, tt.recipient, tt.code, tt.want, "…")
	}
	for recipient, want := range map[string]string{
		"bob@here.example":        "SMTP says  550 5.7.1 <x@bulk.example>",
		"postmaster@here.example": "everybody may write to this recipient",
		"vip@here.example":        "match 1 would decide, but its list is not one of this recipient's [[policy]]",
	} {
		testkit.Got(blockd(t, "", "check", "--file", "-c", config, "--explain", "--recipient", recipient, "x@bulk.example"))(t, recipient, "…", "…"+want+"…", "…")
	}
	says(t, 2, "no --recipient", "check", "--file", "-c", config, "--recipient", "a@b.example", "--helo", "x", "x@bulk.example")
}

func TestCheckJSON(t *testing.T) {
	config, dir := compiled(t)
	code, stdout, stderr := blockd(t, "", "check", "--file", "-c", config, "--json", "X@Trial.Bulk.Example", "x@trial.example", "<>")
	testkit.MustGot(code, stderr)(t, "check --json", 0, "")
	lines := strings.SplitAfter(stdout, "\n")
	var first struct{ Generation string }
	testkit.Must(t, json.Unmarshal([]byte(lines[0]), &first))
	testkit.MustEqual(t, "the generation", len(first.Generation), 32)
	want := strings.ReplaceAll(strings.ReplaceAll(`{"input":"X@Trial.Bulk.Example","sender":"x@trial.bulk.example","verdict":"blocked","matches":[{"list":"bad","file":"DIR/bad.txt","line":2,"entry":"bulk.example","kind":"domain","scope":"tree","action":"block","reason":"we do not want it"}],"generation":"GEN"}
{"input":"x@trial.example","sender":"x@trial.example","verdict":"clear","matches":[{"list":"trial","file":"DIR/trial.txt","line":1,"entry":"trial.example","kind":"domain","scope":"tree","action":"block","reason":"","mode":"shadow"}],"generation":"GEN"}
{"input":"<>","sender":"","verdict":"clear","matches":[],"generation":"GEN"}
`, "DIR", dir), "GEN", first.Generation)
	testkit.Equal(t, "check --json", stdout, want)
	_, stdout, _ = blockd(t, "", "check", "--file", "-c", config, "--json", "--explain", "press@bulk.example")
	testkit.Has(t, stdout, `"explain":{"keys":[{"key":"press@bulk.example","kind":"addr","filter":"perhaps","exact":"listed","matches":[0]}`)
}

func TestCheckExplain(t *testing.T) {
	config, dir := compiled(t)
	for _, tt := range []struct {
		sender string
		want   []string // lines, where … is any text
	}{
		{"Press@mail.Bulk.example", []string{
			"press@mail.bulk.example  blocked",
			"  asked      Press@mail.Bulk.example",
			"  index      generation …, 7 keys, 7 entries",
			"  keys       press@mail.bulk.example  filter no",
			"             press@                   filter no",
			"             mail.bulk.example        no list has keys of this kind",
			"             bulk.example             filter perhaps, store listed: match 1",
			"             example                  no list has keys of this kind",
			"  filter     asked for …",
			"  match 1    " + dir + `/bad.txt:2, list bad: block bulk.example and all below it, "we do not want it"`,
			"  so         match 1 decides",
			"  SMTP says  550 5.7.1 <press@mail.bulk.example>: Sender address rejected: listed in bad (ref …)",
		}},
		{"press@bulk.example", []string{
			"press@bulk.example  allowed",
			"  asked    press@bulk.example",
			"  index    …",
			"  keys     press@bulk.example  filter perhaps, store listed: match 1",
			"           press@              filter no",
			"           bulk.example        filter perhaps, store listed: match 2",
			"           example             no list has keys of this kind",
			"  filter   …",
			"  match 1  " + dir + "/good.txt:1, list good: allow press@bulk.example",
			"  match 2  …",
			"  so       match 1 decides: an exception believed on the sender's word goes before every block",
		}},
		{"a@trial.example", []string{
			"a@trial.example  clear", "…", "…", "…", "…", "…", "…", "…",
			"  match 1  " + dir + "/trial.txt:1, list trial: block trial.example and all below it (shadow: does not count)",
			"  so       nothing that counts matches; match 1 would refuse if its list were enforced",
		}},
		{"<>", []string{"<>  clear", "…", "…", "  so     the null sender is never looked up: bounces must get through (RFC 5321, 4.5.5)"}},
		{"x y@trial.example@", []string{
			"x y@trial.example@  unknown", "…", "…", "  read as  trial.example", "…", "…", "…",
			"  match 1  " + dir + "/trial.txt:1, list trial: block trial.example and all below it (shadow: does not count)",
			"  so       this is no sender: …; what can be read of it is in no list that counts",
		}},
		{"x@-.bulk.example", []string{
			"x@-.bulk.example  blocked", "…", "…", "  read as    ?.bulk.example", "…", "…", "…", "…", "…", "…",
			"  SMTP says  550 5.7.1 <x@-.bulk.example>: Sender address rejected: listed in bad (ref …", "             but the SMTP filter refuses its syntax: 553 5.1.7",
		}},
		{"mx.bulk.example", []string{
			"mx.bulk.example  blocked", "…", "…", "…", "…", "…", "…", "…", "…",
			"  SMTP says  550 5.7.1 <*@mx.bulk.example>: Sender address rejected: listed in bad (ref …",
		}},
		{"@@", []string{"@@  unknown", "…", "…", "  so     this is no sender and no domain: …; nobody is blocked for that"}},
	} {
		t.Run(tt.sender, func(t *testing.T) {
			_, stdout, _ := blockd(t, "", "check", "--file", "-c", config, "--explain", tt.sender)
			got := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			testkit.MustEqual(t, "lines of\n"+stdout, len(got), len(tt.want))
			for i, want := range tt.want {
				head, tail, any := strings.Cut(want, "…")
				if got[i] != want && !(any && strings.HasPrefix(got[i], head) && strings.HasSuffix(got[i], tail)) {
					t.Errorf("line %d is %q, want %q", i+1, got[i], want)
				}
			}
		})
	}
}

func TestCheckExitCode(t *testing.T) {
	config, dir := compiled(t)
	broken := writeFile(t, dir, "broken.bdx", "no index")
	for _, tt := range []struct {
		name string
		args []string
		code int
	}{
		{"one of several is blocked", []string{"-c", config, "a@clear.example", "a@bulk.example"}, 0},
		{"none is blocked", []string{"-c", config, "a@clear.example", "press@bulk.example"}, 1},
		{"damaged index", []string{"-i", broken, "a@clear.example"}, 2},
		{"missing index", []string{"-i", dir + "/none.bdx", "a@clear.example"}, 2},
		{"missing configuration", []string{"-c", dir + "/none.toml", "a@clear.example"}, 2},
		{"no sender", []string{"-c", config}, 2},
		{"unknown flag", []string{"-c", config, "--exlain", "a@clear.example"}, 2},
		{"two indexes", []string{"-c", config, "-i", dir + "/a.bdx", "a@bulk.example"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, stderr := blockd(t, "", append([]string{"check"}, tt.args...)...)
			testkit.Equal(t, fmt.Sprintf("check %q (%s)", tt.args, stderr), code, tt.code)
			if tt.code == 2 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("check %q says %q, want one line", tt.args, stderr)
			}
		})
	}
}

func TestCheckStreamKeepsOrderWhateverTheLines(t *testing.T) {
	_, dir := compiled(t)
	long := strings.Repeat("a", 40<<10) + "@bulk.example"
	edge := strings.Repeat("a", maxSender-len("@bulk.example")) + "@bulk.example.org" // cut here it would be listed
	stdin := "a@bulk.example\n\nB@BULK.example\r\n" + long + "\n" + edge + "\nfriend@clear.example\nlast@bulk.example"
	code, stdout, stderr := blockd(t, stdin, "check", "-i", dir+"/a.bdx", "-")
	var got []string
	for line := range strings.Lines(stdout) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) != 5 {
			t.Errorf("%d columns in %q", len(columns), line)
			continue
		}
		got = append(got, columns[1])
	}
	want := "blocked clear blocked unknown unknown clear blocked"
	testkit.Got(code, strings.Join(got, " "), stderr)(t, "verdicts", 0, want, "")
}

// A program may write one sender and wait for its answer before it writes the next.
func TestCheckAnswersBeforeTheInputEnds(t *testing.T) {
	_, dir := compiled(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan int)
	go func() {
		code := run([]string{"check", "-i", dir + "/a.bdx", "-"}, inR, outW, io.Discard)
		outW.Close()
		done <- code
	}()
	answers := bufio.NewReader(outR)
	for _, tt := range []struct{ text, want string }{
		{"a@bulk.example\nb@cl", "a@bulk.example\tblocked"}, // half of the next line must not delay it
		{"ear.example\n", "b@clear.example\tclear"},
		{"c@bulk.example\n", "c@bulk.example\tblocked"},
	} {
		testkit.Value(io.WriteString(inW, tt.text))(t)
		testkit.MustGot(answers.ReadString('\n'))(t, fmt.Sprintf("after %q", tt.text), tt.want+"…", nil)
	}
	inW.Close()
	testkit.Equal(t, "exit", <-done, 0)
}

// A full disk or a closed pipe must not look like an answer.
func TestCheckReportsAFailedWrite(t *testing.T) {
	_, dir := compiled(t)
	var stderr bytes.Buffer
	code := run([]string{"check", "-i", dir + "/a.bdx", "a@bulk.example"}, nil, failingWriter{}, &stderr)
	testkit.Got(code, stderr.String())(t, "exit", 2, "…no space…")
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A list that never loaded has not changed since, and the explanation of a live entry is not that of a pattern.
func TestCheckSaysWhatItCannotHaveRead(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", anyPorts+"[[list]]\nname = \"torn\"\npath = \"torn.txt\"\n")
	writeFile(t, dir, "lists/a.txt", "198.18.0.0/15\n")
	writeFile(t, dir, "torn.txt", "<html><body>\n")
	d := serveIn(t, dir, "smtp", "http")
	_, _, stderr := blockd(t, "", "check", "--file", "-c", d.file(), "x@bulk.example")
	testkit.Has(t, stderr, "list torn was refused (html", "and the answer is without it")
	testkit.Lacks(t, stderr, "has changed since")
	runs(t, "add", "-c", d.file(), "bulk.example")
	_, stdout, _ := blockd(t, "", "check", "--explain", "-c", d.file(), "x@bulk.example")
	testkit.Has(t, stdout, "in memory, before the filter: match 1", "filter     not asked: no list in the index has keys of these kinds")
	testkit.Lacks(t, stdout, "pattern")
}

func TestCheckSaysWhenTheIndexIsNotOfTheseLists(t *testing.T) {
	config, dir := compiled(t)
	const quiet = ""
	note := func(want string) {
		t.Helper()
		_, stdout, stderr := blockd(t, "", "check", "--file", "-c", config, "new@bulk.example")
		testkit.Begins(t, "stdout", stdout, "new@bulk.example\tblocked")
		if want == quiet && stderr != "" || !strings.Contains(stderr, want) {
			t.Errorf("stderr %q, want %q in it", stderr, want)
		}
	}
	note(quiet)
	writeFile(t, dir, "good.txt", "press@bulk.exampl3\n") // same length
	note(dir + "/good.txt has changed since")
	writeFile(t, dir, "good.txt", "press@bulk.example\n")
	note(quiet)
	testkit.Must(t, os.Remove(dir+"/good.txt"))
	note("missing")
	text := testkit.Read(t, config)
	writeFile(t, dir, "config.toml", strings.Replace(string(text), `mode = "shadow"`, "", 1))
	writeFile(t, dir, "good.txt", "press@bulk.example\n")
	note("the lists are configured otherwise by now")
	for more, want := range map[string]string{"max_bad_ratio = 0.5": quiet, "protected = [\"new.example\"]": "note: what no entry may cover is configured otherwise by now"} {
		writeFile(t, dir, "config.toml", strings.Replace(string(text), "[index]", "[index]\n"+more, 1)) // a bound changes no entry
		note(want)
	}

	testkit.Must(t, os.Remove(dir+"/a.bdx"))
	code, _, stderr := blockd(t, "", "check", "--file", "-c", config, "a@b.example")
	testkit.Got(code, stderr)(t, "without an index", 2, "…no index yet: start the daemon, or run: blockd compile -c "+config+"…")
}

func TestCheckOfClientsAndDomains(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "bad.txt", "192.0.2.0/24\n2001:db8::7\nbulk.example\n=alone.example\nbox@ok.example\n!friend@ok.example\n")
	runs(t, "compile", "-o", dir+"/a.bdx", "--format=plain", dir+"/bad.txt")
	for _, tt := range []struct {
		name string
		args []string
		want string // the lines, with blanks for tabs, and the exit code
	}{
		{"client", []string{"192.0.2.1"}, "192.0.2.1 blocked bad:1 192.0.2.0/24, 0"},
		{"client that nobody lists", []string{"198.51.100.1"}, "198.51.100.1 clear, 1"},
		{"client in brackets", []string{"[2001:DB8::7]"}, "2001:db8::7 blocked bad:2 2001:db8::7, 0"},
		{"domain", []string{"MX.bulk.example"}, "mx.bulk.example blocked bad:3 bulk.example, 0"},
		{"domain that lists hold alone", []string{"mx.alone.example"}, "mx.alone.example clear, 1"},
		{"domain of a listed address", []string{"ok.example"}, "ok.example clear, 1"},
		{"domain by its mailboxes", []string{"@bulk.example"}, "bulk.example blocked bad:3 bulk.example, 0"},
		{"one label is a local sender", []string{"bulk"}, "bulk clear, 1"},
		{"one label as a domain", []string{"@example"}, "example clear, 1"},
		{"a network is no question", []string{"192.0.2.0/24"}, "192.0.2.0/24 unknown …, 1"},
		{"all in one", []string{"192.0.2.1", "bulk.example", "x@bulk.example"},
			"192.0.2.1 blocked bad:1 192.0.2.0/24, bulk.example blocked bad:3 bulk.example, x@bulk.example blocked bad:3 bulk.example, 0"},
		{"sender of a listed client", []string{"--client", "192.0.2.1", "x@ok.example"}, "x@ok.example blocked bad:1 192.0.2.0/24, 0"},
		{"bounce of a listed client", []string{"--client", "192.0.2.1", "<>"}, "<> blocked bad:1 192.0.2.0/24, 0"},
		{"allowed sender of a listed client", []string{"--client", "192.0.2.1", "friend@ok.example"}, "friend@ok.example allowed bad:6 friend@ok.example, 1"},
		{"sender before client", []string{"--client", "192.0.2.1", "box@ok.example"}, "box@ok.example blocked bad:5 box@ok.example, 0"},
		{"with --client a name is a local sender", []string{"--client", "198.51.100.1", "bulk.example"}, "bulk.example clear, 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := blockd(t, "", append([]string{"check", "-i", dir + "/a.bdx"}, tt.args...)...)
			var got []string
			for line := range strings.Lines(stdout) {
				line = strings.Join(strings.Fields(line), " ")
				if before, _, ok := strings.Cut(line, " unknown "); ok {
					line = before + " unknown …"
				}
				got = append(got, line)
			}
			if got := strings.Join(append(got, strconv.Itoa(code)), ", "); got != tt.want || stderr != "" {
				t.Errorf("check %q says\n%s (%s), want\n%s", tt.args, got, stderr, tt.want)
			}
		})
	}
	_, stdout, _ := blockd(t, "", "check", "-i", dir+"/a.bdx", "--json", "--client", "192.0.2.1", "x@ok.example")
	testkit.Begins(t, "check --json", stdout, `{"input":"x@ok.example","sender":"x@ok.example","client":"192.0.2.1","verdict":"blocked","matches":[{"list":"bad",`)
	_, stdout, _ = blockd(t, "", "check", "-i", dir+"/a.bdx", "--explain", "--client", "2001:db8::8", "x@mx.bulk.example")
	testkit.Has(t, stdout,
		"x@mx.bulk.example  blocked", "  client     2001:db8::8", "1 network of the client  filter no")
	says(t, 2, `want an IP address, have "localhost"`, "check", "-i", dir+"/a.bdx", "--client", "localhost", "x@ok.example")
}

// asks runs check and wants an exit code, what its output begins with, and a text in what it says on standard error: "" is nothing.
func asks(t *testing.T, code int, out, says string, args ...string) {
	t.Helper()
	got, stdout, stderr := blockd(t, "", append([]string{"check"}, args...)...)
	if got != code || !strings.HasPrefix(stdout, out) || !strings.Contains(stderr, says) || says == "" && stderr != "" || strings.Count(stderr, "\n") > 1 {
		t.Errorf("check %q: %d, %q, %q, want %d, %q and %q", args, got, stdout, stderr, code, out, says)
	}
}

// What the daemon holds and no file does is said by both; every form of the answer is the file's where they agree.
func TestCheckAsksTheDaemon(t *testing.T) {
	d := serveLists(t, anyPorts+"[[policy]]\nrecipients = [\"vip@here.example\"]\nlists = []\n", "bulk.example\n")
	config := d.file()
	letter := writeFile(t, t.TempDir(), "a.eml", "Return-Path: <x@bulk.example>\nFrom: x@bulk.example\n\ntext\n")
	for _, args := range [][]string{
		{"x@bulk.example", "x@clear.example", "two words@x", "<>", "", "192.0.2.1", "bulk.example", "a\nb@bulk.example", "x+y@bulk.example", "\xff@bulk.example", strings.Repeat("a", maxSender) + "b@bulk.example"},
		{"--json", "x@bulk.example", "\xff@bulk.example"},
		{"--json", "--explain", "x@bulk.example", "bulk.example"},
		{"--client", "192.0.2.1", "bulk.example", "x@bulk.example"},
		{"--recipient", "vip@here.example", "x@bulk.example"},
		{"--recipient", "postmaster@here.example", "x@bulk.example"},
		{"--explain", "x@bulk.example", "x@clear.example"},
		{"--message", letter, "--helo", "mx.bulk.example"},
		{"--message", letter, "--json", "a@clear.example"},
	} {
		code, want, errs := blockd(t, "", append([]string{"check", "-c", config, "--file"}, args...)...)
		if errs != "" || want == "" {
			t.Errorf("check --file %q: %q, %q", args, want, errs)
		}
		got, have, errs := blockd(t, "", append([]string{"check", "-c", config}, args...)...)
		ref := regexp.MustCompile(`ref [0-9A-Za-z]+`) // each answer has its own
		if have, want = ref.ReplaceAllString(have, "ref"), ref.ReplaceAllString(want, "ref"); have != want || got != code || errs != "" {
			t.Errorf("check %q: %d, %s\n%s, want %d\n%s", args, got, errs, have, code, want)
		}
	}
	stdin := "x@bulk.example\n\r\n\nx@bulk.example\r\r\n" + strings.Repeat("y@clear.example\nx@bulk.example\n", 3000) + strings.Repeat("a", 40<<10) + "\nlast@bulk.example"
	_, want, _ := blockd(t, stdin, "check", "-c", config, "--file", "-")
	if code, got, errs := blockd(t, stdin, "check", "-c", config, "-"); code != 0 || got != want || errs != "" {
		t.Errorf("check -: %d, %d octets, want %d, %s", code, len(got), len(want), errs)
	}
	runs(t, "add", "-c", config, "x@live.example")
	testkit.Got(blockd(t, "", "check", "-c", config, "x@live.example"))(t, "of a live entry", 0, "x@live.example\tblocked\tlive:…", "…")
	if _, body := d.get(t, "/metrics"); strings.Contains(body, "blockd_list_hits_total{") {
		t.Error("questions of check are hits")
	}
}

func TestCheckSaysWhoAnswersWhereDaemonAndFilesDiffer(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")
	config := d.file()
	blocked, clear := "x@bulk.example\tblocked\t", "x@new.example\tclear\t"
	// Another file lies where the index was: the daemon has the old one.
	bdx := filepath.Join(d.dir, "var/a.bdx")
	own := testkit.Read(t, bdx)
	other := filepath.Join(d.dir, "other.bdx")
	runs(t, "compile", "-o", other, writeFile(t, d.dir, "bad.txt", "new.example\n"))
	testkit.Must(t, os.Rename(other, bdx))
	asks(t, 0, blocked, "note: it serves generation ", "-c", config, "x@bulk.example")
	asks(t, 1, "x@bulk.example\tclear\t", "", "-i", bdx, "x@bulk.example")
	testkit.Must(t, os.WriteFile(bdx, []byte(own), 0o600))

	// A list that the daemon refuses, and while it does.
	writeFile(t, d.dir, "lists/a.txt", "#? block x@other.example\nnew.example\n")
	testkit.Eventually(t, "the list to be refused", func() bool { _, body := d.get(t, "/readyz"); return strings.Contains(body, "bad") })
	asks(t, 1, clear, "lists/a.txt has changed since", "-c", config, "x@new.example")
	asks(t, 0, blocked, "the answers are those of the daemon", "-c", config, "x@bulk.example")

	// A configuration that the daemon has not taken up, and one of another index.
	text := string(testkit.Read(t, config))
	writeFile(t, d.dir, "config.toml", text+"[refusal]\ncontact = \"https://here.example/\"\n")
	asks(t, 0, blocked, "it serves another configuration than "+config, "-c", config, "x@bulk.example")
	socket := bdx + ".sock"
	elsewhere := writeFile(t, t.TempDir(), "config.toml", "[index]\npath = \"b.bdx\"\n[http]\nsocket = \""+socket+"\"\n")
	asks(t, 0, blocked, "it serves another index, "+bdx, "-c", elsewhere, "x@bulk.example")

	writeFile(t, d.dir, "config.toml", text)
	d.end(t)
	writeFile(t, d.dir, "lists/a.txt", "bulk.example\n")
	asks(t, 0, blocked, "no daemon answers at "+socket+"; the answers are those of the file "+bdx, "-c", config, "x@bulk.example")
}

// A daemon that cannot be asked is named, and why.
func TestCheckOfADaemonThatDoesNotAnswer(t *testing.T) {
	config, dir := compiled(t)
	socket := filepath.Join(dir, "s")
	text := string(testkit.Read(t, config))
	writeFile(t, dir, "config.toml", text+"[http]\nsocket = \""+socket+"\"\n")
	const blocked = "x@bulk.example\tblocked\t"
	listen := func(answer http.HandlerFunc) {
		t.Helper()
		l := testkit.Value(net.Listen("unix", socket))(t)
		s := httptest.NewUnstartedServer(answer)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
	asks(t, 0, blocked, "no daemon answers at "+socket, "-c", config, "x@bulk.example")

	hung := make(chan struct{})
	var now atomic.Pointer[http.HandlerFunc]
	answers := func(answer http.HandlerFunc) { now.Store(&answer) }
	answers(http.NotFound)
	listen(func(w http.ResponseWriter, r *http.Request) { (*now.Load())(w, r) })
	asks(t, 0, blocked, "it is an older blockd", "-c", config, "x@bulk.example")
	answers(func(http.ResponseWriter, *http.Request) { <-hung })
	asks(t, 0, blocked, "does not answer: no answer in time; the answers are those of the file", "-c", config, "x@bulk.example")
	close(hung)
	answers(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "nonsense") })
	asks(t, 0, blocked, "does not answer: no answer of blockd", "-c", config, "x@bulk.example")
	answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "{}")
	})
	testkit.Got(blockd(t, "", "check", "-c", config, "x@bulk.example"))(t, "of one that goes away", 2, "", "…the daemon at "+socket+"…")
	if os.Geteuid() != 0 {
		testkit.Must(t, os.Chmod(socket, 0))
		asks(t, 0, blocked, "cannot be asked: ", "-c", config, "x@bulk.example")
	}
	writeFile(t, dir, "config.toml", text+"[http]\nsocket = \"none\"\n")
	asks(t, 0, blocked, "http.socket", "-c", config, "x@bulk.example")
}

// Live entries count in the table of lists from the moment on when they act.
func TestListsCountLiveEntriesAtOnce(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")
	for n := 1; n <= 20; n++ {
		runs(t, "add", "-c", d.file(), fmt.Sprintf("x%d@live.example", n))
		var table httpapi.ListTable
		if _, body := d.get(t, "/v1/lists"); json.Unmarshal([]byte(body), &table) != nil {
			t.Fatal(body)
		}
		file := slices.IndexFunc(table.Lists, func(f httpapi.ListFile) bool { return f.List == "live" })
		row := slices.IndexFunc(table.Worth, func(w httpapi.ListWorth) bool { return w.List == "live" })
		if row < 0 || table.Worth[row].Entries != n || file >= 0 && table.Lists[file].Entries != n {
			t.Errorf("after %d were added: %+v", n, table)
		}
	}
}

// testPipeline is a pipeline over an index that blocks bad.example.
func testPipeline(t testing.TB, workers int) (pipeline, *index.Index) {
	t.Helper()
	list := indexes.Source(t, "bad", "bad.example\n")
	ix := indexes.BuildAt(t, strings.TrimSuffix(list.Path, ".txt")+".bdx", list)
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return pipeline{
		newAnswerer: func() answerer { return &printout.Asker{Checker: checker} },
		promote:     func(ctx context.Context) { ix.Promote(ctx) },
		workers:     workers,
	}, ix
}

func TestAnswersStandInTheOrderOfTheLines(t *testing.T) {
	const n = 60_000 // many blocks
	var in, want strings.Builder
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		if rng.IntN(3) == 0 {
			fmt.Fprintf(&in, "x%d@mx.bad.example\n", i)
			fmt.Fprintf(&want, "x%d@mx.bad.example\tblocked\tbad:1\tbad.example\t\n", i)
		} else {
			fmt.Fprintf(&in, "x%d@clear.example\r\n", i)
			fmt.Fprintf(&want, "x%d@clear.example\tclear\t\t\t\n", i)
		}
	}
	for _, workers := range []int{1, 2, 7} {
		p, _ := testPipeline(t, workers)
		for name, r := range map[string]io.Reader{
			"as it comes": strings.NewReader(in.String()), "in halves": iotest.HalfReader(strings.NewReader(in.String())),
		} {
			var out bytes.Buffer
			if blocked, err := p.run(t.Context(), r, &out); err != nil || !blocked || out.String() != want.String() {
				t.Errorf("%d workers, input %s: blocked %v, %v, %d bytes of answers, want %d", workers, name, blocked, err, out.Len(), want.Len())
			}
		}
	}
}

func TestLinesAreCutAlike(t *testing.T) {
	race.Skip(t)
	long := strings.Repeat("a", maxSender)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one line", "a\n", "a\n"},
		{"no line end at the end", "a\nb", "a\nb\n"},
		{"empty lines", "\n\na\n", "\n\na\n"},
		{"a line of the limit", long[1:] + "\nb\n", long[1:] + "\nb\n"},
		{"one octet more", long + "\nb\n", long + "\nb\n"},
		{"much longer", strings.Repeat(long, 20) + "\nb\n", long + "\nb\n"},
		{"much longer, without an end", "b\n" + strings.Repeat(long, 20), "b\n" + long + "\n"},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "octet by octet": iotest.OneByteReader,
			"with the end": iotest.DataErrReader,
		} {
			var got strings.Builder
			err := eachBlock(wrap(strings.NewReader(tt.in)), func(lines []byte) error {
				for line := range bytes.Lines(lines) {
					text := bytes.TrimSuffix(line, []byte("\n"))
					got.Write(append(text[:min(len(text), maxSender):min(len(text), maxSender)], '\n'))
				}
				return nil
			})
			if err != nil || got.String() != tt.want {
				t.Errorf("%s, %s: %v, %d octets, want %d", tt.name, how, err, got.Len(), len(tt.want))
			}
		}
	}
	testkit.IsError(t, "a read error comes out as", eachBlock(iotest.ErrReader(io.ErrClosedPipe), nil), io.ErrClosedPipe)
}

func TestPipelineEndsEarly(t *testing.T) {
	p, ix := testPipeline(t, 2)
	endless := func() io.Reader { return endlessReader("x@bad.example\n") }
	testkit.Fails(p.run(t.Context(), endless(), brokenWriter{}))(t, "nobody reads the answers", io.ErrClosedPipe)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, _ := io.Pipe()
	testkit.Fails(p.run(ctx, silent, io.Discard))(t, "an ended context, and a silent input", context.Canceled)
	name := ix.Lists()[0].Source.Path
	testkit.Must(t, os.Truncate(strings.TrimSuffix(name, ".txt")+".bdx", 8192))
	var out bytes.Buffer
	if _, err := p.run(t.Context(), endless(), &out); !errors.Is(err, index.ErrRead) || !strings.Contains(out.String(), "\tunknown\t") ||
		strings.Count(out.String(), "\n") > 1 {
		t.Errorf("an index that was cut off: %v, %.200q", err, out.String())
	}
}

type endlessReader string

func (r endlessReader) Read(b []byte) (n int, err error) {
	for len(b)-n >= len(r) {
		n += copy(b[n:], r)
	}
	return n, nil
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

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
		"TXT crowd.x.example":            strings.Fields(strings.Repeat("text ", 501)),
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
		{"beyond a bound", "a@x.example", "", "192.0.2.7", []string{"a@crowd.x.example"}, exitTrouble, []string{`^a@crowd\.x\.example  unknown$`,
			`^  SPF +temperror for crowd\.x\.example: unknown, 501 records`, `^  so +spf: not known for want of room .*: mail is put off with 451$`}},
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
