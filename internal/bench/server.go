package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// path is a way from the client to the sink, or to a refusal.
type path struct {
	name    string
	address string
	pid     int  // of its first process; the CPU is that of all below it too
	filters bool // false: the sink itself
}

// servers are those that are running.
type servers struct{ ends []func() }

// stop ends them, the last first.
func (s *servers) stop() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
}

// launch runs a server until stop, and waits until it listens.
func (s *servers) launch(ctx context.Context, address, log string, args ...string) (pid int, err error) {
	return s.launchUntil(ctx, dials(address), log, args...)
}

// launchUntil runs a server until stop, and waits until it is ready.
func (s *servers) launchUntil(ctx context.Context, ready func() bool, log string, args ...string) (pid int, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	if log != "" {
		f, err := os.Create(log)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		cmd.Stderr = f
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is of no interest when it was to end, and else it stops answering
		close(ended)
	}()
	s.ends = append(s.ends, func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	if err := becomes(ctx, ready, ended); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return cmd.Process.Pid, nil
}

// startOwn starts a server of this program.
func (s *servers) startOwn(ctx context.Context, name, word string, more ...string) (path, error) {
	self, err := os.Executable()
	if err != nil {
		return path{}, err
	}
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	pid, err := s.launch(ctx, address, "", append([]string{self, word, address}, more...)...)
	return path{name: name, address: address, pid: pid, filters: true}, err
}

// until polls.
func until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %v for %s", limit, what))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var listenKey = regexp.MustCompile(`^(\w*listen) *=`)

// otherDoors is configuration that shuts all of blockd's doors but those of a section,
// which of them there may be.
func otherDoors(ctx context.Context, blockd, but string) ([]byte, error) {
	defaults, err := exec.CommandContext(ctx, blockd, "config", "--defaults").Output()
	if err != nil {
		return nil, fmt.Errorf("blockd config --defaults: %w", err)
	}
	var shut []byte
	section, said := "", ""
	for line := range strings.Lines(string(defaults)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key := listenKey.FindStringSubmatch(line)
		if key == nil || section == but || strings.HasPrefix(section, "[[") {
			continue
		}
		if section != said {
			shut = append(shut, section+"\n"...)
			said = section
		}
		shut = append(shut, key[1]+" = \"\"\n"...)
	}
	return shut, nil
}
