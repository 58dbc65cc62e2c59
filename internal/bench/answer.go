package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// answerer is a program that is asked for senders, and its file.
type answerer struct {
	name   string
	stream []string                  // asks for each line of standard input; nil = cannot
	one    func(key string) []string // asks for one key
	found  func(line string) bool    // whether a line of output says that a key is listed
}

// askPrograms measures who answers from standard input, a sender a line, and how
// long a process takes from its start to one answer and its end.
func askPrograms(ctx context.Context, s settings, b *built, k *keys, r *report) error {
	check := []string{b.blockd, "check", "-i", b.index}
	all := []answerer{{
		name:   "`blockd check`",
		stream: append(check[:len(check):len(check)], "-"),
		one:    func(key string) []string { return append(check[:len(check):len(check)], key) },
		found:  func(line string) bool { return strings.Contains(line, "\tblocked\t") },
	}}
	for _, kind := range postmapKinds {
		name := "`postmap -q " + kind + ":`"
		if why := b.lacks[kind]; why != "" {
			r.programs.missing(name, why)
			continue
		}
		postmap, table := []string{b.postmap, "-c", b.config, "-q"}, kind+":"+k.pairs
		all = append(all, answerer{
			name:   name,
			stream: append(postmap[:len(postmap):len(postmap)], "-", table),
			one:    func(key string) []string { return append(postmap[:len(postmap):len(postmap)], key, table) },
			found:  func(string) bool { return true }, // it prints nothing else
		})
	}
	if b.cdb == "" {
		r.programs.missing("`cdb -q`", "wants Debian's package tinycdb")
	} else {
		all = append(all, answerer{name: "`cdb -q`", one: func(key string) []string { return []string{b.cdb, "-q", b.tinycdb, key} }})
	}
	for _, a := range all {
		if err := a.prove(ctx, k, r); err != nil {
			return err
		}
	}
	for range s.buildRounds() { // a round is seconds long here
		for _, a := range all {
			if err := a.round(ctx, k, &r.programs); err != nil {
				return err
			}
		}
	}
	return anonymousMemory(ctx, check, k, r)
}

// prove holds every answer against what is true. It also warms the page cache.
func (a answerer) prove(ctx context.Context, k *keys, r *report) error {
	if a.stream == nil {
		return nil
	}
	listed, err := program{a.stream, k.listedFile}.count(ctx, a.found)
	if err != nil {
		return err
	}
	clear, err := program{a.stream, k.clearFile}.count(ctx, a.found)
	if err != nil {
		return err
	}
	return r.proved(a.name, k, listed, clear)
}

func (a answerer) round(ctx context.Context, k *keys, t *table) error {
	if a.stream != nil {
		for _, q := range []struct {
			column, n int
			file      string
		}{{programsAbsent, len(k.clear), k.clearFile}, {programsListed, len(k.listed), k.listedFile}} {
			cost, err := program{a.stream, q.file}.run(ctx)
			if err != nil {
				return err
			}
			t.add(a.name, q.column, float64(q.n)/cost.seconds)
		}
		cost, err := program{a.stream, k.halfFile}.run(ctx)
		if err != nil {
			return err
		}
		t.add(a.name, programsHalfCPU, 1e6*cost.cpu/float64(k.half()))
	}
	cost, err := program{args: a.one(k.listed[0])}.run(ctx)
	if err != nil {
		return err
	}
	t.add(a.name, programsFirst, 1e3*cost.seconds)
	return nil
}

// anonymousMemory asks the system what a process holds besides file pages once
// it has answered its first question.
func anonymousMemory(ctx context.Context, check []string, k *keys, r *report) error {
	cmd := exec.CommandContext(ctx, check[0], append(check[1:len(check):len(check)], "-")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = io.WriteString(in, k.clear[0]+"\n")
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	var kilobytes float64
	if err == nil {
		_, err = fmt.Sscan(fieldOf(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid), "RssAnon"), &kilobytes)
	}
	in.Close()
	var exit *exec.ExitError // 1: no sender was blocked
	if waited := cmd.Wait(); !errors.As(waited, &exit) || exit.ExitCode() != 1 {
		err = errors.Join(err, waited)
	}
	if err != nil {
		return fmt.Errorf("memory of blockd check: %w", err)
	}
	r.anonymous = kilobytes / 1e3
	return nil
}
