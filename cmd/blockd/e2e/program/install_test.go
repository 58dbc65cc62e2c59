package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestInstall installs as a packager does, aside: the units start the program that
// was installed, the configuration can be used, and a second time keeps it.
func TestInstall(t *testing.T) {
	dir, dest := t.TempDir(), t.TempDir()
	testkit.Must(t, e2e.CopyFile(filepath.Join(e2e.Root, "Makefile"), filepath.Join(dir, "Makefile")))
	for _, folder := range []string{"packaging", "docs/man"} {
		testkit.Must(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(e2e.Root, folder))))
	}
	install := func() string {
		t.Helper()
		cmd := exec.Command("make", "install", "DESTDIR="+dest, "PREFIX=/opt/blockd")
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	testkit.Has(t, install(), "./blockd is not there; run: make build\n")
	testkit.Must(t, e2e.CopyFile(e2e.Program, filepath.Join(dir, "blockd")))
	testkit.Must(t, os.Chmod(filepath.Join(dir, "blockd"), 0o755))
	testkit.Has(t, install(), "/etc/blockd/config.toml\n")

	const installed = "/opt/blockd/bin/blockd"
	units, err := filepath.Glob(dest + "/opt/blockd/lib/systemd/system/*")
	if err != nil || len(units) < 5 {
		t.Fatalf("installed units: %v, %v", units, err)
	}
	for _, unit := range units {
		text := testkit.Read(t, unit)
		for line := range strings.Lines(string(text)) {
			if name, command, _ := strings.Cut(line, "="); strings.HasPrefix(name, "ExecStart") && !strings.HasPrefix(command, installed+" ") {
				t.Errorf("%s: %swant %s", filepath.Base(unit), line, installed)
			}
		}
	}
	for _, page := range []string{"man8/blockd.8", "man5/blockd.toml.5"} {
		if _, err := os.Stat(dest + "/opt/blockd/share/man/" + page); err != nil {
			t.Error(err)
		}
	}
	config := dest + "/etc/blockd/config.toml"
	out, err := exec.Command(dest+installed, "config", "--check", "-c", config).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), ": good, 1 list, no warnings\n") {
		t.Errorf("blockd config --check: %v\n%s", err, out)
	}

	testkit.Write(t, config, "# mine\n")
	install()
	if text, err := os.ReadFile(config); err != nil || string(text) != "# mine\n" {
		t.Errorf("a second make install leaves a configuration %q, %v", text, err)
	}
}
