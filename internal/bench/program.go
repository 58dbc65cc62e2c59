package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// cost is what a program took.
type cost struct {
	seconds   float64
	cpu       float64 // seconds of user and kernel time
	megabytes float64 // resident, at its peak
}

// program is one call of a command. Its exit codes 0 and 1 are both answers: 1
// says that nothing was found.
type program struct {
	args  []string
	stdin string // file, "" = none
}

// run discards what the program prints, as the system does it: no reader takes
// time from it.
func (p program) run(ctx context.Context) (cost, error) { return p.write(ctx, nil) }

func (p program) write(ctx context.Context, stdout io.Writer) (c cost, err error) {
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	if p.stdin != "" {
		f, err := os.Open(p.stdin)
		if err != nil {
			return c, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	begun := time.Now()
	err = cmd.Run()
	c.seconds = time.Since(begun).Seconds()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && stderr.Len() == 0 {
		err = nil
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w: %s", strings.Join(p.args, " "), err, stderr.String())
	}
	c.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.megabytes = float64(usage.Maxrss) / 1e3 // Linux counts in KiB, near enough
	}
	return c, nil
}

// count is the number of lines that p prints and want accepts.
func (p program) count(ctx context.Context, want func(line string) bool) (n int, err error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		s := bufio.NewScanner(r)
		for s.Scan() {
			if want(s.Text()) {
				n++
			}
		}
		r.CloseWithError(s.Err())
		done <- s.Err()
	}()
	_, err = p.write(ctx, w)
	w.Close()
	return n, errors.Join(err, <-done)
}
