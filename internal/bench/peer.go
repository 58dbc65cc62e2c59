package main

import (
	"bufio"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// sources are the peers of other languages, compiled at run time.
//
//go:embed peers
var sources embed.FS

// errUnasked is the answer of a contestant to what it cannot be asked.
var errUnasked = errors.New("not asked")

// peer is a running program of another language. It answers a word a line on
// standard input with a number a line, when it has done what the word asks.
type peer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr strings.Builder
}

func startPeer(ctx context.Context, args ...string) (*peer, error) {
	p := &peer{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.stderr
	p.in, p.out = in, bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// do asks for a word. The pipes cost some 20 us, nothing beside a round.
func (p *peer) do(word string) (int, error) {
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		return 0, p.fault(err)
	}
	if !p.out.Scan() {
		return 0, p.fault(cmp.Or(p.out.Err(), io.ErrUnexpectedEOF))
	}
	return strconv.Atoi(p.out.Text())
}

// fault adds what the program has said about its end.
func (p *peer) fault(err error) error {
	p.close()
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(p.stderr.String()))
}

// contestant answers with one thread.
func (p *peer) contestant(name string) contestant {
	return contestant{name, func(q question) (int, error) {
		switch q {
		case absent:
			return p.do("absent")
		case listed:
			return p.do("listed")
		}
		return 0, errUnasked
	}}
}

// close ends the program, which ends with its input.
func (p *peer) close() {
	p.in.Close()
	_ = p.cmd.Wait() // it has answered all it was asked, or its fault is told already
}
