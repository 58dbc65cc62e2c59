package main

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

const benchmarkSays = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SISMEMBER bench user__rand_int__@bulk-mailer.bench.test","83333.34","0.323","0.096","0.311","0.487","0.703","1.087"
`

func TestParseRESPLoad(t *testing.T) {
	l, err := parseRESPLoad(strings.NewReader(benchmarkSays))
	if want := (respLoad{83333.34, 0.311, 0.703}); err != nil || l != want {
		t.Errorf("load %+v, %v, want %+v", l, err, want)
	}
	for _, text := range []string{"", "Could not connect\n", strings.Replace(benchmarkSays, "rps", "x", 1), strings.Replace(benchmarkSays, "83333.34", "many", 1)} {
		if l, err := parseRESPLoad(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, l)
		}
	}
}

// lax answers every command by the same word.
func lax(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		defer conn.Close()
		for buf := make([]byte, 1<<20); ; {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			io.WriteString(conn, answer)
		}
	}
}

func TestWrongMembersEndTheRun(t *testing.T) {
	for _, answer := range []string{":1\r\n", ":0\r\n", "-LOADING\r\n"} {
		if err := checkMembers(serveOne(t, lax(answer)), 1000); err == nil || !strings.Contains(err.Error(), numbered("00000000")[:8]) {
			t.Errorf("%q to everything: %v", answer, err)
		}
	}
}

func TestFill(t *testing.T) {
	text := filepath.Join(t.TempDir(), "numbered.txt")
	var b strings.Builder
	testkit.Must(t, writeNumbered(&b, 3))
	testkit.Write(t, text, []byte(b.String()))
	for answer, good := range map[string]bool{":3\r\n": true, ":2\r\n": false, "-OOM\r\n": false} {
		conn, err := net.Dial("tcp", serveOne(t, lax(answer)))
		testkit.Must(t, err)
		defer conn.Close()
		if err := fill(conn, text); (err == nil) != good {
			t.Errorf("answer %q: %v", answer, err)
		}
	}
	if want := "*3\r\n$4\r\nSADD\r\n$5\r\nbench\r\n$1\r\nx\r\n"; string(asRESP("SADD", respSet, "x")) != want {
		t.Errorf("%q", asRESP("SADD", respSet, "x"))
	}
}
