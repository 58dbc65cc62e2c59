package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// exchange is a request as it goes over the wire, and what its answer's body holds.
type exchange struct{ request, want []byte }

// load sends n requests over so many connections, each after the answer to the one
// before on its own, and times every one in µs. It is the same for all servers, and
// does as little as it can: it shares the machine with them. A server that closes its
// connections gets new ones, in the request's time.
func load(ctx context.Context, address string, connections, n int, all []exchange) (seconds float64, times series, err error) {
	var wg sync.WaitGroup
	times = make(series, n)
	faults := make([]error, connections)
	begun := time.Now()
	for c := range connections {
		wg.Go(func() {
			u := asker{address: address}
			defer u.hangUp()
			for i := c; i < n && ctx.Err() == nil; i += connections {
				at := time.Now()
				if faults[c] = u.ask(all[i%len(all)]); faults[c] != nil {
					return
				}
				times[i] = float64(time.Since(at).Nanoseconds()) / 1e3
			}
		})
	}
	wg.Wait()
	return time.Since(begun).Seconds(), times, errors.Join(append(faults, ctx.Err())...)
}

// asker has one connection, or none.
type asker struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
	body    []byte
}

func (u *asker) hangUp() {
	if u.conn != nil {
		u.conn.Close()
		u.conn = nil
	}
}

func (u *asker) ask(e exchange) error {
	if u.conn == nil {
		conn, err := net.Dial("tcp", u.address)
		if err != nil {
			return err
		}
		u.conn, u.in = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	if _, err := u.conn.Write(e.request); err != nil {
		return err
	}
	status, err := u.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answer %q", status)
	}
	length, ends := -1, false
	for {
		line, err := u.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Connection")):
			ends = bytes.HasPrefix(value, []byte("close"))
		}
	}
	body, err := u.read(length)
	if err != nil {
		return err
	}
	if !bytes.Contains(body, e.want) {
		return fmt.Errorf("answer %.300q has no %q", body, e.want)
	}
	if ends {
		u.hangUp()
	}
	return nil
}

// read reads a body: of that length, or in chunks if it is negative.
func (u *asker) read(length int) ([]byte, error) {
	if length >= 0 {
		u.body = append(u.body[:0], make([]byte, length)...)
		_, err := io.ReadFull(u.in, u.body)
		return u.body, err
	}
	u.body = u.body[:0]
	for {
		line, err := u.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, err
		}
		at := len(u.body)
		u.body = append(u.body, make([]byte, n)...)
		if _, err := io.ReadFull(u.in, u.body[at:]); err != nil {
			return nil, err
		}
		if _, err := u.in.Discard(2); err != nil {
			return nil, err
		}
		if n == 0 {
			return u.body, nil
		}
	}
}

// repeated reads lines again and again until there were n.
type repeated struct {
	lines [][]byte
	n, at int
	rest  []byte
}

func (r *repeated) Read(p []byte) (int, error) {
	filled := 0
	for filled < len(p) {
		if len(r.rest) == 0 {
			if r.at == r.n {
				break
			}
			r.rest = r.lines[r.at%len(r.lines)]
			r.at++
		}
		n := copy(p[filled:], r.rest)
		filled, r.rest = filled+n, r.rest[n:]
	}
	if filled == 0 {
		return 0, io.EOF
	}
	return filled, nil
}

// stream sends n senders and reads their answers meanwhile.
func stream(ctx context.Context, address string, lines [][]byte, n int, listed bool) (seconds float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check", &repeated{lines: lines, n: n})
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	transport := &http.Transport{DisableKeepAlives: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}
	begun := time.Now()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	word := []byte(`"verdict":"clear"`)
	if listed {
		word = []byte(`"verdict":"blocked"`)
	}
	answers, right := 0, 0
	in := bufio.NewReaderSize(res.Body, 256<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			return 0, err
		}
		if answers++; bytes.Contains(line, word) {
			right++
		}
	}
	if answers != n || right != n {
		return 0, fmt.Errorf("%d answers to %d senders, %d of them right", answers, n, right)
	}
	return time.Since(begun).Seconds(), nil
}
