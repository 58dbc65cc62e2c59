// Package console tests the console in a real browser.
package console

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// TestConsole has a person use the console in a real browser: the *.spec.js beside this file have what they do. Those that
// want a daemon of another kind are run by the tests beside this one.
func TestConsole(t *testing.T) {
	installed(t)
	if *e2e.Update {
		usesConsole(t, "receipt")
		return
	}
	others := []string{"console", "fleet", "scale", "screenshots", "signin", "states", "walk"}
	specs := testkit.Value(filepath.Glob("*.spec.js"))(t)
	var rest []string
	for _, spec := range specs {
		if name := strings.TrimSuffix(spec, ".spec.js"); !strings.Contains(" "+strings.Join(others, " ")+" ", " "+name+" ") {
			rest = append(rest, "/"+spec)
		}
	}
	t.Run("daily work", func(t *testing.T) { t.Parallel(); usesConsole(t, "/console.spec.js") })
	t.Run("views", func(t *testing.T) { t.Parallel(); usesConsole(t, rest...) })
}

// ownList is what the console shows of the list own, beside its name and its file.
const ownList = "reason = \"our own\"\nhomepage = \"https://own.list.example/\"\ncomplaints = \"mailto:complaints@list.example\""

// usesConsole runs specs with two daemons: one wants tokens, the other answers everybody on this machine.
func usesConsole(t *testing.T, specs ...string) {
	lists := e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n192.0.2.0/24\n", "other.txt": "second.example\n", "aside.txt": "aside.example\n"}, SMTP: "quarantine = \"aside\"\n",
		Lists: e2e.List("own", `format = "plain"`, ownList) + e2e.List("other", `format = "plain"`) + e2e.List("aside", `format = "plain"`, `on_match = "quarantine"`)}
	d, open := e2e.Configure(t, lists), e2e.Serve(t, lists)
	zone, receipts, text := e2e.FreeAddress(t), e2e.FreeAddress(t), testkit.Read(t, d.Path("config.toml"))
	text = fmt.Appendf(text, "[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[receipts]\nlisten = %q\n[auth]\nresolver = %q\n", zone, e2e.DomainZone, e2e.IPZone, receipts, nameserver.Serve(t, nil).Address)
	testkit.Write(t, d.Path("config.toml"), strings.Replace(string(text), "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	token := strings.TrimSpace(d.Must(t, "token", "new", "--name", "helpdesk", "--write"))
	readToken := strings.TrimSpace(d.Must(t, "token", "new", "--name", "viewer"))
	adminToken := strings.TrimSpace(d.Must(t, "token", "new", "--name", "boss", "--admin"))
	d.Unready = true // who has no token is not told
	d.Start(t)
	testkit.Eventually(t, "the daemon's socket", func() bool {
		code, _, _ := d.Command(t, "add", "kept.example", "--why", "phishing, ticket 4711", "--author", "jo")
		return code == 0
	})

	env := []string{"BLOCKD_OPEN_URL=http://" + open.HTTP, "BLOCKD_TOKEN=" + token, "BLOCKD_READ_TOKEN=" + readToken, "BLOCKD_ADMIN_TOKEN=" + adminToken, "BLOCKD_DNS=" + zone, "BLOCKD_RECEIPTS=http://" + receipts}
	if err := browser(t, d, env, specs...).Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}
	log := d.WholeLog(t)
	for _, secret := range []string{token, readToken, adminToken} {
		if strings.Contains(log, secret) {
			t.Error("a token is in the log")
		}
	}
}

func TestMain(m *testing.M) { e2e.Main(m) }

// browser is Playwright with Debian's Chromium, headless. It runs what the *.spec.js files of its arguments say; they find
// their daemon in its environment. Runs are beside each other: each has daemons of its own.
func browser(t *testing.T, d *e2e.Daemon, env []string, specs ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testkit.Peer(t, "node"), append([]string{"node_modules/.bin/playwright", "test"}, specs...)...)
	cmd.Env = append(os.Environ(), "BLOCKD_TEST_CHROMIUM="+testkit.Peer(t, "chromium"), "BLOCKD_OUTPUT="+t.TempDir(), "BLOCKD_DIR="+d.Dir, "BLOCKD_SMTP="+d.SMTP, "BLOCKD_URL=http://"+d.HTTP)
	cmd.Env = append(cmd.Env, env...)
	if *e2e.Update {
		cmd.Env = append(cmd.Env, "BLOCKD_TEST_SCREENSHOTS="+filepath.Join(e2e.Root, "docs"))
	}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output() // line by line: a run that hangs says where
	return cmd
}

// installed skips a test where Playwright is not.
func installed(t *testing.T) {
	t.Helper()
	testkit.Peer(t, "node")
	testkit.Peer(t, "chromium")
	if _, err := os.Stat("node_modules"); err != nil {
		testkit.Missing(t, "Playwright is not installed (npm --prefix cmd/blockd/e2e/console ci)")
	}
}

// TestWebmail types docs/webmail.md.
func TestWebmail(t *testing.T) {
	testkit.Peer(t, "curl")
	const document = "docs/webmail.md"
	d := e2e.Configure(t, e2e.Setup{})
	text := string(testkit.Read(t, d.Path("config.toml")))
	block := e2e.Fenced(t, document, "toml")[0]
	text = strings.Replace(text, "[http]\nlisten = \""+d.HTTP+"\"\n", strings.ReplaceAll(block, "127.0.0.1:8025", d.HTTP), 1)
	if !strings.Contains(text, "max_entries_per_owner = 5") {
		t.Fatal("the configuration lacks what the page says")
	}
	testkit.Write(t, d.Path("config.toml"), text)
	bin := filepath.Join(d.Dir, "bin")
	testkit.Must(t, os.Mkdir(bin, 0o755))
	testkit.Must(t, os.Symlink(e2e.Program, filepath.Join(bin, "blockd")))
	d.Unready = true // to ask whether it is wants a token
	d.Start(t)
	for _, commands := range e2e.Consoles(t, document) {
		for i := range commands {
			commands[i].Text = strings.ReplaceAll(commands[i].Text, "127.0.0.1:8025", d.HTTP)
		}
		e2e.Perform(t, document, d.Dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, commands)
	}
}

