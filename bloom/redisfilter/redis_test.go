package redisfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"blockd/internal/redisclient"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/selfsigned"
)

// shared is the server of the tests that need no other.
var shared = redisserver.Share()

func TestMain(m *testing.M) { shared.Main(m) }

// server is the shared one, and a client beside ours.
func server(t *testing.T) (*redisserver.Server, *redis.Client) {
	t.Helper()
	r := shared.Get(t)
	c := redis.NewClient(&redis.Options{Addr: r.Address})
	t.Cleanup(func() { c.Close() })
	return r, c
}

const patience = 2 * time.Minute

func connected(t *testing.T, o redisclient.Options) *Server {
	t.Helper()
	o.Timeout = patience
	s := testkit.Value(Dial(t.Context(), o))(t)
	t.Cleanup(s.Close)
	return s
}

func sender(i int) []byte { return fmt.Appendf(nil, "user%d@bulk%d.example", i, i%977) }

func silent(int64, int64) {}

// pushed puts the keys from..to under a name.
func pushed(ctx context.Context, s *Server, name, kind string, shards, from, to int, progress func(done, total int64)) error {
	t, err := s.Target(ctx, name, kind, shards)
	if err != nil {
		return err
	}
	f, err := t.New(uint64(to-from), 0.01)
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		f.Add(sender(i))
	}
	return t.Push(ctx, f, progress)
}

// holdsAll reads a filter back, and holds it to the keys from..to.
func holdsAll(t *testing.T, s *Server, name, kind string, from, to int) {
	t.Helper()
	f := testkit.Value(s.Fetch(t.Context(), name, silent))(t)
	absent, perhaps := 0, 0
	for i := from; i < to; i++ {
		if !f.Has(sender(i)) {
			absent++
		}
		if f.Has(sender(i + 10_000_000)) {
			perhaps++
		}
	}
	if f.Kind() != kind || absent > 0 || perhaps > (to-from)/40 {
		t.Errorf("%s is %s: %d of %d keys are absent, and of as many others %d perhaps", name, f.Kind(), absent, to-from, perhaps)
	}
}

// noRemains holds that nothing of a push is left but its filter.
func noRemains(t *testing.T, c *redis.Client, name string) {
	t.Helper()
	for _, part := range []string{"tmp", "claim"} {
		if keys, err := c.Keys(t.Context(), "*"+name+"*"+part+"*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("left behind: %q, %v", keys, err)
		}
	}
}

func TestPush(t *testing.T) {
	r, c := server(t)
	for _, at := range []string{r.URL(), "unix://" + r.Socket, r.URL() + "/3"} {
		s := connected(t, redisclient.Options{URL: at})
		for _, kind := range []string{"bitmap", "redisson"} {
			for _, shards := range []int{OneKey, 8, AsNeeded} {
				name := fmt.Sprintf("push-%s%d", kind, shards)
				for round := range 2 { // over the first, too
					testkit.MustEqual(t, name, pushed(t.Context(), s, name, kind, shards, round*100, 5_000+round*100, silent), nil)
					holdsAll(t, s, name, kind, round*100, 5_000+round*100)
				}
			}
		}
	}
	noRemains(t, c, "push")
	testkit.Equal(t, "the filter ends in", testkit.Value(c.TTL(t.Context(), "push-bitmap0").Result())(t), -1)
	testkit.Equal(t, "shards", testkit.Value(c.HGet(t.Context(), "{push-redisson8}:config", "shards").Result())(t), "8")
}

// Redisson throws once a filter's size changes; so the size stays while the keys fit.
func TestTheSizeStays(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	numbers := func() map[string]string {
		all := testkit.Value(c.HGetAll(t.Context(), "{stays}:config").Result())(t)
		maps.DeleteFunc(all, func(field, _ string) bool { return field == "push" || field == "kind" })
		return all
	}
	var first map[string]string
	for _, tt := range []struct {
		keys int
		same bool
	}{{10_000, false}, {12_500, true}, {2_500, true}, {12_501, false}, {10_000, true}, {1_000, false}} {
		testkit.Must(t, pushed(t.Context(), s, "stays", "redisson", OneKey, 0, tt.keys, silent))
		if have := numbers(); maps.Equal(have, first) != tt.same {
			t.Errorf("%d keys: %v after %v", tt.keys, have, first)
		}
		first = numbers()
		holdsAll(t, s, "stays", "redisson", 0, tt.keys)
	}
}

