package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// TestWebmail types docs/webmail.md.
func TestWebmail(t *testing.T) {
	testkit.Peer(t, "curl")
	const document = "docs/webmail.md"
	d := configure(t, setup{})
	text := string(testkit.Read(t, d.path("config.toml")))
	block := fenced(t, document, "toml")[0]
	text = strings.Replace(text, "[http]\nlisten = \""+d.http+"\"\n", strings.ReplaceAll(block, "127.0.0.1:8025", d.http), 1)
	if !strings.Contains(text, "max_entries_per_owner = 5") {
		t.Fatal("the configuration lacks what the page says")
	}
	testkit.Write(t, d.path("config.toml"), text)
	bin := filepath.Join(d.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, "blockd")); err != nil {
		t.Fatal(err)
	}
	d.unready = true // to ask whether it is wants a token
	d.start(t)
	for _, commands := range consoles(t, document) {
		for i := range commands {
			commands[i].text = strings.ReplaceAll(commands[i].text, "127.0.0.1:8025", d.http)
		}
		perform(t, document, d.dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, commands)
	}
}
