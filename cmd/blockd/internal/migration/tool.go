package migration

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// tool is the program of a configuration's owner that says what the configuration means. The
// configuration may come from anybody, so a run is bounded in time, memory and output.
type tool struct {
	name, debian string // the program, and the package of Debian that has it
	patience     time.Duration
}

var (
	postconf = tool{"postconf", "postfix", 30 * time.Second}
	postmap  = tool{"postmap", "postfix", 5 * time.Minute}
	rspamadm = tool{"rspamadm", "rspamd", 30 * time.Second}
)

// maxMemory bounds the address space of a tool, in octets. Parameters that name one another
// ten times over are a gigabyte before the first octet of output.
const maxMemory = 1 << 30

// runner runs a tool in a folder with an input, and returns what it prints and what it complains of, a line
// each. Tests have a second one, which says what it is told to.
type runner func(ctx context.Context, dir, stdin string, args ...string) (out string, complaints []string, err error)

// find returns the path of the tool.
func (t tool) find() (string, error) {
	path, err := exec.LookPath(t.name)
	for _, sbin := range [...]string{"/usr/sbin", "/sbin"} { // in the PATH of root alone
		if err != nil {
			path, err = exec.LookPath(filepath.Join(sbin, t.name))
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s, which says what the configuration means, is not installed: nothing can be asked; install the package %s of Debian", t.name, t.debian)
	}
	return path, nil
}

func (t tool) run(ctx context.Context, dir, stdin string, args ...string) (string, []string, error) {
	path, err := t.find()
	if err != nil {
		return "", nil, err
	}
	within, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	cmd := exec.CommandContext(within, path, args...)
	cmd.Args[0] = t.name // as it calls itself in what it complains of
	out, complaints := limited{most: maxOutput}, limited{most: maxConfig}
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &complaints, dir, time.Second
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if err = cmd.Start(); err == nil {
		boundMemory(cmd.Process.Pid)
		err = cmd.Wait()
	}
	lines := strings.Split(strings.TrimSpace(complaints.text.String()), "\n")
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case within.Err() != nil:
		err = fmt.Errorf("%s has not ended within %s", t.name, t.patience)
	case out.full || complaints.full:
		err = fmt.Errorf("%s: %w: it prints more than %d MiB", t.name, ErrTooBig, maxOutput>>20)
	case err != nil:
		err = fmt.Errorf("%s: %s", t.name, original.Shown(strings.TrimPrefix(failure(lines, err), t.name+": ")))
	}
	return out.text.String(), lines, err
}

// foreignLine is how postconf begins to quote a line of a file that main.cf names, such as the
// file of an ldap table. main.cf may come from anybody and name any file, so only the place is
// told. main.cf itself is "./main.cf".
var foreignLine = regexp.MustCompile(`^postconf: (fatal|error|warning): /.*?, line \d+:`)

// failure is the line in which a tool says why it failed: the last one, or the warning before
// it where that has the reason.
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

// maxOutput bounds what a tool prints, in octets: postmap prints whole tables.
const maxOutput = maxTable

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
