package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/asked"
	"blockd/internal/testkit/redisserver"
	"blockd/policy/ask"
	"blockd/policy/ask/redis"
)

func open(t testing.TB, o redis.Options) *redis.Store {
	t.Helper()
	s := testkit.Value(redis.Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestKinds(t *testing.T) {
	server := redisserver.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Address, Protocol: 2})
	defer client.Close()
	ctx := t.Context()
	client.SAdd(ctx, "set", "a@b.example", "d.example")
	client.ZAdd(ctx, "zset", goredis.Z{Member: "d.example", Score: 3})
	client.HSet(ctx, "hash", "a@b.example", "sold addresses", "d.example", "allow\t4102444800\t17\twhy")
	client.HSet(ctx, "{blockd:own}:e", "a@b.example", "block\t\t4711\twhy", "b.example", "allow")
	client.Set(ctx, "text", "x", 0)
	for _, tt := range []struct{ key, want string }{
		{"set", "a@b.example: a@b.example||0||\nb.example:\nd.example: d.example||0||\n"},
		{"zset", "a@b.example:\nb.example:\nd.example: d.example||0||\n"},
		{"hash", "a@b.example: a@b.example||0||sold addresses\nb.example:\nd.example: d.example|allow|4102444800|17|why\n"},
		{"", "a@b.example: a@b.example|block|0|4711|why\nb.example: b.example|allow|0||\nd.example:\n"},
	} {
		asked.WantAnswer(t, tt.key, open(t, redis.Options{DSN: server.URL(), List: "own", Key: tt.key}), []string{"a@b.example", "b.example", "d.example"}, tt.want, "")
	}
	one := []string{"a@b.example"}
	for _, key := range []string{"text", "none"} {
		asked.WantAnswer(t, key, open(t, redis.Options{DSN: server.URL(), Key: key}), one, "", "")
	}
	s := open(t, redis.Options{DSN: server.URL(), Key: "set"})
	asked.WantAnswer(t, "a set", s, one, "a@b.example: a@b.example||0||\n", "")
	client.Del(ctx, "set")
	asked.WantAnswer(t, "a set that has gone", s, one, "", "")
	client.HSet(ctx, "set", "a@b.example", "")
	asked.WantAnswer(t, "a key of another type", s, one, "", "")
	asked.WantAnswer(t, "once its type is known", s, one, "a@b.example: a@b.example||0||\n", "")
}

func TestShards(t *testing.T) {
	server := redisserver.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Address, Protocol: 2})
	defer client.Close()
	for i := range 4 {
		client.HSet(t.Context(), fmt.Sprintf("{blockd:own:%d}:e", i), fmt.Sprintf("only%d.example", i), "block")
	}
	var texts []string
	for i := range 100 {
		texts = append(texts, fmt.Sprintf("u%d@b.example", i))
	}
	got, err := open(t, redis.Options{DSN: server.URL(), List: "own", Shards: 4}).Ask(t.Context(), texts)
	if err != nil || len(got) != len(texts) || slices.ContainsFunc(got, func(a ask.Answer) bool { return a.Rows != nil }) || got[99].Text != texts[99] {
		t.Errorf("%v %s", err, asked.Say(got))
	}
}

func TestAwayTellsNoPassword(t *testing.T) {
	s := open(t, redis.Options{DSN: "redis://:hunter2@127.0.0.1:1", Key: "k"})
	asked.WantAnswer(t, s.String(), s, []string{"a"}, "", "hunter2")
	if strings.Contains(s.String(), "hunter2") {
		t.Error(s)
	}
}

// scripted is a server that answers one command as a test says, and all others as a Redis with a set does.
func scripted(t *testing.T, answer string) string {
	l := testkit.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			all.Go(func() { defer stop(); defer conn.Close(); serve(conn, answer) })
		}
	})
	return "redis://" + l.Addr().String()
}

func serve(conn net.Conn, answer string) {
	in := bufio.NewReader(conn)
	for {
		var words []string
		head, err := in.ReadString('\n')
		if err != nil {
			return
		}
		n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "*")))
		for range n {
			size, _ := in.ReadString('\n')
			k, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(size, "$")))
			text := make([]byte, k+2)
			if _, err := io.ReadFull(in, text); err != nil {
				return
			}
			words = append(words, string(text[:k]))
		}
		reply := "+OK\r\n"
		switch strings.ToUpper(words[0]) {
		case "CLUSTER":
			reply = "-ERR This instance has cluster support disabled\r\n"
		case "HELLO":
			reply = "-ERR unknown command\r\n"
		case "TYPE":
			reply = "+set\r\n"
		case "EXISTS":
			reply = ":1\r\n"
		case "SMISMEMBER":
			if reply = answer; answer == "hangs" {
				continue
			}
		}
		if _, err := io.WriteString(conn, reply); err != nil || answer == "cut" && reply == answer {
			return
		}
	}
}

