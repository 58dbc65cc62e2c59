package dialogue

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Hooks are what a dialogue may ask of its surroundings; nil: not available.
type Hooks struct {
	Drain   func()
	Restart func()
}

// Play speaks the client's part on conn and compares what the server says. It
// closes conn. The error names the line of the file.
func (d *Dialogue) Play(conn net.Conn, hooks Hooks) error {
	defer conn.Close()
	p := &player{conn: conn, replies: make(chan string, 1024)}
	go p.read()
	if len(d.Steps) > 0 && d.Steps[0].Do != Expect {
		for _, step := range []Step{
			{Do: Expect, Text: "220"}, {Do: Send, Text: "EHLO client.example\r\n"}, {Do: Expect, Text: "250"},
		} {
			if err := p.step(step); err != nil {
				return fmt.Errorf("%s.txt: before the first line: %w", d.Name, err)
			}
		}
	}
	for i := 0; i < len(d.Steps); i++ {
		step := d.Steps[i]
		for step.Do == Send && i+1 < len(d.Steps) && d.Steps[i+1].Do == Send {
			i++
			step.Text += d.Steps[i].Text
		}
		var err error
		switch {
		case step.Do == Drain && hooks.Drain != nil:
			hooks.Drain()
		case step.Do == Restart && hooks.Restart != nil:
			hooks.Restart()
		default:
			err = p.step(step)
		}
		if err != nil {
			return fmt.Errorf("%s.txt:%d: %w", d.Name, step.Line, err)
		}
	}
	if n := len(d.Steps); n > 0 && (d.Steps[n-1].Do == Closed || d.Steps[n-1].Do == HangUp) {
		return nil
	}
	for _, step := range []Step{{Do: Send, Text: "QUIT\r\n"}, {Do: Expect, Text: "221"}, {Do: Closed}} {
		if err := p.step(step); err != nil {
			return fmt.Errorf("%s.txt: behind the last line: %w", d.Name, err)
		}
	}
	return nil
}

// player is the client's side of a dialogue.
type player struct {
	conn    net.Conn
	replies chan string // lines with their ends; closed when the server closes
	readErr error
}

// patience is how long the server may take over one reply. In a synctest bubble
// it is the bubble's time, so that a server which keeps its own deadlines, at
// most 10 minutes, is waited for.
const patience = 11 * time.Minute

func (p *player) read() {
	defer close(p.replies)
	r := bufio.NewReader(p.conn)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			p.replies <- line
		}
		if err != nil {
			p.readErr = err
			return
		}
	}
}

func (p *player) step(s Step) error {
	switch s.Do {
	case Send:
		// A server that has said its last word does not read the rest.
		if _, err := io.WriteString(p.conn, s.Text); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	case Expect:
		return p.expect(s.Text)
	case Wait:
		<-time.After(s.Wait)
		return nil
	case HangUp:
		return p.conn.Close()
	case Closed:
		line, open, err := p.line()
		switch {
		case err != nil:
			return errors.New("the server keeps the connection open")
		case open:
			return fmt.Errorf("server says %q, want the end of the connection", line)
		}
		return nil
	}
	return fmt.Errorf("this runner cannot %s", s.Do)
}

func (p *player) line() (line string, open bool, err error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case line, open = <-p.replies:
		return line, open, nil
	case <-timeout.C:
		return "", false, errors.New("no reply")
	}
}

func (p *player) expect(pattern string) error {
	for {
		line, open, err := p.line()
		if err != nil {
			return err
		}
		if !open {
			return fmt.Errorf("connection closed (%v), want %q", p.readErr, pattern)
		}
		text, ok := strings.CutSuffix(line, "\r\n")
		if !ok {
			return fmt.Errorf("reply %q does not end with CRLF", line)
		}
		if len(pattern) > 3 {
			if !matches(pattern, text) {
				return fmt.Errorf("got %q, want %q", text, pattern)
			}
			return nil
		}
		if !strings.HasPrefix(text, pattern) {
			return fmt.Errorf("got %q, want %s", text, pattern)
		}
		if len(text) == 3 || text[3] != '-' {
			return nil
		}
	}
}

// matches reports whether text fits pattern, in which "*" stands for any text.
func matches(pattern, text string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !strings.HasPrefix(text, head) {
		return false
	}
	if text = text[len(head):]; !star {
		return text == ""
	}
	for i := 0; i <= len(text); i++ {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}
