package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// scale is what every command is told: how much to measure, and where things are.
type scale struct {
	n      int    // keys, or listed addresses
	rounds int    // of what is measured several times
	root   string // of the checkout
	docs   string // folder of performance.md and its plots
}

// command is `bench`, or `bench WORD`. Its makers add flags of their own.
type command struct {
	name    string // in front of what it says of faults
	scale   *scale // what the flags are read into
	flags   *flag.FlagSet
	within  func() bool // whether the flags' values are such as bounds wants
	bounds  string
	measure func(ctx context.Context, stdout, stderr io.Writer) error
}

func newCommand(name string, s *scale) *command {
	c := &command{name: name, scale: s, flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	c.flags.StringVar(&s.root, "root", "../..", "`folder` of the checkout")
	c.flags.StringVar(&s.docs, "docs", "", "`folder` of performance.md and its plots (default ROOT/docs)")
	return c
}

// run does what args ask for and returns the exit code: 2 for flags that are none.
func (c *command) run(args []string, stdout, stderr io.Writer) (code int) {
	c.flags.SetOutput(stderr)
	if err := c.flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if !c.within() || c.flags.NArg() > 0 {
		fmt.Fprintf(stderr, "%s: want %s, and no arguments\n", c.name, c.bounds)
		return 2
	}
	if c.scale.docs == "" {
		c.scale.docs = filepath.Join(c.scale.root, "docs")
	}
	signal.Ignore(syscall.SIGPIPE) // who reads the tables may stop; the servers are ended all the same
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.measure(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.name, err)
		return 1
	}
	return 0
}

// progress tells who waits what is done now.
type progress struct {
	begun time.Time
	out   io.Writer
}

func newProgress(out io.Writer) progress { return progress{time.Now(), out} }

func (p progress) say(what string) {
	fmt.Fprintf(p.out, "%5.0f s  %s\n", time.Since(p.begun).Seconds(), what)
}
