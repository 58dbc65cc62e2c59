// Package builder builds an index in a process of its own: this program, started again. It
// yields processors, disk and memory to everybody else, and what happens to it costs a reload
// and no mail.
//
// The process that serves keeps the lock, the gate and the publishing (index.BuildApart). The
// two talk through the child's standard input and output, see frame.go. The child ends with
// its parent: its input ends then.
package builder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/machine"
	"blockd/lists"
)

// Builder starts a process for each build. It is for one goroutine.
type Builder struct {
	command []string // of the child
	log     *slog.Logger

	from    int64         // octets of list files from which on a build is not done in this process
	silence time.Duration // a child that gets no further for so long is ended
	told    bool          // that no process can be started
}

const (
	// inProcess is what is built in some 50 ms of one processor. To start a process takes 10.
	inProcess = 1 << 20

	// silence is how long a child may take for a step that reports no progress, such as a
	// sync to a disk that others keep busy.
	silence = 15 * time.Minute

	minMemory = 16 << 20 // for records, however little is left
)

// New returns a Builder whose child is this program with these arguments: the program that runs, even if its file has
// been replaced since. It has to call Serve.
func New(log *slog.Logger, args ...string) *Builder {
	return &Builder{command: append([]string{program()}, args...), log: log, from: inProcess, silence: silence}
}

// errNoChild is why no process could be started.
type errNoChild struct{ error }

// Build is index.Build in another process. urgent: nothing serves yet, so it takes what it
// can get, as small ones do. The smallest are done in this process, and so are all where no other can be started, which is logged once. When ctx
// ends, the child is killed.
func (b *Builder) Build(ctx context.Context, path string, sources []index.Source, o index.Options, urgent bool) (*index.Draft, error) {
	if !b.large(sources) {
		return index.Build(ctx, path, sources, o)
	}
	d, err := index.BuildApart(ctx, path, sources, o, func(ctx context.Context, temp string, lock *os.File) (*index.Made, error) {
		o := o
		o.Memory = memory(o.Memory, machine.Left().Octets)
		return b.run(ctx, newRequest(path, temp, sources, o, urgent || prompt(sources, promptBuild)), lock)
	})
	if b.none(err) {
		return index.Build(ctx, path, sources, o)
	}
	return d, err
}

// What is done with the priority of the daemon, by the size of all files in octets. More than that has the last place (see gentle), which on a
// machine without a free core may mean to wait for a minute. 16 MiB take some 0.4 s of a processor to read. 4 MiB, some 110,000 entries, take 0.1 s
// to build, and mail does not feel it: with four times as much the slowest answer became twice as slow (decision 0058).
const (
	promptParse = 16 << 20
	promptBuild = 4 << 20
)

// prompt reports whether files have at most so many octets. A packed file may hold a hundred times its size, and waits.
func prompt(sources []index.Source, most int64) bool {
	return size(sources) <= most && !slices.ContainsFunc(sources, func(s index.Source) bool { return lists.IsPacked(cmp.Or(s.Kept, s.Path)) })
}

// Parse is index.ParseSegment in another process, as Build is index.Build.
func (b *Builder) Parse(ctx context.Context, cache string, s index.Source) error {
	sources := []index.Source{s}
	if b.large(sources) {
		r := newRequest("", "", sources, index.Options{Cache: cache}, prompt(sources, promptParse))
		r.Parse = true
		_, err := b.run(ctx, r, nil)
		if !b.none(err) {
			return err
		}
	}
	return index.ParseSegment(ctx, cache, s, 0)
}

// Kept is kept.Job.Do in another process, as Build is index.Build. Unlike the rest of a Builder it may be called by several goroutines at
// once.
func (b *Builder) Kept(ctx context.Context, j kept.Job) (kept.Result, error) {
	if j.Octets() < b.from {
		return j.Do(ctx)
	}
	r := newRequest("", "", nil, index.Options{}, false)
	r.Kept = &j
	a, err := b.ask(ctx, r, nil)
	if errors.As(err, new(errNoChild)) {
		return j.Do(ctx)
	}
	if err != nil {
		return kept.Result{}, err
	}
	if a.Kept == nil {
		return kept.Result{}, errors.New("an answer that says nothing")
	}
	return *a.Kept, nil
}

// none reports whether no process could be started, and logs it once.
func (b *Builder) none(err error) bool {
	none, ok := errors.AsType[errNoChild](err)
	if ok && !b.told {
		b.told = true
		b.log.Warn("lists are built in this process: no other can be started", slog.Any("error", none.error))
	}
	return ok
}

// memory is what a build may hold records in: as configured, at most half of what is left.
func memory(configured, left int64) int64 {
	return max(min(cmp.Or(configured, index.DefaultMemory), left/2), minMemory)
}

func (b *Builder) large(sources []index.Source) bool { return size(sources) >= b.from }

