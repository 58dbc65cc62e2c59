package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"blockd/policy/printout"
)

// maxSender bounds a line of standard input. A longer line is read to its end.
const maxSender = printout.MaxText

// blockSize is what is read at once where the input gives as much: some 1,800
// senders, enough for their look-ups to overlap and for one worker to be busy for
// half a millisecond.
const blockSize = 64 << 10

// promoteAfter blocks the filter is copied into memory: for fewer senders it is
// not worth it.
const promoteAfter = 8

// block is a number of whole lines, and then the answers to them.
type block struct {
	lines   string
	promote bool          // the filter first
	done    chan struct{} // gives one when what follows is there

	answers []byte
	blocked bool  // is any
	err     error // behind the answers: no further one would be worth anything
}

// answerer appends the answers to texts: printout.Asker at an index file, or daemonAsker. It is for one goroutine.
type answerer interface {
	Ask(dst []byte, texts []string) (answers []byte, blocked bool, err error)
}

// texts are the lines of b.
func (b *block) texts() (texts []string) {
	for line := range strings.Lines(b.lines) {
		text := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		texts = append(texts, text[:min(len(text), maxSender)])
	}
	return texts
}

// pipeline answers the lines of stdin in order. What one read gives is one block,
// whose answers are written as soon as they and all earlier ones are there: so a
// program can write a line and wait for the answer, while a long input keeps all
// processors busy.
type pipeline struct {
	newAnswerer func() answerer // for each worker
	promote     func(context.Context)
	workers     int
}

// run reads until the end of stdin, an error or the end of ctx. After the last two
// the goroutine that reads stays behind until its read returns.
func (p pipeline) run(ctx context.Context, stdin io.Reader, w io.Writer) (blocked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	work, order := make(chan *block), make(chan *block, 2*p.workers)
	free := make(chan *block, 3*p.workers+1) // has room for all that are under way
	for range p.workers {
		group.Go(func() { p.work(ctx, work) })
	}
	var readErr error // written before order is closed
	go func() {
		defer close(order)
		readErr = p.read(ctx, stdin, free, order, work)
	}()
	for {
		b, more := receive(ctx, order)
		if !more {
			return blocked, cmp.Or(ctx.Err(), readErr)
		}
		if _, ok := receive(ctx, b.done); !ok {
			return blocked, ctx.Err()
		}
		blocked = blocked || b.blocked
		if _, err := w.Write(b.answers); err != nil {
			return blocked, err
		}
		if b.err != nil {
			return blocked, b.err
		}
		select {
		case free <- b:
		default:
		}
	}
}

func (p pipeline) work(ctx context.Context, work <-chan *block) {
	a := p.newAnswerer()
	for {
		b, ok := receive(ctx, work)
		if !ok {
			return
		}
		if b.promote {
			p.promote(ctx)
		}
		b.answers, b.blocked, b.err = a.Ask(b.answers, b.texts())
		b.done <- struct{}{}
	}
}

// read cuts stdin into blocks and hands each to who writes its answers and to who
// finds them.
func (p pipeline) read(ctx context.Context, stdin io.Reader, free <-chan *block, order, work chan<- *block) error {
	defer close(work)
	blocks := 0
	return eachBlock(stdin, func(lines []byte) error {
		var b *block
		select {
		case b = <-free:
		default:
			b = &block{done: make(chan struct{}, 1)}
		}
		blocks++
		*b = block{lines: string(lines), promote: blocks == promoteAfter, done: b.done, answers: b.answers[:0]}
		for _, to := range []chan<- *block{order, work} {
			select {
			case to <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// receive is false at the end of the channel or of ctx.
func receive[T any](ctx context.Context, from <-chan T) (v T, ok bool) {
	select {
	case v, ok = <-from:
		return v, ok
	case <-ctx.Done():
		return v, false
	}
}

// eachBlock calls use with all whole lines of what a read gave, each with its line
// end, and with the last one, which gets one.
func eachBlock(r io.Reader, use func(lines []byte) error) error {
	buf := make([]byte, blockSize)
	have := 0        // octets of a line that has no end yet
	tooLong := false // of which no more is kept
	for {
		n, err := r.Read(buf[have:])
		fresh := buf[have : have+n]
		if tooLong { // drop what the line goes on with, but not its end
			end := bytes.IndexByte(fresh, '\n')
			if end < 0 {
				end = n
			} else {
				tooLong = false
			}
			fresh = buf[have : have+copy(fresh, fresh[end:])]
		}
		have += len(fresh)
		if end := bytes.LastIndexByte(buf[:have], '\n') + 1; end > 0 {
			if err := use(buf[:end]); err != nil {
				return err
			}
			have = copy(buf, buf[end:have])
		}
		if have >= maxSender {
			have, tooLong = maxSender, true
		}
		switch {
		case errors.Is(err, io.EOF):
			if have > 0 {
				return use(append(buf[:have:have], '\n'))
			}
			return nil
		case err != nil:
			return err
		}
	}
}