// A filter that Java has made with tryInit gets its keys without another size, octet for octet
// as Java would have put them in.
func TestPushIntoRedissonsOwnFilter(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	testkit.Must(t, c.HSet(t.Context(), "{java}:config", "size", "9585", "hashIterations", "7", "expectedInsertions", "1000", "falseProbability", "0.01").Err())
	testkit.Must(t, pushed(t.Context(), s, "java", "redisson", OneKey, 0, 1000, silent))
	have, err := c.Get(t.Context(), "java").Bytes()
	want := testkit.Read(t, testkit.Shared(t, "filters/redisson-1000-0.01.bitmap"))
	if err != nil || len(have)-len(want) > 1 || !slices.Equal(have[:len(want)], want) {
		t.Errorf("%d octets, want %d, %v", len(have), len(want), err)
	}
}

func TestWhatIsNoFilterIsSpared(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	ctx := t.Context()
	for _, err := range []error{
		c.Set(ctx, "spare-string", "x", 0).Err(), c.RPush(ctx, "spare-list", "x").Err(),
		c.Set(ctx, "{spare-config}:config", "x", 0).Err(),
		c.HSet(ctx, "{spare-numbers}:config", "size", "many").Err(),
		c.Set(ctx, "spare-long", "0123456789", 0).Err(), c.HSet(ctx, "{spare-long}:config", "size", "72", "hashIterations", "3").Err(),
		c.HSet(ctx, "{spare-parts}:config", "shards", "3", "kind", "bitmap").Err(),
		pushed(ctx, s, "spare-bitmap", "bitmap", OneKey, 0, 10, silent),
		pushed(ctx, s, "spare-four", "bitmap", 4, 0, 10, silent),
	} {
		testkit.Must(t, err)
	}
	for _, tt := range []struct {
		name, kind string
		shards     int
		want       string
	}{
		{"spare-string", "redisson", OneKey, "is no filter: it is a string without {spare-string}:config, which has a filter's size; choose another name, or delete it first"},
		{"spare-string", "redisbloom", OneKey, "is no filter"},
		{"spare-list", "bitmap", OneKey, "is no filter: it is a list"},
		{"spare-config", "bitmap", OneKey, "{spare-config}:config at " + s.String() + " is a string, and should be the hash"},
		{"spare-numbers", "bitmap", OneKey, "is no filter: it has wrong numbers"},
		{"spare-long", "redisson", OneKey, "is no filter: it has 10 octets, and a size of 72 bits"},
		{"spare-parts", "bitmap", OneKey, "tells of parts that cannot be"},
		{"spare-bitmap", "redisson", OneKey, "is a bitmap filter in one key, which its readers know; push under another name"},
		{"spare-bitmap", "bitmap", 4, "is a bitmap filter in one key"},
		{"spare-four", "bitmap", 8, "is a bitmap filter in 4 parts"},
		{"spare-four", "bitmap", OneKey, "is a bitmap filter in 4 parts"},
		{"a}b", "bitmap", OneKey, "make no hash tag"},
		{"{}b", "bitmap", OneKey, "make no hash tag"},
		{"{a}b", "bitmap", 4, "cannot have braces"},
		{"", "bitmap", OneKey, "want the name of a key"},
		{"a\nb", "bitmap", OneKey, "want the name of a key"},
		{"x", "guava", OneKey, `no kind of filter "guava"`},
		{"x", "bitmap", 3, "want a power of two"},
		{"spare-module", "redisbloom", OneKey, "need the module RedisBloom"},
	} {
		err := pushed(ctx, s, tt.name, tt.kind, tt.shards, 0, 10, silent)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s as %s: %v, want %q", tt.name, tt.kind, err, tt.want)
		}
	}
	if text, err := c.Get(ctx, "spare-string").Result(); text != "x" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	noRemains(t, c, "spare")
	if _, err := s.Fetch(ctx, "spare-absent", silent); err == nil || !strings.Contains(err.Error(), "there is no such key") {
		t.Error(err)
	}
}

