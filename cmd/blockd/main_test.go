package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/version"
	"blockd/internal/testkit"
)

// blockd runs the program in this process.
func blockd(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = runContext(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// runs wants a command to end well, and returns what it prints.
func runs(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := blockd(t, "", args...)
	testkit.MustEqual(t, fmt.Sprintf("blockd %q: %s%s", args, stdout, stderr), code, 0)
	return stdout
}

// prints wants an exit code of a command, and a text on its standard output.
func prints(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	testkit.Got(blockd(t, "", args...))(t, fmt.Sprintf("blockd %q", args), code, "…"+want+"…", "…")
}

// says wants an exit code of a command, and a text on its standard error.
func says(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	testkit.Got(blockd(t, "", args...))(t, fmt.Sprintf("blockd %q", args), code, "…", "…"+want+"…")
}

// step is a command by its words, its exit code, and a text in what it prints or says.
type step struct {
	stdin, words string
	code         int
	says         string
}

// goes runs one command after the other with a configuration.
func goes(t *testing.T, config string, steps []step) {
	t.Helper()
	for _, s := range steps {
		code, stdout, stderr := blockd(t, s.stdin, append(strings.Fields(s.words), "-c", config)...)
		testkit.Got(code, stdout+stderr)(t, fmt.Sprintf("blockd %s", s.words), s.code, "…"+s.says+"…")
	}
}

func writeFile(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	return testkit.Write(t, filepath.Join(dir, name), text)
}

// The command line is an interface: docs, man page and scripts rely on it.
func TestCommandsAndFlags(t *testing.T) {
	want := map[string]string{
		"serve":      "config",
		"compile":    "accept action allow-public-suffix config exceptions format json offline output patterns subdomains",
		"lint":       "action all allow-public-suffix config exceptions format held json patterns subdomains",
		"check":      "client config explain file helo index json message recipient",
		"lists":      "config entries files index json overlaps",
		"add":        "action author config for force json owner require until why",
		"remove":     "config json owner why",
		"list":       "config json owner",
		"history":    "client config fleet json limit list outcome recipient ref sender since verdict",
		"replay":     "action allow-public-suffix as config exceptions format json list patterns since subdomains",
		"quarantine": "",
		"pause":      "config for why",
		"resume":     "config why",
		"learn":      "config maillog",
		"forget":     "config entries json quarantine why",
		"publish":    "again config now why",
		"fleet":      "config json",
		"init":       "config doctor force list server undo way",
		"subscribe":  "config enforce remove",
		"requests":   "all config json state",
		"audit":      "action by config has json limit since text until verify",
		"version":    "json licences",
		"catalogue":  "json",
		"token":      "",
		"junk":       "config for force ham json recipient undo", "complaints": "config json", "proposals": "all config json state",
		"import":      "amavis csv domain force from-postfix from-rspamd from-spamassassin json mailcow output rspamd-settings sieve spamassassin-sql user-prefs",
		"export":      "config format index json list output owner",
		"compare":     "action allow-public-suffix approximate config exceptions format json memory patterns subdomains",
		"config":      "check config defaults effective",
		"doctor":      "config json",
		"health":      "config strict timeout",
		"reload":      "config",
		"notify":      "config test",
		"report":      "config json send since",
		"generations": "config json",
		"diff":        "config json mail since",
		"rollback":    "config to why",
		"adopt":       "config if why",
		"live":        "",
	}
	for _, cmd := range newRoot().Commands() {
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		testkit.Equal(t, fmt.Sprintf("%s has the flags", cmd.Name()), strings.Join(flags, " "), want[cmd.Name()])
		delete(want, cmd.Name())
		if !cmd.Hidden && (cmd.Example == "" || cmd.Long == "") {
			t.Errorf("%s is not explained", cmd.Name())
		}
	}
	for name := range want {
		t.Errorf("no command %s", name)
	}
}

func TestUsageErrorsAreOneLineWithAHint(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{}, "blockd: want a command: serve, compile, lint, check, lists, source, add, remove, list, history, replay, quarantine, requests, audit, token, export, compare, filter, import, config, doctor, health, pause, resume, learn, forget, generations, diff, rollback, adopt, publish, fleet, live, reload, notify, report, init, junk, complaints, proposals, catalogue, subscribe or version; see: blockd --help\n"},
		{[]string{"lnt"}, "blockd: unknown command \"lnt\", did you mean lint?; see: blockd --help\n"},
		{[]string{"lint", "--frmat=x"}, "blockd lint: unknown flag: --frmat, did you mean --format?; see: blockd lint --help\n"},
		{[]string{"serve", "now"}, "blockd serve: unexpected argument \"now\"; see: blockd serve --help\n"},
		{[]string{"config"}, "blockd config: want one of --check, --effective and --defaults; see: blockd config --help\n"},
		{[]string{"config", "--check", "--defaults"}, "blockd config: want one of --check, --effective and --defaults; see: blockd config --help\n"},
	} {
		testkit.Got(blockd(t, "", tt.args...))(t, fmt.Sprintf("blockd %q", tt.args), 2, "", tt.want)
	}
}

