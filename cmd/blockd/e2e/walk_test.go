package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

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
	d := &daemon{dir: t.TempDir(), smtp: freeAddress(t), http: freeAddress(t)}
	receipts := freeAddress(t)
	real := strings.NewReplacer("127.0.0.1:2525", d.smtp, "127.0.0.1:8025", d.http, "127.0.0.1:8027", receipts)
	shown := strings.NewReplacer(d.smtp, "127.0.0.1:2525", d.http, "127.0.0.1:8025", receipts, "127.0.0.1:8027",
		d.path("config.toml"), "config.toml", d.dir, "/home/you/walk")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	tables := fenced(t, document, "toml")
	testkit.Write(t, d.path("config.toml"), "[auth]\nresolver = \""+nameserver.Serve(t, nil).Address+"\"\n[milter]\nlisten = \"\"\n[postfix]\npolicy_listen = \"\"\n"+real.Replace(tables[0]))
	testkit.Write(t, d.path("bulk.txt"), "bulk.example\n")
	if err := os.Symlink(program, d.path("blockd")); err != nil {
		t.Fatal(err)
	}
	d.start(t)

	blocks := consoles(t, document)
	reference, picture := "", map[int]string{1: "receipt", 6: "review"}
	for i, block := range blocks {
		for j := range block {
			text := real.Replace(block[j].text)
			if reference != "" {
				text = strings.ReplaceAll(text, "kckrem94pj47caz7", reference)
			}
			block[j].text = strings.Replace(text, "pkill -HUP -x blockd", "kill -HUP "+strconv.Itoa(d.cmd.Process.Pid), 1)
		}
		performAs(t, document, d.dir, []string{"PATH=" + d.dir + ":" + os.Getenv("PATH")}, block, func(out []byte) []byte {
			if m := regexp.MustCompile(`\(ref ([a-z0-9]{16})\)`).FindSubmatch(out); m != nil {
				reference = string(m[1])
			}
			out = bytes.ReplaceAll([]byte(shown.Replace(string(out))), []byte("by "+me.Username), []byte("by root"))
			return likeTheDocument(bytes.ReplaceAll(out, []byte(" "+me.Username+" "), []byte(" root ")))
		})
		if name := picture[i]; name != "" && *update {
			takePicture(t, name, d, fmt.Sprintf("http://%s/r/%s", receipts, reference))
		}
	}
}

// takePicture has Chromium open the receipt, or the console, for the walk's document.
func takePicture(t *testing.T, name string, d *daemon, receipt string) {
	t.Helper()
	cmd := exec.Command(testkit.Peer(t, "npm"), "exec", "--", "playwright", "test", "walk")
	cmd.Dir = "console"
	cmd.Env = append(os.Environ(), "BLOCKD_TEST_CHROMIUM="+testkit.Peer(t, "chromium"), "BLOCKD_OUTPUT="+t.TempDir(), "BLOCKD_DIR="+d.dir, "BLOCKD_URL=http://"+d.http,
		"BLOCKD_TEST_WALK="+name, "BLOCKD_TEST_RECEIPT="+receipt, "BLOCKD_TEST_SCREENSHOTS="+filepath.Join(root, "docs"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("playwright: %v\n%s", err, out)
	}
}
