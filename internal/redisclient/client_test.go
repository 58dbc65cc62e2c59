package redisclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// Whatever a server answers, the error is one line without the password, and this process lives.
func TestRubbish(t *testing.T) {
	for _, answer := range []string{
		"", "\r\n", "$999999999999999999\r\n", "$99999999999\r\n", "*999999999999\r\n", "*1\r\n", "$-9\r\n", "$x\r\n",
		strings.Repeat("*1\r\n", 1000), strings.Repeat("x", 1<<20), "+" + strings.Repeat("x", 1<<20) + "\r\n", "$5\r\nab",
		"220 mail.example ESMTP\r\n", "-ERR user:s3cr3t is wrong\r\n", "-ERR \x1b[2J\r\n", "%1\r\n", "_\r\n", "(1\r\n", ">1\r\n+x\r\n", "=3\r\nx\r\n", "\x00\r\n",
	} {
		c, err := New(Options{URL: "redis://user:s3cr3t@" + redisserver.Saying(t, answer), Timeout: 50 * time.Millisecond})
		testkit.Must(t, err)
		if _, err = c.Connect(t.Context()); err == nil || strings.ContainsAny(err.Error(), "\r\n\x1b") || strings.Contains(err.Error(), "s3cr3t") || len(err.Error()) > 400 {
			t.Errorf("%.40q: %v", answer, err)
		}
		c.Close()
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n*1\r\n:1\r\n+x\r\n"), 3)
	f.Fuzz(func(t *testing.T, answer []byte, at int) {
		at = max(0, min(at, len(answer)))
		whole, parts := &guarded{}, &guarded{}
		fine := whole.check(answer)
		if inParts := parts.check(answer[:at]) && parts.check(answer[at:]); fine != inParts {
			t.Fatalf("%v as a whole, %v in parts", fine, inParts)
		}
		if fine && (fmt.Sprint(whole.open) != fmt.Sprint(parts.open) || whole.text != parts.text) {
			t.Fatal("another state")
		}
	})
}

// An error lets a Cluster's state be read anew, a wrong question does not.
func TestMovedAway(t *testing.T) {
	for text, want := range map[string]bool{"MOVED 1 h:1": true, "CLUSTERDOWN Hash slot not served": true, "READONLY x": true, "LOADING": true,
		"WRONGTYPE x": false, "MOVEDX": false, "ERR MOVED": false} {
		if err := (reply)(text); movedAway(fmt.Errorf("in a pipeline: %w", err)) != want {
			t.Error(text)
		}
	}
	if !movedAway(&net.OpError{Op: "dial", Err: errors.New("refused")}) || !movedAway(context.DeadlineExceeded) || movedAway(context.Canceled) || movedAway(redis.Nil) || movedAway(nil) {
		t.Error("errors of the network")
	}
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h":                                  "redis://h:6379",
		"redis://u:secret@h:1/2":                     "redis://h:1/2",
		"rediss://:secret@[::1]":                     "rediss://[::1]:6379",
		"unix:///run/redis.sock?db=2":                "unix:///run/redis.sock?db=2",
		"redis-sentinel://:secret@a,b:1/m/2":         "redis-sentinel://a:26379,b:1/m/2",
		"rediss-sentinel://a/m":                      "rediss-sentinel://a:26379/m",
		"http://h":                                   "error: want a URL that begins with",
		"redis://":                                   "error: the URL cannot be read",
		"redis://:secret/x@h":                        "error: the URL cannot be read",
		"redis://:secret%@h":                         "error: the URL cannot be read",
		"redis://:secret#x@h":                        "error: the URL cannot be read",
		"redis://:secret?x@h":                        "error: the URL cannot be read",
		"redis://h/secret":                           "error: want a number as the database",
		"redis://a,b:1,[::1]":                        "redis://a:6379,b:1,[::1]:6379",
		"redis://u:secret@a,b/1":                     "error: a Cluster has the database 0 alone",
		"redis://a,,b":                               "error: the URL cannot be read",
		"redis://a,secret@b/c@d":                     "error: want a number as the database",
		"redis://a,u:secret/b@c":                     "error: the URL cannot be read",
		"rediss://h?tls=skip-verify":                 "rediss://h:6379",
		"rediss://u:p%2F@h?tls=skip-verify&tls_key=": "error: a parameter of the URL is not known",
		"redis://h:1?tls_ca=/etc/secret":             "error: certificates go with TLS",
		"rediss://h/1?tls=secret":                    "error: a parameter of the URL is not known",
		"rediss://h/1?tls_ca=a&tls_ca=secret":        "error: a parameter of the URL is not known",
		"redis://u:secret@h/?tls=skip-verify":        "error: certificates go with TLS",
		"redis://secret?a@h":                         "error: a parameter of the URL is not known",
		"redis://1?secret@h":                         "error: a parameter of the URL is not known",
		"redis-sentinel://a":                         "error: want redis-sentinel://HOST:PORT/MASTER",
		"unix://run/redis.sock":                      "error: want unix:///PATH",
		"redis://h:port":                             "error: the URL cannot be read",
	} {
		_, shown, err := Options{URL: url}.parse()
		if err != nil {
			shown = "error: " + err.Error()
		}
		if !strings.HasPrefix(shown, want) || err == nil && shown != want || strings.Contains(shown, "secret") {
			t.Errorf("%s: %s, want %s", url, shown, want)
		}
	}
	if _, _, err := (Options{URL: "redis://h", CAFile: "x"}).parse(); err == nil {
		t.Error("a CA without TLS")
	}
	if _, _, err := (Options{URL: "rediss://h", CAFile: filepath.Join(t.TempDir(), "gone")}).parse(); err == nil {
		t.Error("a CA that is not there")
	}
}
