package testkit

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime returns the processor time that this process has used.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ReportCPU starts to measure processor time. The function that it returns reports it by operation.
func ReportCPU(b *testing.B) (report func()) {
	begin := CPUTime(b)
	return func() { b.ReportMetric(float64(CPUTime(b)-begin)/float64(b.N), "cpu-ns/op") }
}
