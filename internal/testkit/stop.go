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
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
	threads := fmt.Sprintf("/proc/%d/task", pid)
	Eventually(t, "a process to stop", func() bool {
		all, _ := os.ReadDir(threads) // none: it has ended, or this system does not tell
		for _, thread := range all {
			stat, _ := os.ReadFile(filepath.Join(threads, thread.Name(), "stat"))
			_, state, ok := bytes.Cut(stat, []byte(") ")) // behind the name of the program
			if ok && !bytes.ContainsAny(state[:1], "TZX") {
				return false
			}
		}
		return true
	})
}