// likeTheDocument takes out of a text what differs from one day to the next: times, references, identities, and the widths of columns.
func likeTheDocument(text []byte) []byte {
	for _, r := range []struct {
		from *regexp.Regexp
		to   string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\dZ?)?`), "TIME"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DAY"},
		{regexp.MustCompile(`\b[0-9a-f]{32,64}\b|\b[0-9a-f]{12}\b`), "IDENTITY"},
		{regexp.MustCompile(`\bcontent [0-9a-f]{16}\b`), "content IDENTITY"},
		{regexp.MustCompile(`\b[a-z0-9]*[0-9][a-z0-9]*\b`), ""}, // see below
		{regexp.MustCompile(` \d+s `), " AGE "},
		{regexp.MustCompile(` +`), " "},
		{regexp.MustCompile(`(?m) +$`), ""},
	} {
		if r.to == "" { // a reference has 16 digits of base 32; words that are as long have no digit
			text = r.from.ReplaceAllFunc(text, func(word []byte) []byte {
				if len(word) == 16 {
					return []byte("REFERENCE")
				}
				return word
			})
			continue
		}
		text = r.from.ReplaceAll(text, []byte(r.to))
	}
	return text
}

// TestWalk types docs/walk.md, from a refusal to a repair. With -update it takes the pictures as well.
func TestWalk(t *testing.T) {
	testkit.Peer(t, "curl")
	const document = "docs/walk.md"
	d := &e2e.Daemon{Dir: t.TempDir(), SMTP: e2e.FreeAddress(t), HTTP: e2e.FreeAddress(t)}
	receipts := e2e.FreeAddress(t)
	real := strings.NewReplacer("127.0.0.1:2525", d.SMTP, "127.0.0.1:8025", d.HTTP, "127.0.0.1:8027", receipts)
	shown := strings.NewReplacer(d.SMTP, "127.0.0.1:2525", d.HTTP, "127.0.0.1:8025", receipts, "127.0.0.1:8027",
		d.Path("config.toml"), "config.toml", d.Dir, "/home/you/walk")
	me := testkit.Value(user.Current())(t)
	tables := e2e.Fenced(t, document, "toml")
	testkit.Write(t, d.Path("config.toml"), "[auth]\nresolver = \""+nameserver.Serve(t, nil).Address+"\"\n[milter]\nlisten = \"\"\n[postfix]\npolicy_listen = \"\"\n"+real.Replace(tables[0]))
	testkit.Write(t, d.Path("bulk.txt"), "bulk.example\n")
	testkit.Must(t, os.Symlink(e2e.Program, d.Path("blockd")))
	d.Start(t)

	blocks := e2e.Consoles(t, document)
	reference, picture := "", map[int]string{1: "receipt", 6: "review"}
	for i, block := range blocks {
		for j := range block {
			text := real.Replace(block[j].Text)
			if reference != "" {
				text = strings.ReplaceAll(text, "kckrem94pj47caz7", reference)
			}
			block[j].Text = strings.Replace(text, "pkill -HUP -x blockd", "kill -HUP "+strconv.Itoa(d.Cmd.Process.Pid), 1)
		}
		e2e.PerformAs(t, document, d.Dir, []string{"PATH=" + d.Dir + ":" + os.Getenv("PATH")}, block, func(out []byte) []byte {
			if m := regexp.MustCompile(`\(ref ([a-z0-9]{16})\)`).FindSubmatch(out); m != nil {
				reference = string(m[1])
			}
			return likeTheDocument(bytes.ReplaceAll([]byte(shown.Replace(string(out))), []byte(me.Username+" (uid "+me.Uid+")"), []byte("root (uid 0)")))
		})
		if name := picture[i]; name != "" && *e2e.Update {
			takePicture(t, name, d, fmt.Sprintf("http://%s/r/%s", receipts, reference))
		}
	}
}

// takePicture has Chromium open the receipt, or the console, for the walk's document.
func takePicture(t *testing.T, name string, d *e2e.Daemon, receipt string) {
	t.Helper()
	if err := browser(t, d, []string{"BLOCKD_TEST_WALK=" + name, "BLOCKD_TEST_RECEIPT=" + receipt}, "walk").Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}
}

// shrink writes the pictures of a folder anew with a palette: a page has few colours, and a third of the octets then.
func shrink(t *testing.T, folder string) {
	t.Helper()
	names := testkit.Value(filepath.Glob(filepath.Join(folder, "*.png")))(t)
	for _, name := range names {
		f := testkit.Value(os.Open(name))(t)
		picture, err := png.Decode(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, is := picture.(*image.Paletted); is {
			continue
		}
		out, err := os.Create(name)
		testkit.Must(t, err)
		err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, paletted(picture))
		if closed := out.Close(); err == nil {
			err = closed
		}
		testkit.Must(t, err)
	}
}

// paletted is a picture in the 256 colours that it has most of. Others become the nearest of these.
func paletted(picture image.Image) *image.Paletted {
	bounds := picture.Bounds()
	seen := map[color.NRGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(seen), func(a, b color.NRGBA) int { return seen[b] - seen[a] })
	palette := make(color.Palette, 0, 256)
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	nearest := make(map[color.NRGBA]uint8, len(seen))
	for c := range seen {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)])
		}
	}
	return small
}
