package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// publisher is a folder in which blockd publishes into the folder of a web server.
type publisher struct {
	Dir, www, key string
	Web           *httptest.Server
	env           []string
}

// NewPublisher follows the beginning of docs/fleet.md, up to the first publication.
// more is in force from the second one on.
func NewPublisher(t *testing.T, more string) *publisher {
	t.Helper()
	p := &publisher{Dir: t.TempDir(), www: filepath.Join(t.TempDir(), "blockd")}
	testkit.Must(t, os.Mkdir(p.www, 0o755))
	testkit.Must(t, os.Symlink(Program, filepath.Join(p.Dir, "blockd")))
	p.env = []string{"PATH=" + p.Dir + ":" + os.Getenv("PATH")}
	Perform(t, "docs/fleet.md", p.Dir, p.env, Consoles(t, "docs/fleet.md")[0])
	public := Lines(t, filepath.Join(p.Dir, "publish.key.pub"))
	p.key = "minisign:" + public[1]
	document := strings.Replace(Fenced(t, "docs/fleet.md", "toml")[0], "/srv/www/blockd", p.www, 1)
	config := "[index]\npath = \"blockd.bdx\"\n[smtp]\nlisten = \"\"\n[http]\nlisten = \"127.0.0.1:0\"\n" + document
	testkit.Write(t, filepath.Join(p.Dir, "config.toml"), config)
	testkit.Write(t, filepath.Join(p.Dir, "spam.txt"), "bulk.example\nx@spam.example\n")
	p.Web = httptest.NewServer(http.StripPrefix("/blockd", http.FileServer(http.Dir(p.www))))
	t.Cleanup(p.Web.Close)
	Perform(t, "docs/fleet.md", p.Dir, p.env, Consoles(t, "docs/fleet.md")[1])
	testkit.Write(t, filepath.Join(p.Dir, "config.toml"), config+more)
	return p
}

// Run runs blockd in the publisher's folder.
func (p *publisher) Run(t *testing.T, args ...string) string {
	t.Helper()
	d := &Daemon{Dir: p.Dir}
	return d.Must(t, append(args[:1:1], append([]string{"-c", filepath.Join(p.Dir, "config.toml")}, args[1:]...)...)...)
}

// Node is a mail server of the fleet that is configured as the document says, but looks each second.
func (p *publisher) Node(t *testing.T, name, more string) *Daemon {
	t.Helper()
	document := Fenced(t, "docs/fleet.md", "toml")[1]
	document = strings.Replace(document, "http://lists.example/blockd", p.Web.URL+"/blockd", 1)
	document = strings.Replace(document, "minisign:RW…", p.key, 1)
	return Configure(t, Setup{Lists: document + "every = \"1s\"\nnode = \"" + name + "\"\n" + more})
}

func (d *Daemon) Blocks(sender string) bool {
	_, body := d.Get("/v1/check?sender=" + sender)
	return strings.Contains(body, `"verdict":"blocked"`)
}
