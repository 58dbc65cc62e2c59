package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
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
		{"x@xn--zz.bulk.example", []string{
			"x@xn--zz.bulk.example  blocked", "…", "…", "  read as    ?.bulk.example", "…", "…", "…", "…", "…", "…",
			"  SMTP says  550 5.7.1 <x@xn--zz.bulk.example>: Sender address rejected: listed in bad (ref …", "             but the SMTP filter refuses its syntax: 553 5.1.7",
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
