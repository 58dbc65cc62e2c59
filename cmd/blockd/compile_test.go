package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
	"blockd/lists"
)

func TestCompileListsOfTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	hosts := writeFile(t, dir, "ads.hosts", "0.0.0.0 ads.example track.example\n")
	out := dir + "/a.bdx"
	code, stdout, stderr := blockd(t, "", "compile", "-o", out, "--format", "hosts", "--subdomains", hosts)
	testkit.MustGot(code, stderr)(t, "compile", 0, "")
	compareLines(t, strings.ReplaceAll(stdout, dir, "DIR"), `list  file…format  lines  entries  errors  skipped  read
ads   DIR/ads.hosts  hosts       1        2       0        0  34 B

index       DIR/a.bdx, … KiB
keys        2 of 2 entries
filter      … % false positives
generation  …
time        …
memory      …
`)
	runs(t, "check", "-i", out, "x@mx.ads.example")
	testkit.Equal(t, "index file", testkit.Value(os.Stat(out))(t).Mode().Perm(), 0o600)
}

func TestCompileJSON(t *testing.T) {
	dir := t.TempDir()
	list := writeFile(t, dir, "bad.txt.gz", "bad.example\nno entry at all\n198.18.0.0/15\n")
	code, stdout, stderr := blockd(t, "", "compile", "-o", dir+"/a.bdx", "--format", "plain", "--json", list)
	testkit.MustGot(code, stderr)(t, "compile", 0, "")
	var got struct {
		File, Generation string
		Keys, Entries    int
		Bytes            int64
		Lists            []struct {
			List, File, Format, Verdict      string
			Lines, Entries, Errors, Networks int
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(stdout), &got))
	info := testkit.Value(os.Stat(dir + "/a.bdx"))(t)
	testkit.MustGot(got.File, len(got.Generation), got.Keys, got.Entries, got.Bytes, len(got.Lists))(t, fmt.Sprintf("report %s", stdout), dir+"/a.bdx", 32, 2, 2, info.Size(), 1)
	if l := got.Lists[0]; l.List != "bad" || l.File != list || l.Format != "plain" || l.Verdict != "loaded" || l.Lines != 3 || l.Errors != 1 || l.Networks != 1 {
		t.Errorf("row %+v", l)
	}
}

func TestCompileRefusesAndKeepsTheOldFile(t *testing.T) {
	config, dir := compiled(t)
	before := testkit.Read(t, dir+"/a.bdx")
	testkit.Must(t, os.Remove(dir+"/good.txt"))
	writeFile(t, dir, "trial.txt", "<html>\n")
	code, _, stderr := blockd(t, "", "compile", "-c", config)
	testkit.Equal(t, "exit", code, 1)
	testkit.Has(t, stderr, "/good.txt: missing: ", "/trial.txt: html: ", "2 files refused; "+dir+"/a.bdx stays as it is")
	testkit.Equal(t, "the old index", string(testkit.Read(t, dir+"/a.bdx")), string(before))
	if left, _ := os.ReadDir(dir); len(left) != 6 { // config, lists, index, its lock and its cache
		t.Errorf("something was left behind: %v", left)
	}
}

// If OUT is forgotten after -o, no list is overwritten: neither the one that is read nor, where the shell makes a.txt b.txt of
// lists/*.txt, the first of them.
func TestCompileSparesLists(t *testing.T) {
	dir := t.TempDir()
	first, second := writeFile(t, dir, "a.txt", "bulk.test\n"), writeFile(t, dir, "b.txt", "spam.test\n")
	for list, want := range map[string]string{first: "a.txt is the list that is read", second: "a.txt is there and is no index"} {
		says(t, exitUsage, want, "compile", "-o", first, "--format", "plain", list)
		testkit.Equal(t, "the list", string(testkit.Read(t, first)), "bulk.test\n")
	}
	// An index is replaced, also a damaged one; and an empty file, as mktemp makes it.
	for _, there := range []string{"", "BDX\r\n\x1a\n\x00 cut"} {
		out := writeFile(t, dir, "out.bdx", there)
		runs(t, "compile", "-o", out, "--format", "plain", second)
	}
}

