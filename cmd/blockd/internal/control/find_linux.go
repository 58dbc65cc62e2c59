package control

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sockets are the Unix sockets at which a `blockd serve` of the configuration at path listens, for when the file does not
// say where: it is faulty, or it is not the one that the daemon has taken up. Nothing is found of a daemon whose
// processes this user may not look at.
func sockets(path string) (found []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err == nil && servedBy("/proc/"+p.Name()) == path {
			found = append(found, listening("/proc/"+p.Name())...)
		}
	}
	return found
}

// servedBy is the configuration that a process serves by; "" where it is no `blockd serve`.
func servedBy(process string) string {
	line, err := os.ReadFile(process + "/cmdline")
	if err != nil {
		return ""
	}
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	if !slices.Contains(args[1:], "serve") {
		return ""
	}
	path := "config.toml"
	for i, a := range args {
		switch name, value, given := strings.Cut(a, "="); {
		case given && (name == "--config" || name == "-c"):
			path = value
		case (a == "-c" || a == "--config") && i+1 < len(args):
			path = args[i+1]
		case strings.HasPrefix(a, "-c") && !strings.HasPrefix(a, "--") && len(a) > 2 && !given:
			path = a[2:]
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	dir, err := os.Readlink(process + "/cwd")
	if err != nil {
		return ""
	}
	return filepath.Join(dir, path)
}

// listening are the paths of the Unix sockets at which a process listens.
func listening(process string) (paths []string) {
	table, err := os.ReadFile(process + "/net/unix")
	if err != nil {
		return nil
	}
	at := map[string]string{} // by the words of a descriptor's link
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path; 00010000 is a socket that listens
		if f := strings.Fields(line); len(f) >= 8 && f[3] == "00010000" && strings.HasPrefix(f[7], "/") {
			at[fmt.Sprintf("socket:[%s]", f[6])] = strings.Join(f[7:], " ")
		}
	}
	open, err := os.ReadDir(process + "/fd")
	if err != nil {
		return nil
	}
	for _, fd := range open {
		if link, err := os.Readlink(process + "/fd/" + fd.Name()); err == nil && at[link] != "" {
			paths = append(paths, at[link])
		}
	}
	return paths
}
