package program

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestServesWithinAControlGroup starts a daemon with many entries in a control group
// that has little memory, has it build them once more while it serves, and asks it. Who
// takes what the machine has instead is killed by the kernel. With -soak it is ten
// million entries in 384 MiB.
func TestServesWithinAControlGroup(t *testing.T) {
	entries, limit, share := 1_000_000, 96<<20, "24.0 MiB"
	if *e2e.Soak {
		entries, limit, share = 10_000_000, 384<<20, "96.0 MiB"
	}
	group := controlGroup(t, limit)
	plain := filepath.Join(t.TempDir(), "blockd")
	build := exec.Command("go", "build", "-o", plain, "./cmd/blockd")
	build.Dir = e2e.Root
	e2e.Ran(t, build)

	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"many\"\npath = \"many.txt\"\nformat = \"plain\"\n"})
	var list strings.Builder
	for i := range entries {
		fmt.Fprintf(&list, "sender.number.%09d@host%d.example\n", i, i%1000)
	}
	testkit.Write(t, d.Path("many.txt"), list.String())
	d.Run(t, exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$1" serve -c "$2"`, group, plain, d.Path("config.toml")))

	// Renamed with its first line gone, so that the whole list is read and built again.
	e2e.Replace(t, d.Path("many.txt"), strings.SplitN(list.String(), "\n", 2)[1])
	d.Reload(t)
	gone, kept := "sender.number.000000000@host0.example", fmt.Sprintf("sender.number.%09d@host%d.example", entries-1, (entries-1)%1000)
	d.Says(t, "/v1/check?sender="+gone, `"verdict":"clear"`)
	d.Logged(t, 2, "how=built") // the build after it
	if _, body := d.Get("/v1/check?sender=" + kept); !strings.Contains(body, `"verdict":"blocked"`) {
		t.Errorf("%s: %s", kept, body)
	}
	t.Logf("%d entries within %d MiB: records in %s; most in use %s", entries, limit>>20, share, used(group))
}

// controlGroup makes a control group of so much memory, gone when the test ends.
func controlGroup(t *testing.T, limit int) string {
	t.Helper()
	name := fmt.Sprintf("blockd-test-%d", rand.Uint32())
	for _, v := range []struct{ folder, file string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		group := filepath.Join(v.folder, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(group) })
		// Where no memory controller is there is no such file, and none is made.
		if bound, err := os.OpenFile(filepath.Join(group, v.file), os.O_WRONLY, 0); err == nil {
			_, err = fmt.Fprint(bound, limit)
			if bound.Close(); err == nil {
				return group
			}
		}
		os.Remove(group)
	}
	t.Skip("no control group with a bound on memory can be made here: that needs root and the memory controller")
	return ""
}

// used is the most memory that the group has had, what the system caches included.
func used(group string) string {
	for _, name := range []string{"memory.peak", "memory.max_usage_in_bytes"} {
		if text, err := os.ReadFile(filepath.Join(group, name)); err == nil {
			return strings.TrimSpace(string(text)) + " octets"
		}
	}
	return "not told"
}