// TestWrongAnswers: of all that a server can answer, only what says so is a yes, and only what says so is a no.
func TestWrongAnswers(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{"*2\r\n:1\r\n:0\r\n", "a@b.example: a@b.example||0||\nb.example:\n"},
		{"*2\r\n:0\r\n:0\r\n", "a@b.example:\nb.example:\n"},
		{"*1\r\n:1\r\n", ""}, {"*3\r\n:1\r\n:0\r\n:0\r\n", ""}, {"*0\r\n", ""}, {"*-1\r\n", ""}, {"$-1\r\n", ""},
		{"*2\r\n:2\r\n:0\r\n", ""}, {"*2\r\n:-1\r\n:0\r\n", ""}, {"*2\r\n$1\r\n0\r\n:0\r\n", ""}, {"*2\r\n$-1\r\n:0\r\n", ""},
		{":0\r\n", ""}, {"+OK\r\n", ""}, {"$2\r\n00\r\n", ""}, {"*2\r\n*0\r\n*0\r\n", ""},
		{"*2\r\n-ERR one\r\n:0\r\n", ""},
		{"-LOADING Redis is loading the dataset in memory\r\n", ""}, {"-READONLY You can't write against a read only replica.\r\n", ""},
		{"-CLUSTERDOWN The cluster is down\r\n", ""}, {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", ""},
		{"-MOVED 1 127.0.0.1:1\r\n", ""}, {"-ASK 1 127.0.0.1:1\r\n", ""}, {"-NOAUTH Authentication required.\r\n", ""}, {"-MASTERDOWN Link with MASTER is down\r\n", ""},
		{"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", ""}, {"-BUSY Redis is busy running a script\r\n", ""},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", ""}, {"\x00\xff\xfe\r\n", ""}, {"*1000000000\r\n", ""}, {"$1000000000\r\n", ""},
		{"cut", ""}, {"hangs", ""},
	} {
		t.Run(strings.TrimSpace(tt.answer), func(t *testing.T) {
			s := open(t, redis.Options{DSN: scripted(t, tt.answer), Key: "set"})
			asked.WantAnswer(t, tt.answer, patient{s}, []string{"a@b.example", "b.example"}, tt.want, "")
		})
	}
}

// patient is a store whose questions end.
type patient struct{ *redis.Store }

func (p patient) Ask(ctx context.Context, texts []string) ([]ask.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return p.Store.Ask(ctx, texts)
}

func TestServerDiesAndHangs(t *testing.T) {
	server := redisserver.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Address, Protocol: 2})
	defer client.Close()
	client.SAdd(t.Context(), "set", "a@b.example")
	info := testkit.Value(client.Info(t.Context(), "server").Result())(t)
	_, text, _ := strings.Cut(info, "process_id:")
	text, _, _ = strings.Cut(text, "\r\n")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 1 || pid == os.Getpid() {
		t.Fatalf("process %q: %v", text, err)
	}
	asked.DiesAndHangs(t, asked.Server{Store: open(t, redis.Options{DSN: server.URL(), Key: "set"}), Stop: func() { testkit.Stop(t, pid) },
		GoOn: func() { testkit.Must(t, syscall.Kill(pid, syscall.SIGCONT)) }, Kill: server.Kill})
}

// BenchmarkConfirm asks a local server for the six texts of a sender with four keys, of a set of a hundred thousand.
func BenchmarkConfirm(b *testing.B) {
	server := redisserver.Start(b)
	client := goredis.NewClient(&goredis.Options{Addr: server.Address, Protocol: 2})
	defer client.Close()
	for i := range 1000 {
		members := make([]any, 100)
		for j := range members {
			members[j] = fmt.Sprintf("u%d@b%d.example", i, j)
		}
		client.SAdd(b.Context(), "set", members...)
	}
	asked.BenchmarkConfirm(b, open(b, redis.Options{DSN: server.URL(), Key: "set"}))
}
