package main

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
	"blockd/lists"
)

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
