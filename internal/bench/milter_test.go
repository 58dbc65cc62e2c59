package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestMilterTalk(t *testing.T) {
	address := serveOne(t, passAll)
	m, err := dialMilter(net.Dialer{}, address)
	testkit.Must(t, err)
	defer m.conn.Close()
	for range 3 {
		if _, _, err := m.mail(clearSender, milterAccept); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := m.mail(clearSender, milterContinue); err == nil || !strings.Contains(err.Error(), `answer 'a'`) {
		t.Errorf("an accept where none was wanted: %v", err)
	}
	if _, err := timeEvents(address, 10, []string{"a@listed.bench.test"}); err == nil {
		t.Error("events of a listed sender were timed at a milter that passes all")
	}
}

func TestAskPolicyChecksTheAnswers(t *testing.T) {
	listed := []string{"a@listed.bench.test", "b@listed.bench.test"}
	for _, connections := range policyConnections {
		if seconds, err := askPolicy(serveOne(t, dunnoAll), connections, 400, listed); err != nil || seconds <= 0 {
			t.Errorf("%d connections: %g s, %v", connections, seconds, err)
		}
	}
	lax := serveOne(t, func(conn net.Conn) {
		defer conn.Close()
		conn.Read(make([]byte, 4096))
		io.WriteString(conn, "action=DUNNO\n\n")
	})
	if _, err := askPolicy(lax, 1, 10, listed); err == nil || !strings.Contains(err.Error(), "a@listed.bench.test: answer") {
		t.Errorf("DUNNO about a listed sender: %v", err)
	}
}

func TestAnswerNobody(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer conn.Close()
	go answerNobody(conn)
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	_, err = r.LookupHost(t.Context(), "name.bench.test.")
	var answer *net.DNSError
	if !errors.As(err, &answer) || !answer.IsNotFound {
		t.Errorf("LookupHost: %v, want that there is no such name", err)
	}
}

func TestMilterGoals(t *testing.T) {
	r := newMilterDoor()
	for _, load := range []float64{1, 3, 2} {
		r.accepted.add(nameBlockd, milteredNew, 900/load)
		r.accepted.add(nameNoMilter, milteredNew, 990/load)
		r.accepted.add(nameRspamd, milteredNew, 301/load)
	}
	r.policy.add(nameBlockd, 0, 20_001)
	r.policy.add(nameBlockd, 1, 49_999)
	for column := range 2 * len(timedEvents) {
		r.latency.add(nameBlockd, column, 99)
	}
	got := goalsMarkdown(r.goals())
	testkit.Has(t, got,
		"| accepted mails, new connections | ≥ 0.9× Postfix alone | 0.91× | met |", "| ≥ 3× with rspamd, Debian's defaults | 2.99× | **missed** |",
		"| policy service, one connection | ≥ 20,000 a second | 20,001 a second | met |", "49,999 a second | **missed** |",
		"| MAIL, p50 | ≤ 100 µs | 99 µs | met |", "not measured")
}