// TestCompileAccepts says what --accept takes, that it says so, and what it does
// not take: the faults of a list by itself.
func TestCompileAccepts(t *testing.T) {
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "n%d.example\n", i)
		}
		return b.String()
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name, old, text, want string
		taken                 bool
	}{
		{"shrunk", numbered(100), numbered(49), "shrunk: 49 entries are left of 100, less than max_shrink = 0.5 of them", true},
		{"grown", numbered(1000), numbered(10_001), "grown: 10001 entries after 1000, more than max_grow = 10 times as many", true},
		{"emptied", numbered(100), "# nobody\n", "empty: no entry is left of 100", true},
		{"poisoned", "a.example\n", "gmail.com\nweb.de\nqq.com\naol.com\nmail.ru\nyahoo.com\n", "protected: entries that cover a protected domain: 6", false},
		{"full of bad lines", "a.example\n", numbered(100) + strings.Repeat("no entry\n", 100), "bad-ratio: 100 of 200 lines are refused", false},
		{"against its own test", "a.example\n", "b.example\n#? block x@a.example\n", "l.txt:2: self-test: <x@a.example> shall be blocked, and no line does", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"compile", "-o", dir + "/" + tt.name + ".bdx", "--format=plain", writeFile(t, dir, "l.txt", tt.old)}
			runs(t, args...)
			writeFile(t, dir, "l.txt", tt.text)
			code, _, stderr := blockd(t, "", args...)
			testkit.Equal(t, stderr, code, 1)
			testkit.Has(t, stderr, "list l: "+dir+"/l.txt:", tt.want, "stays as it is")
			testkit.Equal(t, fmt.Sprintf("--accept is named: %t", !tt.taken), strings.Contains(stderr, "--accept"), tt.taken)
			code, _, stderr = blockd(t, "", append(args, "--accept")...)
			if tt.taken && (code != 0 || stderr != "accepted: list l: "+dir+"/l.txt: "+tt.want+"\n") || !tt.taken && code != 1 {
				t.Errorf("--accept: exit %d, %s", code, stderr)
			}
			if tt.taken {
				testkit.Got(blockd(t, "", args...))(t, "once accepted it is in force", 0, "…", "")
			}
		})
	}
}

