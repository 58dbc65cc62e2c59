// Package testkit is what tests of several packages share.
package testkit

import (
	"os"
	"os/exec"
	"testing"
)

const aloneKey = "BLOCKD_TEST_ALONE"

// Alone runs the calling test again in a process of its own, and reports whether this is that
// process: the caller returns where it is not. A test that measures the memory of the process
// needs it, for the garbage and the goroutines of the tests before it come and go while it
// measures; and so does one that limits the process, in whose own log of what a test opens
// nothing could be written either.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneKey) == t.Name() {
		return true
	}
	// The last of a flag that is given twice counts. The files of the parent stay its own.
	args := append(os.Args[1:len(os.Args):len(os.Args)], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1",
		"-test.testlogfile=", "-test.coverprofile=", "-test.cpuprofile=", "-test.memprofile=")
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), aloneKey+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Errorf("in a process of its own: %v", err)
	}
	return false
}
