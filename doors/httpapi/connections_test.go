package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/doors/httpapi/fastpath"
	"blockd/internal/testkit"
)

// inBubble serves f on pipes in a synctest bubble.
func (f *fixture) inBubble(t *testing.T, test func(p *testkit.Pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := testkit.NewPipes(), make(chan error)
		ctx, stop := context.WithCancel(context.Background())
		go func() { ended <- f.Serve(ctx, p) }()
		defer func() { // after t.Fatal too: a bubble must not be left with goroutines in it
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Serve = %v", err)
			}
		}()
		test(p)
	})
}

// lasts says how long the server leaves a connection open.
func lasts(conn net.Conn) time.Duration {
	begun := time.Now()
	io.Copy(io.Discard, conn)
	return time.Since(begun)
}

func TestSlowClientsAreCutOff(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	const post = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
	for _, tt := range []struct {
		name, first, drip string
		within            time.Duration
	}{
		{"says nothing", "", "", headerTimeout},
		{"a header that never ends", "GET /v1/check HTTP/1.1\r\nHost: localhost\r\n", "X-a: b\r\n", headerTimeout},
		{"a body octet by octet", post, " ", requestTimeout},
		{"a body that no handler sees", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n", " ", requestTimeout},
		{"a body behind what net/http refuses", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\nContent-Length: 4000\r\n\r\n", "", requestTimeout},
		{"a stream that stands still", strings.Replace(strings.Replace(post, "json", "x-ndjson", 1), "4000000", "4000001", 1), "", streamIdle},
		{"an idle connection", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "", idleTimeout},
		{"an idle connection of checks", plainCheck, "", idleTimeout + fastpath.Slack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.inBubble(t, func(p *testkit.Pipes) {
				conn, said := p.Dial("192.0.2.1"), make(chan struct{})
				defer func() { conn.Close(); <-said }()
				go func() {
					defer close(said)
					io.WriteString(conn, tt.first)
					for tt.drip != "" {
						time.Sleep(time.Second)
						if _, err := io.WriteString(conn, tt.drip); err != nil {
							return
						}
					}
				}()
				if got := lasts(conn); got > tt.within+time.Second {
					t.Errorf("cut off after %v, want %v", got, tt.within)
				}
			})
		})
	}
}

func TestConnectionsOfOneClient(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 4, MaxPerClient: 2}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		open := []net.Conn{p.Dial("192.0.2.1"), p.Dial("192.0.2.1")}
		synctest.Wait()
		third := p.Dial("::ffff:192.0.2.1")
		synctest.Wait()
		testkit.Equal(t, "the third of one client lasts", lasts(third), 0)
		other := p.Dial("192.0.2.2")
		defer other.Close()
		if !answers(t, other) {
			t.Error("another client is refused")
		}
		open[0].Close()
		synctest.Wait()
		again := p.Dial("192.0.2.1")
		defer again.Close()
		if !answers(t, again) {
			t.Error("refused though one has gone")
		}
		open[1].Close()
	})
}

// slowPost is a request whose header is whole and whose body does not come.
const slowPost = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"

func TestConnectionsBeyondAllRequestsWait(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 2}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		first, second := p.Dial("192.0.2.1"), p.Dial("192.0.2.2")
		io.WriteString(first, slowPost)
		io.WriteString(second, slowPost)
		synctest.Wait()
		third := p.Dial("192.0.2.3")
		defer third.Close()
		answered := make(chan bool)
		go func() { answered <- answers(t, third) }()
		synctest.Wait()
		select {
		case <-answered:
			t.Error("answered beyond the bound")
		default:
		}
		first.Close()
		if !<-answered {
			t.Error("not answered when a place was free")
		}
		second.Close()
	})
}

// TestHalfARequestKeepsNobodyOut has two clients take all places with half a request line,
// and take them again as they lose them: everybody else is answered.
func TestHalfARequestKeepsNobodyOut(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 16, MaxPerClient: 8}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		var held []net.Conn
		attack := func() {
			for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
				for range 8 {
					conn := p.Dial(ip)
					go io.WriteString(conn, "GET /rea")
					held = append(held, conn)
				}
				synctest.Wait()
			}
		}
		attack()
		for n := range 40 {
			conn, begun := p.Dial(fmt.Sprintf("198.51.100.%d", n)), time.Now()
			if !answers(t, conn) || time.Since(begun) > time.Second {
				t.Fatalf("client %d is answered after %v, if at all", n, time.Since(begun))
			}
			if n%4 == 0 {
				attack()
			}
			if n%2 == 0 {
				conn.Close()
			} else {
				held = append(held, conn)
			}
		}
		for _, conn := range held {
			conn.Close()
		}
	})
}

// TestAReserveForOthers has two clients keep as many requests under way as they may.
func TestAReserveForOthers(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 16, MaxPerClient: 8}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		var held []net.Conn
		for range 8 {
			for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
				conn := p.Dial(ip)
				go io.WriteString(conn, slowPost)
				synctest.Wait()
				held = append(held, conn)
			}
		}
		for _, ip := range []string{"198.51.100.1", "2001:db8::1"} {
			conn, begun := p.Dial(ip), time.Now()
			if !answers(t, conn) || time.Since(begun) > time.Second {
				t.Errorf("%s is answered after %v, if at all", ip, time.Since(begun))
			}
			held = append(held, conn)
		}
		for _, conn := range held {
			conn.Close()
		}
	})
}

// TestWhoHasMoreGivesItsPlace: an idle connection of a client that has one outlasts what
// a client opens that has many.
func TestWhoHasMoreGivesItsPlace(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 8, MaxPerClient: 6}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		one := p.Dial("198.51.100.1")
		defer one.Close()
		if !answers(t, one) {
			t.Fatal("not answered")
		}
		var held []net.Conn
		for range 50 {
			conn := p.Dial("192.0.2.1")
			synctest.Wait()
			held = append(held, conn)
		}
		if !answers(t, one) {
			t.Error("an idle connection had to go for a client with many")
		}
		for _, conn := range held {
			conn.Close()
		}
	})
}

// answers reports whether a request on conn has an answer.
func answers(t *testing.T, conn net.Conn) bool {
	go io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Log(err)
		}
		return false
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err == nil && res.StatusCode == http.StatusOK
}