// An error names what to do next, and the exit code tells it from an answer.
func TestErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.txt", "bulk.example\n")
	any := writeFile(t, dir, "any.toml", anyPorts)
	good := writeFile(t, dir, "good.toml", "[index]\npath = \"x.bdx\"\n[http]\nlisten = \"\"\n[[list]]\nname = \"a\"\npath = \"a.txt\"\n")
	bare := writeFile(t, dir, "bare.toml", "[smtp]\nhostname = mx.here.example\n")
	ambiguous := writeFile(t, dir, "b.txt", "first line\nsecond line\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check", "-c", good, "a@bulk.example"}, 2, ": no index yet: start the daemon, or run: blockd compile -c " + good + "\n"},
		{[]string{"export", "-c", good, "--format", "plain"}, 2, ": no index yet: start the daemon, or run: blockd compile -c " + good + "\n"},
		{[]string{"lists", "-c", good}, 1, ": no index yet: start the daemon, or run: blockd compile -c " + good + "\n"},
		{[]string{"lists", "-i", dir + "/no.bdx"}, 1, ": no index yet; blockd compile -o makes one\n"},
		{[]string{"history", "-c", dir + "/no.toml"}, 2, "no.toml: no such file; name one with -c, or begin with: blockd config --defaults >" + dir + "/no.toml\n"},
		{[]string{"history", "-c", good}, 2, ": no history yet: start the daemon\n"},
		{[]string{"learn", "-c", any}, exitUsage, "want --maillog"},
		{[]string{"learn", "-c", any, "--maillog", "/nowhere"}, exitFault, "no such file"},
		{[]string{"forget", "-c", any}, exitUsage, "want one ADDRESS"},
		{[]string{"forget", "-c", any, "there.example"}, exitUsage, "want an address with a domain"},
		{[]string{"config", "--check", "-c", dir}, 1, dir + ": a folder, and a configuration is a file\n"},
		{[]string{"config", "--check", "-c", bare}, 1, "bare.toml:2: not TOML: unexpected character U+006D 'm' at start of value; text stands in quotes: key = \"text\"\n"},
	} {
		says(t, tt.code, tt.want, tt.args...)
	}
	testkit.Got(blockd(t, "", "remove", "-c", good, "a@bulk.example"))(t, "remove of what is not there", 1, "no live entry: a@bulk.example\n", "")
	prints(t, 1, "\n  = Try --format F", "lint", ambiguous)
}

func TestHelpGoesToStandardOutput(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"lint", "--help"}, {"help", "check"}, {"--version"}} {
		if code, stdout, stderr := blockd(t, "", args...); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("blockd %q = %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// A checkout runs by the file of its folder, and who has installed blockd by the machine's.
func TestTheFolderGoesBeforeTheMachine(t *testing.T) {
	dir := t.TempDir()
	here, machine := filepath.Join(dir, "config.toml"), filepath.Join(dir, "etc", "config.toml")
	testkit.Equal(t, "with no file", firstFile(here, machine), here)
	writeFile(t, dir, "etc/config.toml", "")
	testkit.Equal(t, "with the machine's file", firstFile(here, machine), machine)
	writeFile(t, dir, "config.toml", "")
	testkit.Equal(t, "with both", firstFile(here, machine), here)
}

// The shell's own way is asked: the hidden command that its script runs.
func TestCompletionKnowsListsAndEntries(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", "[smtp]\nlisten = \"\"\n[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n[[list]]\nname = \"scam\"\npath = \"scam.txt\"\n[[list]]\nname = \"other\"\npath = \"other.txt\"\n")
	for _, list := range []string{"spam.txt", "scam.txt", "other.txt"} {
		writeFile(t, dir, list, "bulk.example\n")
	}
	config := filepath.Join(dir, "config.toml")
	var out, log bytes.Buffer
	if code := run([]string{"add", "-c", config, "spam@bulk.example", "scam.example"}, nil, &out, &log); code != 0 {
		t.Fatalf("blockd add ended with %d: %s", code, &log)
	}
	const end = ":4\n" // and no files beside
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"export", "-c", config, "--list", ""}, "spam\tDIR/spam.txt\nscam\tDIR/scam.txt\nother\tDIR/other.txt\n" + end},
		{[]string{"export", "-c", config, "--list", "s"}, "spam\tDIR/spam.txt\nscam\tDIR/scam.txt\n" + end},
		{[]string{"history", "-c", config, "--list", "o"}, "other\tDIR/other.txt\n" + end},
		{[]string{"replay", "-c", config, "--as", "sp"}, "spam\tDIR/spam.txt\n" + end},
		{[]string{"remove", "-c", config, "spam@"}, "spam@bulk.example\n" + end},
		{[]string{"remove", "-c", config, "scam.example", "s"}, "spam@bulk.example\n" + end},
		{[]string{"remove", "-c", filepath.Join(dir, "none.toml"), ""}, end},
	} {
		out.Reset()
		if code := run(append([]string{"__complete"}, tt.words...), nil, &out, &log); code != 0 {
			t.Errorf("%q ended with %d: %s", tt.words, code, &log)
		}
		testkit.Equal(t, fmt.Sprintf("%q offers", tt.words), string(bytes.ReplaceAll(out.Bytes(), []byte(dir), []byte("DIR"))), tt.want)
	}
	if _, err := os.Stat(filepath.Join(dir, "none.toml")); err == nil {
		t.Error("a configuration was made")
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := blockd(t, "", "version", "--json")
	var v version.Info
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || len(v.Modules) == 0 {
		t.Errorf("version --json = %d, %v: %s%s", code, err, out, errs)
	}
	code, out, _ = blockd(t, "", "version")
	if code != 0 || !strings.HasPrefix(out, "blockd    "+v.Version+"\n") || !strings.Contains(out, "\ngo        "+v.Go+"\n") {
		t.Errorf("version = %d:\n%s", code, out)
	}
	code, out, _ = blockd(t, "", "version", "--licences")
	if code != 0 || !strings.Contains(out, "github.com/spf13/cobra v") || !strings.Contains(out, "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") {
		t.Errorf("version --licences = %d, %d octets", code, len(out))
	}
	if code, _, errs := blockd(t, "", "version", "--json", "--licences"); code != exitUsage || !strings.Contains(errs, "not both") {
		t.Errorf("both: %d %s", code, errs)
	}
}

