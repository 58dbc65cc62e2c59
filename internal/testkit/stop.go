package testkit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Stop stops a process by SIGSTOP, and waits until each of its threads stands still: the signal alone is on its way when kill
// returns, and a server may answer one more question.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	threads := fmt.Sprintf("/proc/%d/task", pid)
	if _, err := os.Stat(threads); err != nil {
		return // this system does not tell
	}
	Eventually(t, "a process to stop", func() bool {
		all, err := os.ReadDir(threads)
		for _, thread := range all {
			stat, _ := os.ReadFile(filepath.Join(threads, thread.Name(), "stat"))
			_, state, ok := bytes.Cut(stat, []byte(") ")) // behind the name of the program
			if ok && !bytes.HasPrefix(state, []byte("T")) {
				return false
			}
		}
		return err == nil
	})
}