// What gets lost while a filter is built is found before it serves: a hole of zeros as after a
// failover, and a key that was evicted.
func TestWhatGetsLostIsWrittenAgain(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	testkit.Must(t, pushed(t.Context(), s, "lost", "bitmap", OneKey, 0, 1000, silent))
	for name, lose := range map[string]func(tmp string){
		"hole":    func(tmp string) { c.SetRange(t.Context(), tmp, 5000, strings.Repeat("\x00", 1000)) },
		"evicted": func(tmp string) { c.Del(t.Context(), tmp) },
		"config":  func(tmp string) { c.Del(t.Context(), strings.Replace(tmp, ":tmp:", ":config:tmp:", 1)) },
	} {
		for _, times := range []int{1, 1000} {
			times := times
			losing := func(int64, int64) {
				keys := testkit.Value(c.Keys(t.Context(), "{lost}:tmp:*").Result())(t)
				testkit.MustEqual(t, "keys", len(keys), 1)
				if info, err := c.StrLen(t.Context(), keys[0]).Result(); times > 0 && err == nil && info > 0 {
					lose(keys[0])
					times--
				}
			}
			err := pushed(t.Context(), s, "lost", "bitmap", OneKey, 0, 20_000, losing)
			switch {
			case times == 0 && err != nil:
				t.Errorf("%s: %v", name, err)
			case times == 0:
				holdsAll(t, s, "lost", "bitmap", 0, 20_000)
			case !errors.Is(err, errDamaged):
				t.Errorf("%s: lost again and again: %v", name, err)
			default:
				holdsAll(t, s, "lost", "bitmap", 0, 1000)
			}
			noRemains(t, c, "lost")
		}
	}
}

// Of two pushes at once the later wins, whole.
func TestTheLaterPushWins(t *testing.T) {
	r, c := server(t)
	for _, shards := range []int{OneKey, 4} {
		name := fmt.Sprintf("two%d", shards)
		older, newer := connected(t, redisclient.Options{URL: r.URL()}), connected(t, redisclient.Options{URL: r.URL()})
		began := false
		err := pushed(t.Context(), older, name, "bitmap", shards, 0, 10_000, func(done, _ int64) {
			if began || done == 0 {
				return
			}
			began = true
			testkit.Should(t, pushed(t.Context(), newer, name, "bitmap", shards, 500_000, 510_000, silent))
		})
		if !errors.Is(err, errSuperseded) {
			t.Errorf("the older: %v", err)
		}
		holdsAll(t, newer, name, "bitmap", 500_000, 510_000)
		noRemains(t, c, name)
	}
}

// A push whose claim was lost says so, and speaks of no other push: there is none.
func TestALostClaimIsNoOtherPush(t *testing.T) {
	r, c := server(t)
	ctx := t.Context()
	s := connected(t, redisclient.Options{URL: r.URL()})
	for _, shards := range []int{OneKey, 4} {
		for what, lost := range map[string]string{"claim": "*claim", "flush": "*"} {
			name := fmt.Sprintf("unclaimed-%s%d", what, shards)
			for _, there := range []bool{false, true} {
				done := false
				err := pushed(ctx, s, name, "bitmap", shards, 0, 10_000, func(octets, _ int64) {
					if done || octets == 0 {
						return
					}
					done = true
					keys, err := c.Keys(ctx, "*"+name+lost).Result()
					if err != nil || len(keys) == 0 || c.Del(ctx, keys...).Err() != nil {
						t.Errorf("%q, %v", keys, err)
					}
				})
				if !errors.Is(err, errUnclaimed) {
					t.Errorf("%s, a filter was there: %t: %v", name, there, err)
				}
				noRemains(t, c, name)
				if there {
					continue
				}
				testkit.Must(t, pushed(ctx, s, name, "bitmap", shards, 0, 1000, silent))
			}
		}
	}
}

// What a killed push has left goes with the next one.
func TestRemainsOfAKilledPush(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	ctx := t.Context()
	for _, err := range []error{c.Set(ctx, "{killed}:claim", "OLD", 0).Err(), c.Set(ctx, "{killed}:tmp:OLD", "x", 0).Err(), c.HSet(ctx, "{killed}:config:tmp:OLD", "x", "y").Err()} {
		testkit.Must(t, err)
	}
	testkit.Must(t, pushed(ctx, s, "killed", "bitmap", OneKey, 0, 100, func(int64, int64) {
		if keys, err := c.Keys(ctx, "{killed}:*OLD").Result(); err != nil || len(keys) > 0 {
			t.Errorf("still there: %q, %v", keys, err)
		}
		for _, key := range []string{"{killed}:claim", "{killed}:tmp:*", "{killed}:config:tmp:*"} {
			keys := testkit.Value(c.Keys(ctx, key).Result())(t)
			testkit.MustEqual(t, "keys", len(keys), 1)
			if ttl, err := c.TTL(ctx, keys[0]).Result(); err != nil || ttl <= 0 {
				t.Errorf("%s does not end: %v, %v", keys[0], ttl, err)
			}
		}
	}))
	noRemains(t, c, "killed")
}

