package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestQuantile(t *testing.T) {
	s := series{}
	for i := range 200 {
		s = append(s, float64(200-i))
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		testkit.Equal(t, fmt.Sprintf("quantile(%g) of 1..200", q), s.quantile(q), want)
	}
	testkit.Equal(t, "quantile of one", (series{7}).quantile(0.99), 7)
}

func TestParseStat(t *testing.T) {
	line := "4711 (a (b) c) S 42 1 1 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 100 1000 200"
	got, err := parseStat(line)
	if want := (process{4711, 42, 2.1}); err != nil || got.pid != want.pid || got.parent != want.parent || math.Abs(got.seconds-want.seconds) > 1e-9 {
		t.Errorf("parseStat(%q) = %v, %v, want %v", line, got, err, want)
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x) S 2 3", strings.Replace(line, "150", "x", 1)} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %v, want an error", bad, p)
		}
	}
}

func TestCPUIsOfAllBelow(t *testing.T) {
	all := map[int]process{
		1: {1, 0, 100}, 10: {10, 1, 1}, 11: {11, 10, 2}, 12: {12, 11, 4}, 20: {20, 1, 50},
	}
	testkit.Equal(t, "CPU below 10", cpuBelow(10, all), 7)
}

func TestGoalsCompareRoundByRound(t *testing.T) {
	r := newSMTPDoor()
	for _, load := range []float64{1, 3, 2} { // a load that comes and goes meets both of a round
		r.accepted.add(nameBlockd, acceptedNew, 900/load)
		r.accepted.add(nameHAProxy, acceptedNew, 1000/load)
		r.accepted.add(nameBlockd, acceptedNewCPU, 30*load)
		r.accepted.add(nameHAProxy, acceptedNewCPU, 10*load)
	}
	for _, tt := range []struct {
		got      goal
		measured string
		met      bool
	}{
		{r.accepted.versus("", acceptedNew, nameHAProxy, "HAProxy", 0.9), "0.90×", true},
		{r.accepted.versus("", acceptedNew, nameHAProxy, "HAProxy", 0.95), "0.90×", false},
		{r.accepted.versus("", acceptedNewCPU, nameHAProxy, "HAProxy", 2), "3.00×", false},
		{r.accepted.versus("", acceptedNew, namePostfix, "Postfix", 2), "", false},
		{atMost("", 3, "ms", 2.9, true), "2.9 ms", true},
		{atMost("", 3, "ms", 3.1, true), "3.1 ms", false},
	} {
		if tt.got.measured != tt.measured || tt.got.met != tt.met {
			t.Errorf("%s: measured %q, met %v, want %q, %v", tt.got.want, tt.got.measured, tt.got.met, tt.measured, tt.met)
		}
	}
	table := goalsMarkdown([]goal{{what: "a", want: "b"}, {what: "c", want: "d", measured: "e"}, {what: "f", want: "g", measured: "h", met: true}})
	testkit.Has(t, table, "| a | b | - | not measured |", "| c | d | e | **missed** |", "| f | g | h | met |")
}

// serveOne lets f serve the connections to an address until the test ends.
func serveOne(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l := testkit.Listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f(conn)
		}
	}()
	return l.Addr().String()
}

func TestRefusalsThroughThePipe(t *testing.T) {
	sink := serveOne(t, refuseAll)
	front := serveOne(t, func(conn net.Conn) { pipe(conn, sink) })
	for _, each := range []int{1, refusalsASession} {
		seconds, err := refusals(context.Background(), front, 500, each, []string{"a@listed.bench.test", "b@listed.bench.test"})
		if err != nil || seconds <= 0 {
			t.Errorf("refusals, %d a session: %g s, %v", each, seconds, err)
		}
	}
	talk, err := dialTalk(context.Background(), front)
	testkit.Must(t, err)
	defer talk.close()
	if err := talk.mail(map[string]series{}); err == nil || !strings.Contains(err.Error(), "550") {
		t.Errorf("mail to a server that refuses: %v, want its 550", err)
	}
}

func TestHeldSessionsAreCounted(t *testing.T) {
	address := serveOne(t, refuseAll)
	in, end := io.Pipe()
	out, said := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- holdSessions(context.Background(), address, 30, in, said) }()
	line := make([]byte, 16)
	n, err := out.Read(line)
	if err != nil || !bytes.Equal(line[:n], []byte("30\n")) {
		t.Errorf("held: %q, %v, want 30", line[:n], err)
	}
	end.Close()
	testkit.Should(t, <-done)
}
