package machine

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

const (
	v2   = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1   = "35 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 25 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	dock = "35 25 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestMemoryIsTheTightestBound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Limit
	}{
		{"nothing is known", nil, Limit{math.MaxInt64, ""}},
		{"the machine's", map[string]string{"proc/meminfo": "MemFree: 1 kB\nMemTotal:     1024 kB\n"}, Limit{1 << 20, "/proc/meminfo"}},
		{"no bound in the group", map[string]string{
			"proc/meminfo": "MemTotal: 1024 kB\n", "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.high": "max\n",
		}, Limit{1 << 20, "/proc/meminfo"}},
		{"memory.max", map[string]string{
			"proc/meminfo": "MemTotal: 1024 kB\n", "proc/self/cgroup": "0::/system.slice/blockd.service\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/system.slice/blockd.service/memory.max": "402653\n",
		}, Limit{402653, "/sys/fs/cgroup/system.slice/blockd.service/memory.max"}},
		{"memory.high is lower", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/memory.high": "4000\n",
		}, Limit{4000, "/sys/fs/cgroup/a/memory.high"}},
		{"a parent's is lower", map[string]string{
			"proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/b/c/memory.max": "5000\n", "sys/fs/cgroup/a/memory.max": "3000\n",
		}, Limit{3000, "/sys/fs/cgroup/a/memory.max"}},
		{"a container sees its group at the mount point", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "7000\n",
		}, Limit{7000, "/sys/fs/cgroup/memory.max"}},
		{"version 1", map[string]string{
			"proc/self/cgroup": "4:memory:/x/y\n1:cpu:/z\n0::/\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":   "6000\n",
			"sys/fs/cgroup/cpu/z/memory.limit_in_bytes":      "1\n",
		}, Limit{6000, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"}},
		{"version 1 in a container", map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc\n", "proc/self/mountinfo": dock, "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n",
		}, Limit{8000, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"a group that is not to be seen", map[string]string{
			"proc/self/cgroup": "0::/../../else\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "8000\n",
		}, Limit{8000, "/sys/fs/cgroup/memory.max"}},
		{"files that say nothing", map[string]string{
			"proc/meminfo": "MemTotal: much\n", "proc/self/cgroup": "nonsense\n0:\n0::/a\n", "proc/self/mountinfo": "x - cgroup2\n" + v2,
			"sys/fs/cgroup/a/memory.max": "\n", "sys/fs/cgroup/a/memory.high": "-1\n",
		}, Limit{math.MaxInt64, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Equal(t, "memory", memory(testRoot(t, tt.files)), tt.want)
		})
	}
}

// testRoot is a system with these files.
func testRoot(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		testkit.Write(t, filepath.Join(root, name), text)
	}
	return root
}

func TestMemoryOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("no /proc/meminfo: this system does not say how much memory it has")
	}
	if got := Memory(); got.Octets < 16<<20 || got.Octets == math.MaxInt64 || got.From == "" {
		t.Errorf("Memory() = %+v", got)
	}
}

func TestLeftIsWhatCannotBeDropped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Limit
	}{
		{"nothing is known", nil, Limit{math.MaxInt64, ""}},
		{"the machine's", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"}, Limit{1 << 20, "/proc/meminfo"}},
		{"what files take can be dropped", map[string]string{
			"proc/meminfo": "MemAvailable: 1024 kB\n", "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": "9000\n", "sys/fs/cgroup/a/memory.current": "8000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 3000\ninactive_file 4000\nactive_file 1000\n",
		}, Limit{6000, "/sys/fs/cgroup/a/memory.max"}},
		{"more is used than allowed", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/memory.high": "9000\n", "sys/fs/cgroup/a/memory.current": "9500\n",
		}, Limit{1, "/sys/fs/cgroup/a/memory.high"}},
		{"version 1", map[string]string{
			"proc/self/cgroup": "4:memory:/x\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9000\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "8000\n",
			"sys/fs/cgroup/memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 2000\n",
		}, Limit{3000, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := left(testRoot(t, tt.files)); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