// A push that is interrupted leaves the old filter, and nothing else.
func TestPushEndsWithItsContext(t *testing.T) {
	r, c := server(t)
	testkit.Must(t, pushed(t.Context(), connected(t, redisclient.Options{URL: r.URL()}), "ended", "bitmap", OneKey, 0, 1000, silent))
	ctx, cancel := context.WithCancel(t.Context())
	s := testkit.Value(dial(ctx, redisclient.Options{URL: r.URL(), Timeout: patience}, patience))(t)
	defer s.Close()
	if err := pushed(ctx, s, "ended", "bitmap", OneKey, 1000, 20_000, func(done, _ int64) {
		if done > 0 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	holdsAll(t, connected(t, redisclient.Options{URL: r.URL()}), "ended", "bitmap", 0, 1000)
	noRemains(t, c, "ended")
}

func TestRedisErrors(t *testing.T) {
	r, c := server(t)
	ctx := t.Context()
	s := connected(t, redisclient.Options{URL: r.URL()})
	want := func(what string, err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) || strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", what, err, words)
		}
	}
	testkit.Must(t, pushed(ctx, s, "errors", "bitmap", OneKey, 0, 1000, silent))
	used, err := c.Info(ctx, "memory").Result()
	_, number, _ := strings.Cut(used, "used_memory:")
	number, _, _ = strings.Cut(number, "\r")
	if err != nil || c.ConfigSet(ctx, "maxmemory", number).Err() != nil {
		t.Fatal(err, number)
	}
	err = pushed(ctx, s, "errors", "bitmap", OneKey, 0, 20_000, silent)
	if reset := c.ConfigSet(ctx, "maxmemory", "0").Err(); reset != nil {
		t.Fatal(reset)
	}
	want("no memory", err, "OOM: it has no memory for a filter beside the one that is there")
	holdsAll(t, s, "errors", "bitmap", 0, 1000)
	noRemains(t, c, "errors")

	host, port, _ := net.SplitHostPort(r.Address)
	replica := redisserver.Start(t, "--replicaof", host+" "+port, "--requirepass", "secret")
	_, err = Dial(ctx, redisclient.Options{URL: replica.URL(), Timeout: patience})
	want("no password", err, "NOAUTH: it wants a password")
	want("a replica", pushed(ctx, connected(t, redisclient.Options{URL: "redis://:secret@" + replica.Address}), "errors-new", "bitmap", OneKey, 0, 10, silent), "READONLY: it is a replica")

	_, err = Dial(ctx, redisclient.Options{URL: r.URL() + "/99", Timeout: patience})
	want("database", err, "it has fewer databases")
}

// The user of docs/filters.md may push, and may not ask for a Cluster.
func TestPushByARestrictedUser(t *testing.T) {
	r, c := server(t)
	testkit.Must(t, c.Do(t.Context(), "ACL", "SETUSER", "push", "on", ">p/w#1%", "~acl", "~{acl}:*", "~{acl:*", "+@connection", "+@transaction", "+@read", "+@write").Err())
	s := connected(t, redisclient.Options{URL: "redis://push:p%2Fw%231%25@" + r.Address})
	testkit.Should(t, pushed(t.Context(), s, "acl", "bitmap", OneKey, 0, 100, silent))
	if err := pushed(t.Context(), s, "other", "bitmap", OneKey, 0, 100, silent); err == nil || !strings.Contains(err.Error(), "NOPERM: this user may not") {
		t.Error(err)
	}
}

