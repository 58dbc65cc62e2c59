// Package machine tells how much memory this process may use: that of the machine,
// or less where a control group bounds it (cgroups(7), both versions).
package machine

import (
	"bufio"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limit is the tightest bound on this process's memory.
type Limit struct {
	Octets int64  // math.MaxInt64 where nothing is known
	From   string // the file that says so, "" where nothing is known
}

// Memory reads the bounds that hold now: the machine's memory, and memory.max and
// memory.high (in version 1 memory.limit_in_bytes) of the process's control group and
// of all its parents. What cannot be read bounds nothing.
func Memory() Limit { return memory("/") }

// memory is Memory of the system whose files are below root.
func memory(root string) Limit {
	limit := Limit{Octets: math.MaxInt64}
	limit.meet(info(root, "MemTotal:"), "/proc/meminfo")
	for file := range bounds(root) {
		limit.meet(bound(root, file), file)
	}
	return limit
}

// Left reads how much more memory this process and those that it starts may take now: what the machine has
// available, and what the control groups' bounds leave of what is in use and cannot be dropped. What cannot be read
// bounds nothing. It changes with every moment.
func Left() Limit { return left("/") }

func left(root string) Limit {
	limit := Limit{Octets: math.MaxInt64}
	limit.meet(info(root, "MemAvailable:"), "/proc/meminfo")
	for file, v := range bounds(root) {
		if most := bound(root, file); most > 0 {
			limit.meet(max(most-v.used(root, path.Dir(file)), 1), file)
		}
	}
	return limit
}

// used is the memory of a group without what the system can drop: files that are in memory too.
func (v version) used(root, folder string) int64 {
	current, prefix := "memory.current", ""
	if v == 1 {
		current, prefix = "memory.usage_in_bytes", "total_"
	}
	n := bound(root, path.Join(folder, current))
	for _, line := range linesOf(root, path.Join(folder, "memory.stat")) {
		name, value, _ := strings.Cut(line, " ")
		if name == prefix+"active_file" || name == prefix+"inactive_file" {
			octets, _ := strconv.ParseInt(value, 10, 64)
			n -= max(octets, 0)
		}
	}
	return max(n, 0)
}

// Kills is how many processes the system has ended since its start because there was no memory left; 0 where it does not
// tell.
func Kills() int64 {
	for _, line := range linesOf("/", "/proc/vmstat") {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			kills, _ := strconv.ParseInt(n, 10, 64)
			return kills
		}
	}
	return 0
}

// bounds yields the files that may bound the memory of this process's control group and of its parents.
func bounds(root string) iter.Seq2[string, version] {
	return func(yield func(string, version) bool) {
		groups := groupsOf(root)
		for _, m := range mounts(root) {
			group, ok := groups[m.version]
			if !ok {
				continue
			}
			for folder := m.folder(root, group); ; folder = path.Dir(folder) {
				for _, name := range m.version.files() {
					if !yield(path.Join(folder, name), m.version) {
						return
					}
				}
				if len(folder) <= len(m.point) {
					break
				}
			}
		}
	}
}

func (l *Limit) meet(octets int64, from string) {
	if octets > 0 && octets < l.Octets {
		*l = Limit{octets, from}
	}
}

// version of control groups: 2, or the memory controller of version 1.
type version int

func (v version) files() []string {
	if v == 1 {
		return []string{"memory.limit_in_bytes"}
	}
	return []string{"memory.max", "memory.high"}
}

// groupsOf says in which group this process is, by version.
func groupsOf(root string) map[version]string {
	groups := map[version]string{}
	for _, line := range linesOf(root, "/proc/self/cgroup") {
		// hierarchy:controllers:group, cgroups(7); version 2 is hierarchy 0.
		switch f := strings.SplitN(line, ":", 3); {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "":
			groups[2] = f[2]
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			groups[1] = f[2]
		}
	}
	return groups
}

// mount is where control groups are seen.
type mount struct {
	version
	top   string // the group that is at point
	point string
}

// mounts reads proc(5)'s mountinfo: of the fields 4 is the root, 5 the place; after
// "-" come the type and the options of the file system.
func mounts(root string) (all []mount) {
	for _, line := range linesOf(root, "/proc/self/mountinfo") {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		switch {
		case len(f) < 5 || len(kind) < 3:
		case kind[0] == "cgroup2":
			all = append(all, mount{2, f[3], f[4]})
		case kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "memory"):
			all = append(all, mount{1, f[3], f[4]})
		}
	}
	return all
}

// folder is where the group's files are. A container may see its own group at the
// mount point, while proc names it by the host's path: then the point is the group.
func (m mount) folder(root, group string) string {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.top, "/"))
	folder := path.Join(m.point, path.Clean("/"+below))
	if _, err := os.Stat(filepath.Join(root, folder)); !ok || err != nil {
		return path.Clean(m.point)
	}
	return folder
}

// bound is what a file of a control group allows, 0 for no bound.
func bound(root, file string) int64 {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return n
}

// info is a line of /proc/meminfo in octets, 0 where it is not told.
func info(root, name string) int64 {
	for _, line := range linesOf(root, "/proc/meminfo") {
		if kib, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kib, "kB")), 10, 53)
			return n << 10
		}
	}
	return 0
}

func linesOf(root, file string) (lines []string) {
	f, err := os.Open(filepath.Join(root, file))
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}
