package console

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

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
			out = bytes.ReplaceAll([]byte(shown.Replace(string(out))), []byte("by "+me.Username), []byte("by root"))
			return likeTheDocument(bytes.ReplaceAll(out, []byte(" "+me.Username+" "), []byte(" root ")))
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