// size is that of the files.
func size(sources []index.Source) (octets int64) {
	for _, s := range sources {
		if info, err := os.Stat(cmp.Or(s.Kept, s.Path)); err == nil && info.Mode().IsRegular() {
			octets += info.Size()
		}
	}
	return octets
}

// run has the child make something.
func (b *Builder) run(ctx context.Context, r request, lock *os.File) (*index.Made, error) {
	a, err := b.ask(ctx, r, lock)
	if err == nil && a.Made == nil {
		err = errors.New("an answer that says nothing")
	}
	if err != nil {
		return nil, err
	}
	return a.Made, nil
}

// ask starts the child and waits for its answer and for its end.
func (b *Builder) ask(ctx context.Context, r request, lock *os.File) (*answer, error) {
	cmd := exec.Command(b.command[0], b.command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the parent's; see also gentle
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	cmd.WaitDelay = time.Second
	complaint := &tail{}
	cmd.Stderr = complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errNoChild{err}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errNoChild{err}
	}
	kills := machine.Kills()
	if err := cmd.Start(); err != nil {
		return nil, errNoChild{err}
	}
	c := &child{cmd: cmd, pulse: time.NewTimer(b.silence), silence: b.silence}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx, done) })
	writing := make(chan error, 1)
	go func() { writing <- send(in, r) }()
	made, err := c.listen(out, r.Options.Progress)
	if err != nil {
		cmd.Process.Kill()
	}
	sent := <-writing
	io.Copy(io.Discard, out) // to its end; its input stays open so long, for with that it would end at once
	ended := cmd.Wait()
	close(done)
	watching.Wait()
	if made != nil && ended == nil {
		return made, nil
	}
	index.SweepCache(r.Options.Cache, cmd.Process.Pid)
	told, isRefusal := errors.AsType[refusal](err)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case isRefusal:
		return nil, told.fault.Err()
	case c.hung:
		return nil, fmt.Errorf("the build got no further for %v and was ended: see whether the disk answers", b.silence)
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the build's process answered what this one does not understand: %w", err)
	}
	return nil, death(ended, complaint.String(), machine.Kills() > kills, cmp.Or(err, sent))
}

// death says how a child has ended that made nothing, in words for an operator at night.
func death(ended error, complaint string, noMemory bool, err error) error {
	exit, _ := errors.AsType[*exec.ExitError](ended)
	if exit == nil {
		return fmt.Errorf("the build's process ended without an answer: %v", cmp.Or(ended, err))
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL && noMemory:
		return errors.New("the build was ended by the system for want of memory: give the machine or the service more, or lower index.memory")
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		return errors.New("the build was killed (SIGKILL), by somebody or for want of memory: see the system's log")
	case ok && status.Signaled():
		return fmt.Errorf("the build was ended by a signal (%v)%s", status.Signal(), complaint)
	}
	return fmt.Errorf("the build's process failed (%v)%s", exit, complaint)
}

// child is a process that builds.
type child struct {
	cmd     *exec.Cmd
	pulse   *time.Timer
	silence time.Duration
	hung    bool // by watch, until it ends
}

// watch kills the child when ctx ends, or when it gets no further.
func (c *child) watch(ctx context.Context, done <-chan struct{}) {
	defer c.pulse.Stop()
	select {
	case <-done:
		return
	case <-ctx.Done():
	case <-c.pulse.C:
		c.hung = true
	}
	c.cmd.Process.Kill()
}

// listen reads what the child says, to the result.
func (c *child) listen(out io.Reader, progress func(index.Progress)) (*answer, error) {
	var hello answer
	if err := receive(out, &hello); err != nil {
		return nil, err
	}
	if hello.Version != version() {
		return nil, fmt.Errorf("it is of another version: %.100q, want %q", hello.Version, version())
	}
	var last index.Progress
	for {
		var a answer
		if err := receive(out, &a); err != nil {
			return nil, err
		}
		switch {
		case a.Fault != nil:
			return nil, refusal{a.Fault}
		case a.Made != nil || a.Kept != nil:
			return &a, nil
		case a.Progress == nil:
			return nil, errors.New("an answer that says nothing")
		case *a.Progress != last:
			last = *a.Progress
			c.pulse.Reset(c.silence)
			if progress != nil {
				progress(last)
			}
		}
	}
}

// refusal is a fault that the child has told.
type refusal struct{ fault *index.Fault }

func (r refusal) Error() string { return r.fault.Text }

// tail keeps the beginning of what a child complains of.
type tail struct{ kept bytes.Buffer }

const maxComplaint = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.kept.Write(b[:min(len(b), maxComplaint-t.kept.Len())])
	return len(b), nil
}

// String is the first line, to be put behind an error's words.
func (t *tail) String() string {
	line, _, _ := strings.Cut(strings.TrimSpace(t.kept.String()), "\n")
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line, "?")
}