// TestLicencesAreOfWhatIsLinkedIn holds that no module is in the program without its licence, and that versions agree.
func TestLicencesAreOfWhatIsLinkedIn(t *testing.T) {
	table, _, _ := strings.Cut(licences, "\n\n")
	var have []string
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		testkit.MustEqual(t, fmt.Sprintf("a line of licences.txt: %q", line), len(words), 3)
		have = append(have, words[0]+" "+words[1])
	}
	out := testkit.Value(exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", ".").Output())(t)
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(have, line) {
			t.Errorf("licences.txt lacks %s: make licences", line)
		}
	}
	if !slices.Contains(have, "std -") {
		t.Error("licences.txt lacks Go's own library")
	}
}

func manPage(t *testing.T, name string) []string {
	t.Helper()
	text := testkit.Read(t, testkit.Root(t)+"/docs/man/"+name)
	return strings.Split(string(text), "\n")
}

// blockd(8) names the commands and their flags, no others.
func TestManPageOfTheProgram(t *testing.T) {
	want := map[string]bool{}
	for _, cmd := range newRoot().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			want["--"+f.Name] = true
			if f.Shorthand != "" {
				want["-"+f.Shorthand] = true
			}
		})
	}
	got := map[string]bool{}
	described := regexp.MustCompile(`\bFl (\\-)?([a-z]+(?:\\-[a-z]+)*)`)
	synopsis := map[string]bool{}
	for _, line := range manPage(t, "blockd.8") {
		if strings.HasPrefix(line, ".It Fl ") {
			for _, m := range described.FindAllStringSubmatch(line, -1) {
				got[strings.ReplaceAll(m[1]+"-"+m[2], `\-`, "-")] = true
			}
		}
		if name, ok := strings.CutPrefix(line, ".Cm "); ok {
			synopsis[name] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("blockd(8) describes the flags\n%q, want\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for _, cmd := range newRoot().Commands() {
		if !cmd.Hidden && !synopsis[cmd.Name()] {
			t.Errorf("blockd(8) has no command %s", cmd.Name())
		}
	}
}

// What is shipped runs without a word of warning, and its lists are clean.
func TestReferenceConfigurationIsGood(t *testing.T) {
	reference := filepath.Join(testkit.Root(t), "config.toml")
	testkit.Got(blockd(t, "", "config", "--check", "-c", reference))(t, "config --check", 0, "…no warnings…", "…")
	c := testkit.Value(config.Load(reference))(t)
	for _, l := range c.Lists {
		runs(t, "lint", "--format", l.Format, l.Path)
	}
}

// The command says what package config finds, and sums it up.
func TestConfigCheck(t *testing.T) {
	good := testkit.File(t, "config.toml", "[smtp]\nupstream = \"maildir:mail\"\n[http]\nlisten = \"\"\n")
	bad := testkit.File(t, "config.toml", "[smtp]\nlisten = 25\nreject_at = \"rctp\"\n")
	for _, tt := range []struct {
		file           string
		code           int
		stdout, stderr string
	}{
		{good, 0, good + ": warning: no [[list]] blocks: nothing will be refused\n" + good + ": good, no lists, 1 warning\n", ""},
		{bad, 1, "", bad + ":2: smtp.listen: want a text in quotes, have 25\n" + bad + `:3: smtp.reject_at: want "rcpt" or "mail", have "rctp"` +
			"\nblockd config: " + bad + ": 2 faults\n"},
	} {
		code, stdout, stderr := blockd(t, "", "config", "--check", "-c", tt.file)
		testkit.Got(code, stdout, stderr)(t, "config --check", tt.code, tt.stdout, tt.stderr)
	}
}
