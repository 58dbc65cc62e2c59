// Package machine tells how much memory this process may use: that of the machine,
// or less where a control group bounds it (cgroups(7), both versions).
package machine

import (
	"bufio"
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
	limit.meet(total(root), "/proc/meminfo")
	groups := groupsOf(root)
	for _, m := range mounts(root) {
		group, ok := groups[m.version]
		if !ok {
			continue
		}
		for folder := m.folder(root, group); ; folder = path.Dir(folder) {
			for _, name := range m.version.files() {
				file := path.Join(folder, name)
				limit.meet(bound(root, file), file)
			}
			if len(folder) <= len(m.point) {
				break
			}
		}
	}
	return limit
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

// total is the machine's memory, 0 where it is not told.
func total(root string) int64 {
	for _, line := range linesOf(root, "/proc/meminfo") {
		if kib, ok := strings.CutPrefix(line, "MemTotal:"); ok {
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
