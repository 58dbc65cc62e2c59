package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/cmd/blockd/internal/upgrade"
)

// supervised reports whether an init system knows by our word which process is the main one. Any other one, be it
// runit, a container's or a shell, watches the process that it has started: that one stays as its keeper, see keep.
func supervised() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// keep waits for the end of the processes that have taken over, one after the other, and hands signals on to them, the
// end of ctx as SIGTERM. stopped are those that were told already. The error is how the last one ended, unless that
// was well.
func keep(ctx context.Context, signals <-chan os.Signal, to *upgrade.Successor, stopped stopped) error {
	ended := make(chan error, 1)
	go func() { ended <- reap(to) }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			tellChildren(s)
		case <-ctx.Done():
			return stopAll(ended, stopped)
		}
	}
}

// stopEvery is how often stopAll looks for processes that were not told to stop.
const stopEvery = 100 * time.Millisecond

// stopAll stops all processes that have taken over, and waits for their end. One may have begun while it is told, or
// have lost the one that was to hand the word on to it.
func stopAll(ended <-chan error, stopped stopped) error {
	tick := time.Tick(stopEvery)
	for {
		stopped.tell()
		select {
		case err := <-ended:
			return err
		case <-tick:
		}
	}
}

// stopped are the processes that were sent SIGTERM. A second one would cut their sessions off.
type stopped map[int]bool

// tell sends SIGTERM to all processes below this one that were not sent it.
func (s stopped) tell() {
	var below func(pid int)
	below = func(pid int) {
		for _, child := range childrenOf(pid) {
			below(child) // before its end makes them the children of another
			if !s[child] {
				s[child] = true
				unix.Kill(child, unix.SIGTERM)
			}
		}
	}
	below(os.Getpid())
}

// reap waits until no child is left.
func reap(to *upgrade.Successor) error {
	last := to.Wait()
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return last
		case status.Exited() && status.ExitStatus() == 0:
			last = nil
		case status.Exited():
			last = fmt.Errorf("the process that had taken over has ended with %d", status.ExitStatus())
		case status.Signaled():
			last = fmt.Errorf("the process that had taken over has ended: signal %v", status.Signal())
		}
	}
}

// tellChildren sends a signal to all children.
func tellChildren(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	for _, pid := range childrenOf(os.Getpid()) {
		unix.Kill(pid, number)
	}
}

// runs reports whether a process has not ended. Nobody has waited yet for the end of one that was adopted.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	return err == nil && !strings.HasPrefix(after, "Z")
}

// childrenOf returns the children of a process; none if it has ended.
func childrenOf(pid int) (all []int) {
	folder := fmt.Sprintf("/proc/%d/task/", pid)
	tasks, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		text, err := os.ReadFile(folder + task.Name() + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}
