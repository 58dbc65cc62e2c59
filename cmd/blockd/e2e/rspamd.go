package e2e

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// RunRspamd starts a real rspamd with options and modules, and returns where it scans.
func RunRspamd(t *testing.T, options, modules string) (scanner string) {
	t.Helper()
	rspamd := testkit.Peer(t, "rspamd")
	dir, err := os.MkdirTemp("", "blockd-rspamd-") // its user has to get there
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o777))
	scanner = FreeAddress(t)
	testkit.Write(t, filepath.Join(dir, "rspamd.conf"), strings.NewReplacer("FOLDER", dir, "SCANNER", scanner, "OPTIONS", options).Replace(`
lua = "$RULESDIR/rspamd.lua"
options {
  filters = "";
  pidfile = "FOLDER/pid";
  url_tld = "$SHAREDIR/effective_tld_names.dat";
  cache_file = "FOLDER/symbols.cache";
  control_socket = "FOLDER/control mode=0600";OPTIONS
}
logging { type = "console"; level = "info"; }
worker "normal" { bind_socket = "SCANNER"; count = 1; }
metric { name = "default"; actions { reject = 15; } }
`)+modules)
	args := []string{"-f", "-c", filepath.Join(dir, "rspamd.conf"), "--var=DBDIR=" + dir, "--var=RUNDIR=" + dir, "--var=LOGDIR=" + dir}
	if _, err := user.Lookup("_rspamd"); err == nil && os.Geteuid() == 0 {
		args = append(args, "-u", "_rspamd", "-g", "_rspamd")
	} else if os.Geteuid() == 0 {
		args = append(args, "-i")
	}
	StartServer(t, exec.Command(rspamd, args...), scanner)
	return scanner
}
