package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How dnsperf asks.
const (
	dnsClients = 10
	dnsOpen    = 100
)

// dnsLoad is what dnsperf has seen.
type dnsLoad struct {
	completed, lost int
	rate            float64        // answers a second
	codes           map[string]int // answers by their code
	times           series         // µs, of a paced load
}

// load asks for so many seconds, or until ctx ends, which is no error: as fast as answers come, or
// with a pace so many a second. Without a pace the answers must be half yes and half no.
func (d *dnsDoor) load(ctx context.Context, s dnsServer, seconds, pace int) (l dnsLoad, err error) {
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return l, err
	}
	args := []string{"-f", "inet", "-s", host, "-p", port, "-d", d.queries, "-l", strconv.Itoa(seconds), "-c", strconv.Itoa(dnsClients), "-q", strconv.Itoa(dnsOpen)}
	if pace > 0 {
		args = append(args, "-Q", strconv.Itoa(pace), "-v")
	}
	cmd := exec.CommandContext(ctx, "dnsperf", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it then waits for answers and tells
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return l, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return l, err
	}
	l, parseErr := parseLoad(out)
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return l, fmt.Errorf("dnsperf: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if parseErr != nil {
		return l, fmt.Errorf("dnsperf: %w: %s", parseErr, strings.TrimSpace(said.String()))
	}
	return l, l.check()
}

// check refuses answers that cannot be right.
func (l *dnsLoad) check() error {
	yes, no := l.codes["NOERROR"], l.codes["NXDOMAIN"]
	if all := yes + no; all != l.completed || all == 0 || max(yes, no)-min(yes, no) > all/50+dnsOpen {
		return fmt.Errorf("answers are %v of %d: want as many NOERROR as NXDOMAIN", l.codes, l.completed)
	}
	return nil
}

// parseLoad reads what dnsperf prints.
func parseLoad(in io.Reader) (l dnsLoad, err error) {
	l.codes = map[string]int{}
	scanner := bufio.NewScanner(in)
	told := false
	for scanner.Scan() {
		line := scanner.Text()
		if strings.HasPrefix(line, "> ") {
			fields := strings.Fields(line)
			if seconds, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
				l.times = append(l.times, 1e6*seconds)
			}
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch name {
		case "Queries completed":
			told = true
			_, err = fmt.Sscan(value, &l.completed)
		case "Queries lost":
			_, err = fmt.Sscan(value, &l.lost)
		case "Queries per second":
			l.rate, err = strconv.ParseFloat(value, 64)
		case "Response codes":
			for part := range strings.SplitSeq(value, ", ") {
				var code string
				var n int
				if _, err := fmt.Sscan(part, &code, &n); err == nil {
					l.codes[code] = n
				}
			}
		}
		if err != nil {
			return l, fmt.Errorf("%q: %w", line, err)
		}
	}
	if !told {
		err = errors.New("no word of its answers")
	}
	return l, errors.Join(scanner.Err(), err)
}
