package migration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// tool is a program of a configuration's owner that says what the configuration means, or what becomes of mail. The
// configuration may come from anybody, so all runs are bounded in memory and output, and those that end by themselves
// in time.
type tool struct {
	name, debian string // the program, and the package of Debian that has it
	patience     time.Duration
}

var (
	postconf   = tool{"postconf", "postfix", 30 * time.Second}
	postmap    = tool{"postmap", "postfix", 5 * time.Minute}
	rspamadm   = tool{"rspamadm", "rspamd", 30 * time.Second}
	rspamdTool = tool{"rspamd", "rspamd", 0}
)

const (
	// maxMemory bounds the address space of a tool, in octets. Parameters that name one another ten times over are a
	// gigabyte before the first octet of output.
	maxMemory = 1 << 30

	// maxOutput bounds what a tool prints, in octets: postmap prints whole tables.
	maxOutput = maxTable

	// grace is how long a tool has to end that is told to, and those that it has started.
	grace = time.Second
)

// runner runs a tool in a folder with an input, and returns what it prints and what it complains of, a line each.
// Tests have a second one, which says what it is told to.
type runner func(ctx context.Context, dir, stdin string, args ...string) (out string, complaints []string, err error)

// child is a tool that runs. It leads a group of processes, all of which have ended behind wait.
type child struct {
	*exec.Cmd
	out, complaints limited
}

// start starts the tool, which ctx ends.
func (t tool) start(ctx context.Context, dir, stdin string, args ...string) (*child, error) {
	path, err := exec.LookPath(t.name)
	for _, sbin := range [...]string{"/usr/sbin", "/sbin"} { // in the PATH of root alone
		if err != nil {
			path, err = exec.LookPath(filepath.Join(sbin, t.name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which says what the configuration means, is not installed: nothing can be asked; install the package %s of Debian", t.name, t.debian)
	}
	c := &child{Cmd: exec.CommandContext(ctx, path, args...), out: limited{most: maxOutput}, complaints: limited{most: maxConfig, forgets: t.patience == 0}}
	c.Args[0] = t.name // as it calls itself in what it complains of
	c.Stdin, c.Stdout, c.Stderr, c.Dir = strings.NewReader(stdin), &c.out, &c.complaints, dir
	c.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	c.SysProcAttr, c.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, grace
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	if err := c.Start(); err != nil {
		return nil, err
	}
	boundMemory(c.Process.Pid)
	return c, nil
}

// wait waits for the end of the child, and ends what is left of its group.
func (c *child) wait() error {
	err := c.Cmd.Wait()
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	return err
}

// complained is what the child complains of, a line each.
func (c *child) complained() []string {
	return strings.Split(strings.TrimSpace(c.complaints.text.String()), "\n")
}

// runError is why a run has failed: in the tool's own words, and as package exec has it.
type runError struct {
	text  string
	cause error
}

func (e *runError) Error() string { return e.text }
func (e *runError) Unwrap() error { return e.cause }

func (t tool) run(ctx context.Context, dir, stdin string, args ...string) (string, []string, error) {
	within, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	c, err := t.start(within, dir, stdin, args...)
	if err != nil {
		return "", nil, err
	}
	err = c.wait()
	lines := c.complained()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case within.Err() != nil:
		err = fmt.Errorf("%s has not ended within %s", t.name, t.patience)
	case c.out.full || c.complaints.full:
		err = fmt.Errorf("%s: %w: it prints more than %d MiB", t.name, ErrTooBig, maxOutput>>20)
	case err != nil:
		err = &runError{t.name + ": " + original.Shown(strings.TrimPrefix(failure(lines, err), t.name+": ")), err}
	}
	return c.out.text.String(), lines, err
}

// foreignLine is how postconf begins to quote a line of a file that main.cf names, such as the file of an ldap table.
// main.cf may come from anybody and name any file, so only the place is told. main.cf itself is "./main.cf".
var foreignLine = regexp.MustCompile(`^postconf: (fatal|error|warning): /.*?, line \d+:`)

// failure is the line in which a tool says why it failed: the last one, or the warning before it where that has the
// reason.
func failure(lines []string, err error) string {
	last := lines[len(lines)-1]
	foreign := foreignLine.FindString(last)
	switch {
	case foreign != "":
		last = foreign + " cannot be read"
	case last == "":
		return err.Error()
	case strings.HasSuffix(last, "macro processing error") && len(lines) > 1:
		last = lines[len(lines)-2]
	}
	return last
}

// limited holds what a tool prints, up to most octets; more of it ends the tool.
type limited struct {
	text strings.Builder
	most int
	full bool

	forgets bool // what is more is not kept, and ends nothing
}

func (l *limited) Write(p []byte) (int, error) {
	if l.forgets && l.text.Len()+len(p) > l.most {
		return len(p), nil
	}
	if l.full = l.full || l.text.Len()+len(p) > l.most; l.full {
		return 0, ErrTooBig
	}
	return l.text.Write(p)
}

// folder is the one temporary folder of an import, for what its tools want in files. It is made when it is first
// wanted.
type folder struct{ dir string }

func (f *folder) open() (string, error) {
	if f.dir != "" {
		return f.dir, nil
	}
	dir, err := os.MkdirTemp("", "blockd-import-") // 0700
	f.dir = dir
	return dir, err
}

// write writes a file into the folder, which only its group may read beside its owner, and returns its path.
func (f *folder) write(name string, data []byte) (string, error) {
	dir, err := f.open()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, data, 0o640)
}

func (f *folder) close() error {
	dir := f.dir
	if f.dir = ""; dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// exitCode is that of a tool that has ended by itself, -1 of one that has not, or has not run.
func exitCode(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode() // -1 by a signal
	}
	return -1
}