// A Cluster is found from any of its nodes. Keys that belong together are in one slot.
func TestCluster(t *testing.T) {
	testkit.Peer(t, "redis-server")
	nodes := redisserver.Cluster(t)
	for i, kind := range []string{"bitmap", "redisson"} {
		s := connected(t, redisclient.Options{URL: nodes[i].URL()})
		for _, shards := range []int{OneKey, 16} {
			name := fmt.Sprintf("%s%d", kind, shards)
			for round := range 2 {
				testkit.Must(t, pushed(t.Context(), s, name, kind, shards, round*100, 5_000+round*100, silent))
				holdsAll(t, s, name, kind, round*100, 5_000+round*100)
			}
		}
	}
	keys := 0
	for _, node := range nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Address})
		n, err := c.DBSize(t.Context()).Result()
		if c.Close(); err != nil || n == 0 {
			t.Errorf("a node has %d keys, %v", n, err)
		}
		keys += int(n)
	}
	testkit.Equal(t, "keys", keys, 2*(2+16*2+1))
	if _, err := Dial(t.Context(), redisclient.Options{URL: nodes[0].URL() + "/1", Timeout: patience}); err == nil || !strings.Contains(err.Error(), "database 0 alone") && !strings.Contains(err.Error(), "SELECT is not allowed") {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	testkit.Peer(t, "redis-server")
	address := testkit.Unused(t)
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	cert, key := selfsigned.New(t, host).Write(t, t.TempDir())
	redisserver.StartAt(t, address, "--port", "0", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no", "--requirepass", "secret")
	s := connected(t, redisclient.Options{URL: "rediss://" + address, CAFile: cert, Password: "secret"})
	testkit.Must(t, pushed(t.Context(), s, "tls", "bitmap", OneKey, 0, 1000, silent))
	holdsAll(t, s, "tls", "bitmap", 0, 1000)
	for _, url := range []string{"rediss://:secret@" + address, "redis://:secret@" + address} {
		if _, err := Dial(t.Context(), redisclient.Options{URL: url, Timeout: patience}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// The Sentinels know the master, and not its password.
func TestSentinel(t *testing.T) {
	testkit.Peer(t, "redis-server")
	master := redisserver.Start(t)
	s := connected(t, redisclient.Options{URL: "redis-sentinel://" + master.Sentinel(t).Address + "/master/1"})
	testkit.Must(t, pushed(t.Context(), s, "watched", "bitmap", 4, 0, 1000, silent))
	holdsAll(t, connected(t, redisclient.Options{URL: master.URL() + "/1"}), "watched", "bitmap", 0, 1000)
	if _, err := Dial(t.Context(), redisclient.Options{URL: strings.Replace(s.String(), "master", "other", 1), Timeout: patience}); err == nil {
		t.Error("a master that no Sentinel knows")
	}
}

// module makes a Redis without RedisBloom do as if it had the module: a chain is a list of
// iterators and chunks. It says nothing of what the module takes; filter's golden files do.
type module struct{ redis.Hook }

func (module) DialHook(next redis.DialHook) redis.DialHook { return next }

func (module) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		scan, ok := cmd.(*redis.Cmd)
		if !ok || cmd.Name() != "bf.scandump" {
			return next(ctx, cmd)
		}
		after := cmd.Args()[2].(int64)
		list := redis.NewStringSliceCmd(ctx, "LRANGE", cmd.Args()[1], 0, -1)
		if err := next(ctx, list); err != nil {
			return err
		}
		scan.SetVal([]any{int64(0), ""})
		for i := 0; i < len(list.Val()); i += 2 {
			if iterator, err := strconv.ParseInt(list.Val()[i], 10, 64); err != nil || iterator > after {
				scan.SetVal([]any{iterator, list.Val()[i+1]})
				return err
			}
		}
		return nil
	}
}

func (module) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "bf.loadchunk" {
				cmd.Args()[0] = "RPUSH"
			}
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if kind, ok := cmd.(*redis.StatusCmd); ok && kind.Val() == "list" {
				kind.SetVal("MBbloom--")
			}
		}
		return err
	}
}

