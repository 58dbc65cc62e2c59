package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// machine is what the figures were measured on.
type machine struct {
	cpu, kernel, compiler string
	cores                 int
	memory                string
	load                  string // the three averages when the run began
}

func describeMachine() machine {
	m := machine{cpu: runtime.GOARCH, kernel: strings.TrimSpace(contents("/proc/sys/kernel/osrelease")),
		compiler: runtime.Version(), cores: runtime.NumCPU(), load: loadAverage()}
	if name := fieldOf("/proc/cpuinfo", "model name"); name != "" {
		m.cpu = name
	}
	var kilobytes int
	if _, err := fmt.Sscan(fieldOf("/proc/meminfo", "MemTotal"), &kilobytes); err == nil {
		m.memory = fmt.Sprintf("%.0f GiB", float64(kilobytes)/(1<<20))
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, Linux %s, %s", m.cpu, m.cores, m.memory, m.kernel, m.compiler)
}

func loadAverage() string {
	fields := strings.Fields(contents("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// fieldOf reads a "name : value" line of a file of /proc; "" where there is none.
func fieldOf(path, name string) string {
	for line := range strings.Lines(contents(path)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// contents of a file, "" where it cannot be read: other systems have no /proc,
// and the table then says less.
func contents(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// searchSbin lets Postfix' programs be found by who is not root.
func searchSbin() error {
	return os.Setenv("PATH", strings.Join([]string{os.Getenv("PATH"), "/usr/sbin", "/sbin"}, string(filepath.ListSeparator)))
}
