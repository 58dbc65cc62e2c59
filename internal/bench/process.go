package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// clockTick is Linux' unit of times in /proc, USER_HZ, the same on all its machines
// that Go runs on.
const clockTick = 0.01 // seconds

// process is what /proc says of one.
type process struct {
	pid, parent int
	seconds     float64 // of CPU, with that of its children that have ended
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)).
func parseStat(text string) (process, error) {
	// The name is in brackets, and may hold any octets itself.
	open, end := strings.IndexByte(text, ' '), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, errors.New("no name in a line of /proc")
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 15 {
		return process{}, errors.New("a line of /proc is short")
	}
	var n [6]int
	for i, text := range []string{text[:open], fields[1], fields[11], fields[12], fields[13], fields[14]} {
		v, err := strconv.Atoi(text)
		if err != nil {
			return process{}, err
		}
		n[i] = v
	}
	return process{n[0], n[1], clockTick * float64(n[2]+n[3]+n[4]+n[5])}, nil
}

// cpu is the CPU time of the path's processes so far, in seconds. Those that end are
// counted by who waits for them, as every server here does.
func (p path) cpu() (float64, error) {
	if !p.filters {
		return 0, nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	all := map[int]process{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		one, err := parseStat(string(text))
		if err != nil {
			return 0, err
		}
		all[one.pid] = one
	}
	if _, ok := all[p.pid]; !ok {
		return 0, fmt.Errorf("%s is gone", p.name)
	}
	return cpuBelow(p.pid, all), nil
}

// cpuBelow sums the CPU time of a process and all below it.
func cpuBelow(pid int, all map[int]process) float64 {
	sum := 0.0
	for _, one := range all {
		for at, ok := one, true; ok; at, ok = all[at.parent] {
			if at.pid == pid {
				sum += one.seconds
				break
			}
		}
	}
	return sum
}

// anonymous is a process' own memory in KiB: what is mapped from files, as the index
// is, belongs to the system.
func anonymous(pid int) (kibibytes float64, err error) {
	_, err = fmt.Sscan(fieldOf(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"), &kibibytes)
	return kibibytes, err
}

// resident is a process' memory in KiB with the pages of files that it has in use.
func resident(pid int) (kibibytes float64, err error) {
	_, err = fmt.Sscan(fieldOf(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"), &kibibytes)
	return kibibytes, err
}

// addMemory adds to a table, in MiB, what a process has for itself and what of it is in memory with the files
// that it maps.
func addMemory(t *table, name string, pid, own, all int) error {
	for column, measure := range map[int]func(int) (float64, error){own: anonymous, all: resident} {
		kibibytes, err := measure(pid)
		if err != nil {
			return err
		}
		t.add(name, column, kibibytes/1024)
	}
	return nil
}

// whileHeld measures blockd's memory with many idle connections, which this program
// holds as another process by the word given, while load comes and goes. It returns
// how many were held.
func whileHeld(ctx context.Context, word string, blockd path, idle, rounds int, memory *table, load func() error) (held int, err error) {
	if n := descriptors(); n < uint64(idle+1000) {
		memory.missing(nameBlockd, fmt.Sprintf("%d descriptors a process are too few for %d sessions: ulimit -n", n, idle))
		return 0, nil
	}
	if err := load(); err != nil {
		return 0, err
	}
	before, err := anonymous(blockd.pid)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, word, blockd.address, strconv.Itoa(idle))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var fault strings.Builder
	cmd.Stderr = &fault
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fscanln(stdout, &held); err != nil {
		stdin.Close()
		return 0, errors.Join(fmt.Errorf("held sessions: %w: %s", err, fault.String()), cmd.Wait())
	}
	for range rounds {
		if err := load(); err != nil {
			return held, err
		}
		now, err := anonymous(blockd.pid)
		if err != nil {
			return held, err
		}
		memory.add(nameBlockd, memorySession, (now-before)/float64(held))
		memory.add(nameBlockd, memoryAll, now/1024)
	}
	stdin.Close()
	return held, cmd.Wait()
}

// descriptors is how many this process, and those it starts, may have.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max
}