func TestPushChains(t *testing.T) {
	r, c := server(t)
	s := connected(t, redisclient.Options{URL: r.URL()})
	s.client.AddHook(module{})
	for name, shards := range map[string]int{"chain": OneKey, "chains": 4} {
		for round := range 2 {
			testkit.MustEqual(t, name, pushed(t.Context(), s, name, "redisbloom", shards, round*100, 5_000+round*100, silent), nil)
			holdsAll(t, s, name, "redisbloom", round*100, 5_000+round*100)
		}
		if err := pushed(t.Context(), s, name, "bitmap", shards, 0, 10, silent); err == nil {
			t.Error("a bitmap took the place of a chain")
		}
		noRemains(t, c, name)
	}
	// A chunk that differs from what was sent is found.
	losing := func(int64, int64) {
		keys := testkit.Value(c.Keys(t.Context(), "{chain}:tmp:*").Result())(t)
		testkit.MustEqual(t, "keys", len(keys), 1)
		if data, err := c.LIndex(t.Context(), keys[0], 3).Bytes(); err == nil {
			data[5]++
			c.LSet(t.Context(), keys[0], 3, data)
		}
	}
	testkit.IsError(t, "a damaged chain", pushed(t.Context(), s, "chain", "redisbloom", OneKey, 0, 1000, losing), errDamaged)
	holdsAll(t, s, "chain", "redisbloom", 100, 5_100)
}

// With the real module, where there is one: its path is in REDISBLOOM_SO.
func TestPushToRedisBloom(t *testing.T) {
	path := os.Getenv("REDISBLOOM_SO")
	if path == "" {
		t.Skip("REDISBLOOM_SO names no module; Debian has none")
	}
	r := redisserver.Start(t, "--loadmodule", path)
	s := connected(t, redisclient.Options{URL: r.URL()})
	for name, shards := range map[string]int{"chain": OneKey, "chains": 4} {
		for round := range 2 {
			testkit.MustEqual(t, name, pushed(t.Context(), s, name, "redisbloom", shards, round*100, 5_000+round*100, silent), nil)
			holdsAll(t, s, name, "redisbloom", round*100, 5_000+round*100)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: r.Address})
	defer c.Close()
	if has, err := c.BFExists(t.Context(), "chain", string(sender(200))).Result(); err != nil || !has {
		t.Errorf("BF.EXISTS: %v, %v", has, err)
	}
}

// scan answers BF.SCANDUMP in the place of a server.
type scan struct {
	redis.Hook
	answer func(after int64) []any
}

func (scan) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s scan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "bf.scandump" {
			return next(ctx, cmd)
		}
		cmd.(*redis.Cmd).SetVal(s.answer(cmd.Args()[2].(int64)))
		return nil
	}
}

func (scan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server that never ends is read no further than its header states, nor beyond 4 GiB.
func TestChainsAreBounded(t *testing.T) {
	r, _ := server(t)
	header := func(octets uint64) string {
		head := binary.LittleEndian.AppendUint64(nil, 0) // items
		for _, n := range []uint32{1, 4, 2} {            // links, options, growth
			head = binary.LittleEndian.AppendUint32(head, n)
		}
		return string(append(binary.LittleEndian.AppendUint64(head, octets), make([]byte, 45)...))
	}
	data := strings.Repeat("x", 1000)
	for what, tt := range map[string]struct {
		octets uint64
		chunk  func(after int64) []any
		want   string
		asked  int
	}{
		"endless":        {10_000, func(after int64) []any { return []any{after + 1000, data} }, errReplaced.Error(), 12},
		"too large":      {maxChain + 1, nil, "has 4294967297 octets, and at most 4294967296 are read", 1},
		"no number":      {math.MaxUint64, nil, "its header tells of more than", 1},
		"short":          {10_000, func(int64) []any { return []any{int64(0), ""} }, "ends at octet 0 of 10000", 2},
		"wrong iterator": {10_000, func(after int64) []any { return []any{after + 1, data} }, "the chunk 2 ends at octet 1000", 2},
	} {
		asked := 0
		s := connected(t, redisclient.Options{URL: r.URL()})
		s.client.AddHook(scan{answer: func(after int64) []any {
			asked++
			if after == 0 {
				return []any{int64(1), header(tt.octets)}
			}
			return tt.chunk(after)
		}})
		_, err := s.fetchChain(t.Context(), "bounded", found{}, silent)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || asked != tt.asked {
			t.Errorf("%s: %v, by %d questions; want %q by %d", what, err, asked, tt.want, tt.asked)
		}
	}
}

// What a server answers is not trusted.
func TestDumpAnswers(t *testing.T) {
	for _, reply := range [][]any{nil, {int64(1)}, {"1", "x"}, {int64(1), int64(2)}, {int64(5), ""}, {int64(4), "x"}, {int64(-1), "x"}} {
		if a, err := readDumpAnswer(reply, 4); err == nil {
			t.Errorf("%v is %v", reply, a)
		}
	}
}
