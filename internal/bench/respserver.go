package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const blockdRESPConfig = `
[index]
path = %q
[resp]
listen = %q
[[list]]
name = %q
path = %q
format = "plain"
`

func (d *respDoor) startBlockd(ctx context.Context, dir string, l *addresses) (p path, err error) {
	p = path{name: nameBlockd, filters: true}
	if p.address, err = freeAddress(); err != nil {
		return p, err
	}
	shut, err := otherDoors(ctx, l.program, "[resp]")
	if err != nil {
		return p, err
	}
	config := filepath.Join(dir, "blockd.toml")
	if err := os.WriteFile(config, append(fmt.Appendf(nil, blockdRESPConfig, l.index, p.address, respSet, l.text), shut...), 0o644); err != nil {
		return p, err
	}
	p.pid, err = d.launch(ctx, p.address, config+".log", l.program, "serve", "-c", config)
	return p, err
}

// startRedis starts Redis without a disk, and puts the list into a set of it.
func (d *respDoor) startRedis(ctx context.Context, dir string, l *addresses) (p path, err error) {
	p = path{name: nameRedis, filters: true}
	if p.address, err = freeAddress(); err != nil {
		return p, err
	}
	host, port, err := net.SplitHostPort(p.address)
	if err != nil {
		return p, err
	}
	p.pid, err = d.launch(ctx, p.address, filepath.Join(dir, "redis.log"), "redis-server", "--bind", host, "--port", port,
		"--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no", "--loglevel", "warning")
	if err != nil {
		return p, err
	}
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		return p, err
	}
	defer conn.Close()
	return p, fill(conn, l.text)
}

// fill puts the lines of a file into the set, many by a command.
func fill(conn net.Conn, text string) error {
	const batch = 1000
	in := bufio.NewReader(conn)
	var members []string
	flush := func() error {
		if len(members) == 0 {
			return nil
		}
		if _, err := conn.Write(asRESP(append([]string{"SADD", respSet}, members...)...)); err != nil {
			return err
		}
		answer, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if answer != fmt.Sprintf(":%d\r\n", len(members)) {
			return fmt.Errorf("SADD of %d members: %q", len(members), answer)
		}
		members = members[:0]
		return nil
	}
	var fault error
	err := eachLine(text, func(line string) {
		if members = append(members, line); len(members) == batch && fault == nil {
			fault = flush()
		}
	})
	return errors.Join(err, fault, flush())
}

// asRESP is a command as clients write it.
func asRESP(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

// checkMembers asks a server for some members of a list of n and for some others, and refuses wrong
// answers: redis-benchmark looks at none.
func checkMembers(address string, n int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	const asked = 1000
	for i := range asked {
		at := i * 2 * n / asked
		member, want := numbered(fmt.Sprintf("%012d", at)), ":0\r\n"
		if at < n {
			want = ":1\r\n"
		}
		if _, err := conn.Write(asRESP("SISMEMBER", respSet, member)); err != nil {
			return err
		}
		if answer, err := in.ReadString('\n'); err != nil || answer != want {
			return fmt.Errorf("SISMEMBER %s %s: %q, %v; want %q", respSet, member, answer, err, want)
		}
	}
	return nil
}

// respLoad is what redis-benchmark has seen.
type respLoad struct{ rate, median, tail float64 } // a second, ms

// askMembers asks for n members at random, of numbers below keys.
func askMembers(ctx context.Context, address string, pipeline, n, keys int) (l respLoad, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return l, err
	}
	cmd := exec.CommandContext(ctx, "redis-benchmark", "-h", host, "-p", port, "-c", strconv.Itoa(respConnections), "-P", strconv.Itoa(pipeline),
		"-n", strconv.Itoa(n), "-r", strconv.Itoa(keys), "--csv", "SISMEMBER", respSet, numbered("__rand_int__"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return l, fmt.Errorf("redis-benchmark: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return parseRESPLoad(&stdout)
}

// parseRESPLoad reads the table of redis-benchmark --csv.
func parseRESPLoad(in io.Reader) (l respLoad, err error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return l, fmt.Errorf("redis-benchmark: %w", err)
	}
	if len(rows) < 2 || len(rows[len(rows)-1]) != len(rows[len(rows)-2]) {
		return l, fmt.Errorf("redis-benchmark printed no table: %q", rows)
	}
	for i, name := range rows[len(rows)-2] {
		value := rows[len(rows)-1][i]
		for _, column := range []struct {
			name string
			to   *float64
		}{{"rps", &l.rate}, {"p50_latency_ms", &l.median}, {"p99_latency_ms", &l.tail}} {
			if name == column.name {
				if *column.to, err = strconv.ParseFloat(value, 64); err != nil {
					return l, fmt.Errorf("redis-benchmark: %s: %w", name, err)
				}
			}
		}
	}
	if l.rate == 0 {
		return l, errors.New("redis-benchmark told no rate")
	}
	return l, nil
}
