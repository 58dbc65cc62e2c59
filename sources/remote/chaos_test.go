package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

const good = "HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n" + list

// A server that says whatever it likes, octet for octet.
func TestWhateverAServerSaysTheCopyIsWholeOrUntouched(t *testing.T) {
	endless := func(before, again string) func(net.Conn) {
		return func(c net.Conn) {
			if !readRequest(c) {
				return
			}
			io.WriteString(c, before)
			for {
				if _, err := io.WriteString(c, again); err != nil {
					return
				}
			}
		}
	}
	tests := []struct {
		name  string
		serve func(net.Conn)
		class Class // "": is fetched
		text  string
	}{
		{"a good answer", answers(good), "", ""},
		{"a good answer with something behind it", answers(good + "HTTP/1.1 200 OK\r\n\r\n"), "", ""},
		{"chunks", answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + list + "\r\n0\r\n\r\n"), "", ""},
		{"HTTP/1.0 with a length", answers("HTTP/1.0 200 OK\r\nContent-Length: 26\r\n\r\n" + list), "", ""},
		{"a hint before the answer", answers("HTTP/1.1 103 Early Hints\r\n\r\n" + good), "", ""},
		{"an odd reason", answers("HTTP/1.1 200 \x1b[31mfine\r\nContent-Length: 26\r\n\r\n" + list), "", ""},

		{"closed at once", func(net.Conn) {}, Unreachable, ""},
		{"closed after the request", answers(""), Unreachable, "closed the connection without an answer"},
		{"closed in the status line", answers("HTTP/1.1 20"), Unreachable, `malformed HTTP status code "20"`},
		{"closed in the header", answers("HTTP/1.1 200 OK\r\nContent-Le"), Unreachable, `missing colon: "Content-Le"`},
		{"closed before the body", answers("HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n"), Truncated, "cut after 0 octets"},
		{"closed in the body", answers(good[:len(good)-1]), Truncated, "cut after 25 octets"},
		{"closed in a chunk", answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + list[:9]), Truncated, "cut after 9 octets"},
		{"closed before the last chunk", answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + list + "\r\n"), Truncated, "cut after 26 octets"},
		{"closed behind the last chunk's number", answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + list + "\r\n0\r\n"), Truncated, "cut after 26 octets"},
		{"a chunk of a wrong size", answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n19\r\n" + list + "\r\n0\r\n\r\n"), Truncated, "cut after"},
		{"a body that ends with the connection", answers("HTTP/1.1 200 OK\r\n\r\n" + list), Truncated, "a cut would go unseen"},
		{"the same from HTTP/1.0", answers("HTTP/1.0 200 OK\r\n\r\n" + list), Truncated, "a cut would go unseen"},

		{"the same from an HTTP that never was", answers("HTTP/0.9 200 OK\r\n\r\n" + list), Truncated, "a cut would go unseen"},

		{"no HTTP", answers("220 mail.example ESMTP\r\n"), Unreachable, "malformed HTTP"},
		{"a length that is none", answers("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n" + list), Unreachable, "Content-Length"},
		{"two lengths", answers("HTTP/1.1 200 OK\r\nContent-Length: 26\r\nContent-Length: 5\r\n\r\n" + list), Unreachable, "Content-Length"},
		{"a length beyond all numbers", answers("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"), Unreachable, "Content-Length"},
		{"a length of a million terabytes", answers("HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n"), TooBig, "larger than"},
		{"switching protocols", answers("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), Status, "101"},
		{"hints without end", endless("", "HTTP/1.1 103 Early Hints\r\n\r\n"), Unreachable, ""},
		{"header without end", endless("HTTP/1.1 200 OK\r\n", "X-More: yes\r\n"), Unreachable, "exceeded"},
		{"a header line without end", endless("HTTP/1.1 200 OK\r\nX-Long: ", "yes and "), Unreachable, ""},
		{"a status line without end", endless("HTTP/1.1 200 ", "yes and "), Unreachable, ""},
		{"chunks without end", endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1a\r\n"+list+"\r\n"), TooBig, "larger than"},
		{"a chunk's extension without end", endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1a;"+strings.Repeat("x", 900)), Truncated, ""},
		{"trailers without end", endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n"+list+"\r\n0\r\n", "X-More: yes\r\n"), Truncated, ""},

		{"silent at once", func(c net.Conn) { io.Copy(io.Discard, c) }, Timeout, "timeout awaiting response headers"},
		{"silent and deaf", func(net.Conn) { <-time.After(time.Hour) }, Timeout, ""},
		{"silent in the status line", hangsAfter("HTTP/1.1 2"), Timeout, ""},
		{"silent in the header", hangsAfter("HTTP/1.1 200 OK\r\nContent-Length: 26\r\n"), Timeout, ""},
		{"silent before the body", hangsAfter("HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n"), Timeout, "silent for 1m0s"},
		{"silent in the body", hangsAfter(good[:len(good)-1]), Timeout, "sent 25 of at least 65536 octets in 1m0s"},
		{"silent before the last chunk", hangsAfter("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + list + "\r\n"), Timeout, "sent 26 of at least 65536 octets in 1m0s"},
		{"silent in a redirect's body", hangsAfter("HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 9\r\n\r\n"), Timeout, "silent for 1m0s"},
		{"an octet every 59 seconds", drips(59*time.Second, "x"), Timeout, "sent 1 of at least"},
		{"an octet a second", drips(time.Second, "x"), Timeout, "of at least 65536 octets in 1m0s"},
		{"64 kB in 59 seconds, again and again", drips(59*time.Second, strings.Repeat("x", leastOctets)), Timeout, "not done within 10m0s"},
	}
	for _, tt := range tests {
		for _, existed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,existed=%t", tt.name, existed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := newFixture(t, Source{URL: "http://lists.example/spam.txt", Insecure: true, MaxBytes: 1_000_000})
					x.raw(tt.serve)
					if existed {
						x.write("old.example\n")
					}
					began := time.Now()
					if tt.class == "" {
						x.fetch()
						x.holds(list)
						x.tidy()
					} else {
						x.refuses(tt.class, tt.text)
					}
					most := silence + answerTime + time.Second
					if strings.Contains(tt.text, "not done") {
						most = 10*time.Minute + time.Second
					}
					testkit.AtMost(t, "time", time.Since(began), most)
					<-time.After(2 * time.Hour) // the deaf server has gone, and no goroutine of ours may be left
				})
			})
		}
	}
}

// drips says text again and again, with a pause before each.
func drips(pause time.Duration, text string) func(net.Conn) {
	return func(c net.Conn) {
		answers("HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n")(c)
		for {
			<-time.After(pause)
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

func TestAHostThatDoesNotAnswerAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "https://lists.example/spam.txt"})
		x.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			<-time.After(5 * time.Minute) // a system's own patience
			return nil, net.ErrClosed
		}
		began := time.Now()
		x.refuses(Timeout, "silent for 1m0s")
		testkit.Equal(t, "took", time.Since(began), silence)
		<-time.After(10 * time.Minute)
	})
}

func TestAServerThatStopsWithinTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "https://lists.example/spam.txt"})
		x.raw(func(c net.Conn) { io.Copy(io.Discard, c) })
		began := time.Now()
		x.refuses(Timeout, "TLS handshake timeout")
		testkit.Equal(t, "took", time.Since(began), connectTime)
	})
}

func TestAnOldTLSIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "https://lists.example/spam.txt"})
		x.raw(func(c net.Conn) {
			tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
		})
		x.refuses(Unreachable, "protocol version not supported")
	})
}

// The time of a checksum counts too, and so does that of Check.
func TestTheWholeFetchHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt", Checksum: "sha256:.sha256", Timeout: 10 * time.Second})
		x.raw(func(c net.Conn) {
			<-time.After(6 * time.Second)
			answers(good)(c)
		})
		x.refuses(Timeout, "not done within 10s")

		x = newFixture(t, Source{URL: "http://127.0.0.1/spam.txt", Timeout: 10 * time.Second, Check: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		x.raw(answers(good))
		x.refuses(Timeout, "not done within 10s")
	})
}

func TestABodyThatCannotBeSeenToEndIsTakenByItsChecksum(t *testing.T) {
	for body, class := range map[string]Class{list: "", list[:20]: Checksum} {
		synctest.Test(t, func(t *testing.T) {
			x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt", Checksum: "sha256:" + sumOf(list)})
			x.raw(answers("HTTP/1.0 200 OK\r\n\r\n" + body))
			if class != "" {
				x.refuses(class, "")
				return
			}
			x.fetch()
			x.holds(list)
		})
	}
}

func TestTheEndOfTheDaemonIsNoFault(t *testing.T) {
	for _, at := range []struct {
		name  string
		serve func(net.Conn)
	}{
		{"before an answer", func(c net.Conn) { io.Copy(io.Discard, c) }},
		{"within the body", hangsAfter(good[:len(good)-1])},
	} {
		t.Run(at.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
				x.raw(at.serve)
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				began := time.Now()
				testkit.Must(t, x.Run(ctx))
				testkit.Equal(t, "time of Run", time.Since(began), time.Second)
				x.counted(0, 0, 0, 0)
				x.tidy()
				testkit.Equal(t, "log", x.log.String(), "")
			})
		})
	}
}

func TestTheEndOfTheDaemonIsNoRecoveryEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
		ctx, stop := context.WithCancel(t.Context())
		requests := 0
		x.raw(func(c net.Conn) {
			if requests++; requests == 1 {
				answers("HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")(c)
				return
			}
			readRequest(c)
			stop()
		})
		x.Run(ctx)
		x.counted(0, 0, 1, 0)
		testkit.Equal(t, x.log.String(), strings.Count(x.log.String(), "\n"), 1)
	})
}

func TestOnlySoManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		x := newFixture(t, Source{URL: "http://127.0.0.1/x"}, func(s *Settings) {
			s.Sources = nil
			for i := range 3 * maxFetches {
				s.Sources = append(s.Sources, Source{Name: fmt.Sprint(i), URL: "http://127.0.0.1/x", Path: fmt.Sprint(dir, "/", i)})
			}
		})
		var mu sync.Mutex
		var now, most int
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
		}
		stop := x.serving(func(w http.ResponseWriter, _ *http.Request) {
			count(1)
			<-time.After(time.Second)
			count(-1)
			io.WriteString(w, list)
		})
		defer stop()
		began := time.Now()
		testkit.Must(t, x.Fetch(t.Context()))
		took := time.Since(began)
		testkit.Got(took, most)(t, "time for all, and fetches at a time", 3*time.Second, maxFetches)
	})
}
