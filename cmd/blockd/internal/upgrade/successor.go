package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Successor is the process that takes over from this one.
type Successor struct {
	conn  *conn
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended, after which state counts
	state error
}

// Start starts program with args, and hands it sockets, of which it gets copies. without are
// the names of environment variables that are this process's alone.
func Start(program string, args []string, sockets []Socket, without ...string) (*Successor, error) {
	names := make([]string, len(sockets))
	for i, s := range sockets {
		names[i] = s.Name
	}
	text, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	here, there, err := pair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	c, err := newConn(here)
	if err != nil {
		return nil, err
	}
	s := &Successor{conn: c, ended: make(chan struct{}), cmd: exec.Command(program, args...)}
	s.cmd.Stdout, s.cmd.Stderr = os.Stdout, os.Stderr
	s.cmd.Env = append(environment(without), fmt.Sprintf("%s=%d:3:%d", variable, Version, len(sockets)))
	s.cmd.ExtraFiles = []*os.File{there}
	for _, socket := range sockets {
		s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, socket.File)
	}
	if err := s.cmd.Start(); err != nil {
		c.Close()
		return nil, err
	}
	go func() {
		s.state = s.cmd.Wait()
		close(s.ended)
	}()
	if err := c.say(wordSockets, text); err != nil {
		return nil, s.Abandon(err)
	}
	return s, nil
}

// environment is that of this process without some variables.
func environment(without []string) (all []string) {
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		gone := name == variable
		for _, w := range without {
			gone = gone || name == w
		}
		if !gone {
			all = append(all, line)
		}
	}
	return all
}

// Signal sends it a signal, if it has not ended.
func (s *Successor) Signal(signal os.Signal) { s.cmd.Process.Signal(signal) } // an error says that it has ended

// Wait waits for its end. The error is not nil if that was no good one.
func (s *Successor) Wait() error {
	<-s.ended
	if s.state != nil {
		return fmt.Errorf("the process that had taken over has ended: %w", s.state)
	}
	return nil
}

// Ended reports whether it has ended, with the error of Wait.
func (s *Successor) Ended() (ended bool, err error) {
	select {
	case <-s.ended:
		return true, s.Wait()
	default:
		return false, nil
	}
}

// PID is its process number.
func (s *Successor) PID() int { return s.cmd.Process.Pid }

// Await waits until it is Ready, and calls yield when it asks for what one process alone can have. It returns what it says of
// its lists. An error says why it does not take over; it has ended then. ctx and patience bound the whole.
func (s *Successor) Await(ctx context.Context, patience time.Duration, yield func(Stage) error) (says string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it was not ready within %v", patience))
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		w, text, _, err := s.conn.hear()
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, io.EOF):
			err = errors.New("it has ended")
		case err != nil:
		case w == wordFailed:
			err = Failed(text)
		case w == wordReady:
			return string(text), nil
		case w == wordWant && len(text) == 1:
			if err = yield(Stage(text[0])); err == nil {
				err = s.conn.say(wordGiven, nil)
			}
		default:
			err = errForeign
		}
		if err != nil {
			return "", s.Abandon(err)
		}
	}
}

// Failed is the error of a successor that said itself why it cannot take over.
type Failed string

func (f Failed) Error() string { return string(f) }

// farewell is how long a successor that has failed may take to end by itself.
const farewell = 2 * time.Second

// Abandon ends the successor, and waits for its end. It returns why, with how the process ended if it had done so by itself.
func (s *Successor) Abandon(why error) error {
	s.conn.Close()
	select {
	case <-s.ended:
	case <-time.After(farewell):
		s.cmd.Process.Kill()
		<-s.ended
		return why
	}
	if s.state != nil {
		return fmt.Errorf("%w (%w)", why, s.state)
	}
	return why
}

// Lines tells it of decisions that were made here after it was Ready.
func (s *Successor) Lines(lines []byte) error { return s.conn.say(wordLines, lines) }

// Counters tells it what was counted here so far.
func (s *Successor) Counters(text []byte) error { return s.conn.say(wordCounters, text) }

// Conn gives it a connection at a door, of which this process has answered all that it has read.
func (s *Successor) Conn(door string, file int) error {
	return s.conn.say(wordConn, []byte(door), file)
}

// Close ends what it hears from here.
func (s *Successor) Close() error { return s.conn.Close() }