// TestGateOfTheConfiguration compiles lists whose own words stand above [index].
func TestGateOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", `
[index]
path = "a.bdx"
protected = ["there.example"]
max_protected = 0
[smtp]
hostname = "mx.here.example"
[[list]]
name = "a"
path = "a.txt"
force = ["gmail.com", "mx.here.example"]
max_protected = 9
[[list]]
name = "b"
path = "b.txt"
allow_public_suffix = true
protected = ["only-b.example"]
max_protected = 1
[[list]]
name = "c"
path = "c.txt"
allow_empty = true
`)
	writeFile(t, dir, "c.txt", "c.example\n")
	writeFile(t, dir, "a.txt", "gmail.com\noutlook.com\nhere.example\nmx.here.example\nthere.example\nonly-b.example\ncom.tr\n")
	writeFile(t, dir, "b.txt", "com.tr\nonly-b.example\nx@gmail.com\n")
	code, stdout, stderr := blockd(t, "", "compile", "-c", file, "--json")
	var got struct {
		Lists []struct{ Entries, Errors int }
	}
	testkit.Must(t, json.Unmarshal([]byte(stdout), &got))
	testkit.MustGot(code, stderr)(t, "exit", 0, "…")
	writeFile(t, dir, "c.txt", "")
	runs(t, "compile", "-c", file)
	if a, b := got.Lists[0], got.Lists[1]; a.Entries != 3 || a.Errors != 4 || b.Entries != 2 || b.Errors != 1 {
		t.Errorf("a %+v, want gmail.com, mx.here.example and only-b.example; b %+v, want com.tr and x@gmail.com", a, b)
	}
	writeFile(t, dir, "b.txt", "gmail.com\nonly-b.example\nx@gmail.com\n")
	says(t, 1, "list b: "+dir+"/b.txt: protected: entries that cover a protected domain: 2, more than max_protected = 1", "compile", "-c", file)
}

// What compile made is what the daemon would have made: it takes it over, though
// they were started from different folders, and hidden files are no lists to both.
func TestServeTakesOverWhatCompileMade(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "lists/*.txt", "lists/*", 1))
	writeFile(t, dir, "lists/b.txt", "b.example\n")
	writeFile(t, dir, "lists/a.txt", "a.example\n")
	writeFile(t, dir, "lists/.a.txt.swp", "no list at all\n")
	t.Chdir(dir)
	runs(t, "compile")
	t.Chdir("/")
	d := serveIn(t, dir, "smtp", "http")
	testkit.Equal(t, "how the daemon came by its index", d.log.find("lists swapped in")["how"], "found on disk")
	testkit.Got(blockd(t, "", "check", "--file", "-c", dir+"/config.toml", "x@a.example"))(t, "check", "…", "…blocked…", "")
}

func TestCompileUsage(t *testing.T) {
	config, dir := compiled(t)
	list := writeFile(t, dir, "l.txt", "a.example\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{list}, "need -o FILE.bdx"},
		{[]string{"-o", dir + "/b.bdx"}, "want a LIST"},
		{[]string{"-c", config, "-o", dir + "/b.bdx", list}, "want -c or -o, not both"},
		{[]string{"-c", config, "--format", "plain"}, "--format goes with -o"},
		{[]string{"-o", dir + "/b.bdx", "--format", "plani", list}, "did you mean plain?"},
	} {
		code, _, stderr := blockd(t, "", append([]string{"compile"}, tt.args...)...)
		testkit.Got(code, stderr, strings.Count(stderr, "\n"))(t, fmt.Sprintf("compile %q", tt.args), 2, "…"+tt.want+"…", 1)
	}
}

// An administrator compiles as root what a daemon with a user of its own serves.
func TestWhatRootCompilesBelongsToTheFoldersOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const daemon = 65534
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	testkit.Must(t, os.Mkdir(state, 0o700))
	foreign := writeFile(t, state, "foreign", "root's own\n")
	writeFile(t, state, "blockd.bdx2", "another index\n")
	writeFile(t, state, "copies-of-root", "no list\n")
	linked := filepath.Join(state, "blockd.bdx.linked")
	testkit.Must(t, os.Link(foreign, linked))
	testkit.Must(t, os.Chown(state, daemon, daemon))
	writeFile(t, dir, "bulk.txt", "bulk.example\n")
	p := newPublisher(t)
	p.text("far.example\n")
	config := writeFile(t, dir, "config.toml", "[index]\npath = \"state/blockd.bdx\"\n[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\n"+
		strings.Replace(p.list(""), "copies/", "state/copies/", 1)+ // a folder that is made, and one that is there
		strings.NewReplacer(`"bad"`, `"near"`, "copies/", "state/").Replace(p.list("")))
	runs(t, "compile", "--accept", "-c", config)
	want := map[string]uint32{"foreign": 0, "blockd.bdx.linked": 0, "blockd.bdx2": 0, "copies-of-root": 0} // a name elsewhere is not given away
	seen := 0
	err := filepath.WalkDir(state, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == state {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		owner := uint32(daemon)
		if uid, ok := want[filepath.Base(path)]; ok {
			owner = uid
		}
		testkit.Equal(t, fmt.Sprintf("%s belongs to user", path), info.Sys().(*syscall.Stat_t).Uid, owner)
		seen++
		return nil
	})
	testkit.Must(t, err)
	// The index, its lock, its cache with two segments and the sources, the note, copies of
	// two lists and their receipts in folders that were made for them, and the two of ours.
	if seen < 16 {
		t.Errorf("%d files in the state folder, want 16 or more", seen)
	}
}

// What protects without being said is printed, and what is printed still loads.
func TestConfigPrintsWhatIsProtected(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BLOCKD_SMTP_TRUSTED", "10.0.0.0/8, 192.0.2.7")
	file := writeFile(t, dir, "config.toml", "[smtp]\nhostname = \"mx.here.example\"\n[index]\nprotected = [\"there.example\"]\nmax_grow = 3\n")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--defaults"}, []string{"protected = []\nmax_protected = 5\nmax_bad_ratio = 0.25\nmax_shrink = 0.5\nmax_grow = 10.0\nallow_public_suffix = false\n", "index.protected:\n# gmail.com "}},
		{[]string{"--effective", "-c", file}, []string{"trusted = ['10.0.0.0/8', '192.0.2.7']\n", "protected = ['there.example']\n", "max_grow = 3.0\n", "# here.example and mx.here.example:\n# gmail.com "}},
	} {
		code, stdout, stderr := blockd(t, "", append([]string{"config"}, tt.args...)...)
		testkit.MustEqual(t, stderr, code, 0)
		testkit.Has(t, stdout, tt.want...)
		for _, name := range lists.ShippedProtected() {
			testkit.Has(t, stdout, " "+name)
		}
		for line := range strings.Lines(stdout) {
			if len(line) > 80 && line[0] == '#' {
				t.Errorf("a line of %d octets: %s", len(line), line)
			}
		}
		var tree map[string]any
		if err := toml.Unmarshal([]byte(stdout), &tree); err != nil {
			t.Errorf("config %q: %v", tt.args, err)
		}
	}
}

// Without a daemon the key beside the index says for which senders a list counts.
func TestPercentWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bad.example\n")
	writeFile(t, dir, "trial/a.txt", "bulk.example\n")
	writeFile(t, dir, "trial/b.txt", "bulk.example\n!boss@bulk.example\n")
	tables := func(more string) string {
		return anyPorts + `
