package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"blockd/internal/upgrade"
)

// supervised reports whether an init system knows by our word which process is the main one. Any other one, be it runit, a
// container's or a shell, watches the process that it has started: that one stays as its keeper, see keep.
func supervised() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// adopt makes this process the parent of those that its successors start, when these end before them.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// keep waits for the end of the processes that have taken over, one after the other, and hands signals on to them, the end
// of ctx as SIGTERM. The error is how the last one ended, unless that was well.
func keep(ctx context.Context, signals <-chan os.Signal, to *upgrade.Successor) error {
	told := ctx.Err() != nil // while our own sessions ended
	ended := make(chan error, 1)
	go func() { ended <- reap(to) }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			tellChildren(s)
		case <-ctx.Done():
			if !told {
				told = true
				tellChildren(syscall.SIGTERM)
			}
			return <-ended
		}
	}
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
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				unix.Kill(pid, number)
			}
		}
	}
}
