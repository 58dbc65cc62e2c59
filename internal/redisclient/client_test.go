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
		whole, parts := &guarded{most: 100}, &guarded{most: 100}
		fine := whole.check(answer) == nil
		if inParts := parts.check(answer[:at]) == nil && parts.check(answer[at:]) == nil; fine != inParts {
			t.Fatalf("%v as a whole, %v in parts", fine, inParts)
		}
		if fine && fmt.Sprint(*whole) != fmt.Sprint(*parts) {
			t.Fatal("another state")
		}
	})
}

// A server that answers the first question as an old one does, and then whatever it likes, neither ends this process
// nor takes its memory: announced lengths of all types, of protocol 2 and of 3, and answers that never end.
func TestHostileAnswers(t *testing.T) {
	answers := []string{
		"*1\r\n*262144\r\n", "*2\r\n$67108864\r\n", "$67108865\r\n", "*262145\r\n", "*1\r\n*9223372036854775807\r\n",
		strings.Repeat("*2\r\n", 40), "+" + strings.Repeat("x", 70_000), ":99999999999999999999\r\n", "*2\r\n:1\r\n",
	}
	for _, kind := range "+-:$*_,#!=(%~|>.;xX\x00\n" {
		for _, length := range []string{"9223372036854775807", "9223372036854775800", "40000000000", "4294967296", "1073741824", "-9223372036854775808", "?", ""} {
			answers = append(answers, string(kind)+length+"\r\n", "*2\r\n+x\r\n"+string(kind)+length+"\r\n")
		}
	}
	for _, scheme := range []string{"redis://%s", "redis://%[1]s,%[1]s", "redis-sentinel://%s/master"} {
		for _, answer := range answers {
			address := redisserver.SayingInTurn(t, "-ERR unknown command 'hello'\r\n", answer)
			c := testkit.Value(New(Options{URL: fmt.Sprintf(scheme, address), Timeout: 20 * time.Millisecond}))(t)
			if client, err := c.Connect(t.Context()); err == nil {
				err = client.Do(t.Context(), "GET", "x").Err()
				if explained := c.Explain(err); err != nil && strings.ContainsAny(explained.Error(), "\r\n") {
					t.Errorf("%s, %.40q: %v", scheme, answer, err)
				}
			} else if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s, %.40q: %v", scheme, answer, err)
			}
			c.Close()
		}
	}
}

// What an answer may take is bounded by what it has, too: texts, arrays of arrays, and lines.
func TestAnswersAreBounded(t *testing.T) {
	for _, tt := range []struct {
		answer string
		want   error
	}{
		{"*2\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n", nil},
		{"*3\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n$40\r\n" + strings.Repeat("x", 40) + "\r\n$40\r\n", errAnswer},
		{strings.Repeat("$90\r\n"+strings.Repeat("x", 90)+"\r\n", 10), nil},
		{"$101\r\n", errAnswer},
		{strings.Repeat("*20\r\n", 31), errAnswer},
		{"*60\r\n" + strings.Repeat(":1\r\n", 60), errAnswer},
		{"*0\r\n*-1\r\n$-1\r\n$0\r\n\r\n+\r\n", nil},
		{"*0\r\n%0\r\n", errProtocol},
		{"*0\r\n*x\r\n", errProtocol},
		{"\r\n", errProtocol},
	} {
		testkit.Equal(t, fmt.Sprintf("%.40q", tt.answer), (&guarded{most: 100}).check([]byte(tt.answer)), tt.want)
	}
}

// A Cluster that names more nodes than any has is an error before a client is made of each.
func TestClusterOfTooManyNodes(t *testing.T) {
	var state strings.Builder
	fmt.Fprintf(&state, "*%d\r\n", maxNodes+1)
	for i := range maxNodes + 1 {
		fmt.Fprintf(&state, "*3\r\n:%d\r\n:%[1]d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", i, 1000+i)
	}
	// Both say so: a Cluster's client asks in any order, and tells the first error.
	node := func() string { return redisserver.SayingInTurn(t, "-ERR unknown command 'hello'\r\n", state.String()) }
	c := testkit.Value(New(Options{URL: "redis://" + node() + "," + node(), Timeout: time.Minute}))(t)
	defer c.Close()
	if _, err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "a Cluster of 1001 nodes, and at most 1000 are taken") {
		t.Error(err)
	}
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