[[list]]
name = "tenth"
path = "trial/a.txt"
format = "plain"
percent = 10

[[list]]
name = "out"
path = "trial/b.txt"
format = "plain"
` + more
	}
	file := writeFile(t, dir, "config.toml", tables("percent = 10"))
	runs(t, "compile", "-c", file)
	testkit.Got(blockd(t, "", "check", "-c", file, "a@bulk.example"))(t, "without the key", "…", "…", "…for which senders a list with percent counts is not known: open …")
	writeFile(t, dir, "var/a.bdx.percent.key", "000102030405060708090a0b0c0d0e0f\n")
	_, out, _ := blockd(t, "", "check", "--explain", "-c", file, "a@bulk.example")
	for _, want := range []string{"list tenth: block bulk.example and all below it (this list counts for 10 % of senders; and for this one)",
		"list out: block bulk.example and all below it (this list counts for 10 % of senders; not for this one)"} {
		testkit.Has(t, out, want)
	}
	if _, out, _ := blockd(t, "", "lists", "-c", file); strings.Count(out, "block 10%") != 2 {
		t.Errorf("lists: %s", out)
	}
	for text, want := range map[string]string{
		"percent = 0":                      "list.percent: want 0.01 to 100, have 0",
		"percent = 101":                    "list.percent: want 0.01 to 100, have 101",
		"percent = nan":                    "list.percent: want 0.01 to 100, have NaN",
		"percent = 10\naction = \"allow\"": "has no effect with action = \"allow\"",
	} {
		file := writeFile(t, dir, "config.toml", tables(text))
		if code, out, stderr := blockd(t, "", "config", "--check", "-c", file); code == 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, want %q", text, code, out+stderr, want)
		}
	}
}

// An operator accepts one list while others are bad: it acts, and each of them has what it had and is told of, whether
// a daemon runs or not. What he accepts is taken once.
func TestAcceptTakesOneListWhileOthersAreBad(t *testing.T) {
	var long strings.Builder
	for i := range 120 {
		fmt.Fprintf(&long, "n%d.example\n", i)
	}
	config := strings.Split(anyPorts, "[[list]]")[0] + `
