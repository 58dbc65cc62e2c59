package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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