[[list]]
name = "long"
path = "long.txt"
format = "plain"
[[list]]
name = "other"
path = "other.txt"
format = "plain"
[[list]]
name = "people"
path = "people/*"
format = "plain"
per_recipient = true
`
	for _, tt := range []struct {
		what, file, text, want string
		kept                   string // a sender whom the bad list refuses still
	}{
		{"html", "other.txt", "<html><body>Not found</body></html>\n", "other.txt: html", "x@other0.example"},
		{"full of bad lines", "other.txt", strings.Repeat("no entry\n", 100), "other.txt: ", "x@other0.example"},
		{"protected", "other.txt", "gmail.com\nweb.de\nqq.com\naol.com\nmail.ru\nyahoo.com\n", "other.txt: protected", "x@other0.example"},
		{"gone", "other.txt", "", "other.txt: missing", "x@other0.example"},
		{"shrunk", "other.txt", "other0.example\n", "other.txt: shrunk", "x@other1.example"},
		{"an owner's file", "people/anna@here.example", "<html><body>Not found</body></html>\n", "people/anna@here.example: html", ""},
		{"an owner's file with bad lines", "people/anna@here.example", strings.Repeat("no entry\n", 100), "people/anna@here.example: ", ""},
	} {
		for _, serves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, a daemon runs: %v", tt.what, serves), func(t *testing.T) {
				dir := t.TempDir()
				file := writeFile(t, dir, "config.toml", config)
				writeFile(t, dir, "long.txt", long.String())
				writeFile(t, dir, "other.txt", strings.ReplaceAll(long.String(), "n", "other")[:len("other0.example\n")*10]+strings.ReplaceAll(long.String(), "n", "m"))
				writeFile(t, dir, "people/anna@here.example", "hers.example\n")
				writeFile(t, dir, "people/bert@here.example", "his.example\n")
				runs(t, "compile", "-c", file)
				var d *running
				if serves {
					d = serveIn(t, dir, "smtp", "http")
				}
				spoil := func() {
					if tt.text == "" {
						testkit.Must(t, os.Remove(filepath.Join(dir, tt.file)))
					} else {
						writeFile(t, dir, tt.file, tt.text)
					}
				}
				spoil()
				writeFile(t, dir, "long.txt", "")
				if serves {
					testkit.Eventually(t, "the daemon refuses both", func() bool {
						_, body := d.get(t, "/readyz")
						return strings.Contains(body, "long.txt: empty") && strings.Contains(body, tt.want)
					})
				}
				testkit.Eventually(t, "compile alone takes neither", func() bool { // the daemon may be building just then
					code, _, stderr := blockd(t, "", "compile", "-c", file)
					return code == 1 && strings.Contains(stderr, "stays as it is")
				})
				code, _, stderr := blockd(t, "", "compile", "-c", file, "--accept", "long")
				testkit.MustEqual(t, stderr, code, 0)
				testkit.Has(t, stderr, "accepted: list long: ", tt.want, "it has what it had")
				if !serves {
					d = serveIn(t, dir, "smtp", "http")
				}
				d.waitBlocked(t, "x@n7.example", false)
				if tt.kept != "" {
					d.waitBlocked(t, tt.kept, true)
				}
				testkit.Eventually(t, "the bad one alone is degraded", func() bool {
					_, body := d.get(t, "/readyz")
					return strings.HasPrefix(body, "degraded") && strings.Contains(body, tt.want) && !strings.Contains(body, "list long")
				})
				// It was taken once: the next time it is emptied it is to be accepted anew.
				writeFile(t, dir, "long.txt", long.String())
				d.waitBlocked(t, "x@n7.example", true)
				writeFile(t, dir, "long.txt", "")
				testkit.Eventually(t, "the list is refused again", func() bool {
					_, body := d.get(t, "/readyz")
					return strings.Contains(body, "long.txt: empty")
				})
				d.waitBlocked(t, "x@n7.example", true)
				if list, _, _ := strings.Cut(strings.Replace(tt.file, ".txt", "/", 1), "/"); tt.what != "shrunk" {
					says(t, 1, "refused; ", "compile", "-c", file, "--accept", list) // what is bad by itself nobody accepts
				}
			})
		}
	}
}

// TestAcceptWithADaemonThatDoesNotAnswer: without one a command judges alone. What one that is there refuses must be known.
func TestAcceptWithADaemonThatDoesNotAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"detail":"busy"}`, http.StatusServiceUnavailable)
	}))
	defer server.Close()
	for _, there := range []bool{true, false} {
		c := config.Default()
		c.HTTP.Listen, c.HTTP.Socket, c.HTTP.TokenFile = server.Listener.Addr().String(), config.None, config.None
		if !there {
			server.Close()
		}
		refused, err := (&job{config: &c}).refusedThere(t.Context())
		if (err != nil) != there || len(refused) > 0 {
			t.Errorf("with a daemon %v: %v, %v", there, refused, err)
		}
	}
}
