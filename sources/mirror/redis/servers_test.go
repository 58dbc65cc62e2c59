package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/selfsigned"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// No fault is an empty list, and none tells the password.
func TestFaults(t *testing.T) {
	r, c := server(t)
	ctx := t.Context()
	locked := redisserver.Start(t, "--requirepass", "s3cr3t")
	host, port, _ := net.SplitHostPort(testkit.Refusing(t))
	orphan := redisserver.Start(t, "--replicaof", host+" "+port, "--replica-serve-stale-data", "no")
	part := redisserver.Start(t, "--cluster-enabled", "yes")
	for i, k := range []string{"e", "log", "rev"} {
		testkit.Must(t, c.Set(ctx, fmt.Sprintf("{blockd:wrong%d}:%s", i, k), "no number", 0).Err())
	}
	if err := errors.Join(c.LPush(ctx, "a list", "x").Err(),
		c.Do(ctx, "ACL", "SETUSER", "other", "on", ">s3cr3t", "~other:*", "+@all").Err()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dsn, list, key string
		class          mirror.Class
		words          string
	}{
		{dsn: "redis://:s3cr3t@" + testkit.Refusing(t), class: mirror.ClassUnreachable, words: "refused"},
		{dsn: locked.URL(), class: mirror.ClassAuth, words: "NOAUTH: it wants a password: put the URL"},
		{dsn: "redis://:s3cr3t2@" + locked.Address, class: mirror.ClassAuth, words: "WRONGPASS"},
		{dsn: "redis://other:s3cr3t@" + r.Address, class: mirror.ClassAuth, words: "NOPERM"},
		{dsn: orphan.URL(), class: mirror.ClassUnreachable, words: "MASTERDOWN"},
		{dsn: part.URL(), class: mirror.ClassUnreachable, words: "no nodes"},
		{dsn: r.URL(), list: "wrong0", class: mirror.ClassSchema, words: "WRONGTYPE"},
		{dsn: r.URL(), list: "wrong1", class: mirror.ClassSchema, words: "WRONGTYPE"},
		{dsn: r.URL(), list: "wrong2", class: mirror.ClassSchema, words: "rev"},
		{dsn: r.URL(), key: "a list", class: mirror.ClassSchema, words: "is a list"},
		{dsn: "redis://:s3cr3t@" + redisserver.Saying(t, "-LOADING Redis is loading the dataset in memory\r\n"), class: mirror.ClassUnreachable, words: "LOADING"},
		{dsn: "redis://:s3cr3t@" + redisserver.Saying(t, "-BUSY a script\r\n"), class: mirror.ClassRefused},
		{dsn: "redis://:s3cr3t@" + redisserver.Saying(t, "-ERR s3cr3t?\r\n"), class: mirror.ClassQuery},
		{dsn: "redis://:s3cr3t@" + redisserver.Saying(t, "220 ESMTP\r\n"), class: mirror.ClassQuery},
		{dsn: redisserver.Saying(t, "*0\r\n"), class: mirror.ClassUnreachable},
		{dsn: redisserver.Saying(t, "+OK\r\n"), class: mirror.ClassQuery},
		{dsn: redisserver.Saying(t, "-CLUSTERDOWN The cluster is down\r\n"), class: mirror.ClassUnreachable, words: "its Cluster lacks nodes"},
		{dsn: redisserver.Saying(t, "$-1\r\n"), class: mirror.ClassQuery},
	} {
		if !strings.Contains(test.dsn, "://") {
			test.dsn = "redis://" + test.dsn
		}
		if test.list == "" {
			test.list = "faults"
		}
		o := Options{DSN: test.dsn, List: test.list, Key: test.key}
		s := open(t, o)
		x := table{}
		_, err := x.all(ctx, s)
		_, later := x.changes(ctx, s, "1-1 1 1-1 0")
		if test.key != "" || strings.HasPrefix(test.list, "wrong0") {
			later = err
		}
		for _, err := range []error{err, later} {
			if test.words == "rev" && errors.Is(err, mirror.ErrTooOld) {
				continue // the log is not there either
			}
			mirrortest.WantFault(t, err, test.class, test.words, "s3cr3t")
		}
		testkit.Equal(t, fmt.Sprintf("%+v: %v", test, x), len(x), 0)
	}
}

func TestHungServer(t *testing.T) {
	mute := testkit.Listen(t)
	s := open(t, Options{DSN: "redis://u:s3cr3t@" + mute.Addr().String(), List: "mute"})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.All(ctx, mirrortest.Skip)
	mirrortest.WantFault(t, err, mirror.ClassTimeout, "", "s3cr3t")
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{DSN: "redis://h", List: "x"}, ""},
		{Options{DSN: "redis://a:1,b:2,c:3", List: "x", Shards: 16}, ""},
		{Options{DSN: "redis://h", Key: "{any} key", Changes: "none"}, ""},
		{Options{DSN: "http://u:s3cr3t@h", List: "x"}, "dsn: want a URL"},
		{Options{DSN: "redis://u:s3cr3t@h/x", List: "x"}, "dsn: want a number"},
		{Options{DSN: "redis://h", List: "x}"}, "name: "},
		{Options{DSN: "redis://h"}, "name: "},
		{Options{DSN: "redis://h", List: "x", Shards: 3}, "shards: want a power of two"},
		{Options{DSN: "redis://h", List: "x", Shards: 2048}, "shards: want a power of two"},
		{Options{DSN: "redis://h", Key: "k", Shards: 2}, "shards: the key"},
		{Options{DSN: "redis://h", Key: "k", Changes: "log"}, `changes = "log"`},
		{Options{DSN: "redis://h", List: "x", Changes: "watermark"}, "changes: "},
		{Options{DSN: "redis://h", List: "x", Notify: "__keyspace@0__:*"}, "notify: keyspace notifications"},
	} {
		_, err := Open(test.o)
		mirrortest.WantRefused(t, test.o, err, test.want, "s3cr3t")
	}
}

// What other programs have.
func TestKey(t *testing.T) {
	r, c := server(t)
	ctx := t.Context()
	if err := errors.Join(
		c.SAdd(ctx, "set", "a.example", "b@c.example").Err(),
		c.HSet(ctx, "hash", "a.example", "sold addresses", "b.example", "allow\t4102444800\t7\ta friend", "c.example", "a\ttab", "d.example", "").Err(),
		c.ZAdd(ctx, "zset", goredis.Z{Score: 1, Member: "a.example"}).Err(),
	); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]mirror.Row{
		"set": {{Entry: "a.example"}, {Entry: "b@c.example"}},
		"hash": {{Entry: "a.example", Reason: "sold addresses"}, {Entry: "b.example", Action: "allow", Expires: 4102444800, ID: "7", Reason: "a friend"},
			{Entry: "c.example", Reason: "a\ttab"}, {Entry: "d.example"}},
		"zset":  {{Entry: "a.example"}},
		"there": nil,
	} {
		s, x := open(t, Options{DSN: r.URL(), Key: key}), table{}
		mark := x.read(t, s)
		x.want(t, want...)
		mirrortest.WantTooOld(t, key, s, mark)
		testkit.Has(t, testkit.Value(s.Plan(ctx))(t), "read each time")
	}
}

// A large set is not read every few seconds.
func TestLargeKey(t *testing.T) {
	r, c := server(t)
	testkit.Must(t, c.SAdd(t.Context(), "large", 1, 2, 3).Err())
	for every, fine := range map[time.Duration]bool{5 * time.Second: false, seldom: true, 0: true} {
		s := open(t, Options{DSN: r.URL(), Key: "large", Every: every})
		s.large = 2
		_, err := s.All(t.Context(), mirrortest.Skip)
		if fine != (err == nil) || err != nil && (mirrortest.Class(err) != mirror.ClassRefused || !strings.Contains(err.Error(), `every = "10m"`)) {
			t.Errorf("%v: %v", every, err)
		}
	}
}

// The user of docs/redis.md may read the list and do nothing else.
func TestRestrictedUser(t *testing.T) {
	r, c := server(t)
	o := Options{DSN: "redis://blockd:p%23w@" + r.Address, List: "acl"}
	err := c.Do(t.Context(), "ACL", "SETUSER", "blockd", "on", ">p#w", "%R~{blockd:acl*}:*", "+@connection",
		"+hscan", "+hlen", "+hget", "+xrange", "+xrevrange", "+xlen", "+xread", "+exists", "+get", "+eval_ro", "+multi", "+exec").Err()
	testkit.Must(t, err)
	s, w, x := open(t, o), newWriter(t, c, o), table{}
	w.do("put", "a.example", "")
	mark := x.read(t, s)
	w.do("put", "b.example", "")
	testkit.Should(t, s.Wait(t.Context()))
	x.follow(t, s, mark)
	x.want(t, mirror.Row{Entry: "a.example"}, mirror.Row{Entry: "b.example"})
	if err := s.client.String(); strings.Contains(err, "p#w") {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	testkit.Peer(t, "redis-server")
	address := testkit.Unused(t)
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	cert, key := selfsigned.New(t, host).Write(t, t.TempDir())
	r := redisserver.StartAt(t, address, "--port", "0", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no", "--requirepass", "s3cr3t")
	c := goredis.NewClient(&goredis.Options{Network: "unix", Addr: r.Socket, Password: "s3cr3t"})
	defer c.Close()
	o := Options{DSN: "rediss://:s3cr3t@" + address + "?tls_ca=" + cert, List: "tls"}
	newWriter(t, c, o).do("put", "a.example", "")
	for dsn, fine := range map[string]bool{
		o.DSN: true, "rediss://:s3cr3t@" + address + "?tls=skip-verify": true, "rediss://:s3cr3t@" + address: false, "redis://:s3cr3t@" + address: false,
	} {
		x := table{}
		_, err := x.all(t.Context(), open(t, Options{DSN: dsn, List: "tls"}))
		if fine != (err == nil) || fine && len(x) != 1 || err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, %v", dsn, x, err)
		}
	}
}

// A failover loses the last changes, and others take their place: the log has as many as before, and more.
func TestFailoverThatLosesChanges(t *testing.T) {
	testkit.Peer(t, "redis-server")
	master := redisserver.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.Address)
	replica := redisserver.Start(t, "--replicaof", host+" "+port)
	sentinel := master.Sentinel(t)
	old, next, watch := client(t, master.Address), client(t, replica.Address), client(t, sentinel.Address)
	ctx := t.Context()

	o := Options{DSN: "redis-sentinel://" + sentinel.Address + "/master", List: "failover"}
	s, w, x := open(t, o), newWriter(t, old, o), table{}
	for i := range 5 {
		w.do("put", fmt.Sprintf("%d.example", i), "")
	}
	mark := x.read(t, s)
	testkit.Eventually(t, "the replica", func() bool {
		n, err := next.HLen(ctx, keysOf(o)[0].entries).Result()
		return err == nil && n == 5
	})
	testkit.Must(t, next.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	for i := range 3 {
		w.do("put", fmt.Sprintf("lost%d.example", i), "")
	}
	if mark = x.follow(t, s, mark); len(x) != 8 {
		t.Fatal(x)
	}
	master.Kill()
	w = newWriter(t, next, o)
	for i := range 4 {
		w.do("put", fmt.Sprintf("new%d.example", i), "")
	}
	host, port, _ = net.SplitHostPort(replica.Address)
	testkit.Must(t, errors.Join(watch.Do(ctx, "SENTINEL", "REMOVE", "master").Err(), watch.Do(ctx, "SENTINEL", "MONITOR", "master", host, port, 1).Err()))
	testkit.Eventually(t, "the new master", func() bool {
		_, err := (table{}).changes(ctx, s, mark)
		if errors.Is(err, mirror.ErrTooOld) {
			return true
		}
		testkit.MustEqual(t, "lost changes are seen", err != nil, true)
		return false
	})
	x.read(t, s)
	want := table{}
	for i := range 5 {
		want[fmt.Sprintf("%d.example", i)] = mirror.Row{Entry: fmt.Sprintf("%d.example", i)}
	}
	for i := range 4 {
		want[fmt.Sprintf("new%d.example", i)] = mirror.Row{Entry: fmt.Sprintf("new%d.example", i)}
	}
	if !maps.Equal(x, want) {
		t.Errorf("%v, want %v", x, want)
	}
}

func TestCluster(t *testing.T) {
	testkit.Peer(t, "redis-server")
	nodes := redisserver.Cluster(t)
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{nodes[0].Address}})
	defer c.Close()
	for _, shards := range []int{0, 16} {
		o := Options{DSN: fmt.Sprintf("redis://%s,%s,%s", testkit.Refusing(t), nodes[1].Address, nodes[2].Address), List: "cluster", Shards: shards}
		s, w, x := open(t, o), newWriter(t, c, o), table{}
		mark := x.read(t, s)
		for i := range 300 {
			w.do("put", fmt.Sprintf("%d.example", i), "")
		}
		testkit.Must(t, s.Wait(t.Context()))
		after := x.follow(t, s, mark)
		if again := (table{}); len(x) != 300 || again.read(t, open(t, o)) != after || !maps.Equal(x, again) {
			t.Errorf("%d shards: %d entries by changes, %d by reading", shards, len(x), len(again))
		}
		testkit.Has(t, testkit.Value(s.Plan(t.Context()))(t), "a Cluster")
	}
	o := Options{DSN: nodes[0].URL(), List: "cluster", Shards: 16}
	s, x := open(t, o), table{}
	mark := x.read(t, s)
	nodes[2].Kill()
	if _, err := x.all(t.Context(), s); err == nil {
		t.Error("a full read without a third of the slots")
	}
	if _, err := x.changes(t.Context(), s, mark); err == nil || errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("%v", err)
	}
}

// TestEveryServedStateIsAPrefix lets eight writers change a list at random while the server is killed and the reader
// ended again and again. Each copy that comes into force is what the list was after one of its changes, in their
// order, and the last one is the list.
func TestEveryServedStateIsAPrefix(t *testing.T) {
	testkit.Peer(t, "redis-server")
	const many, kills = 8, 5
	changes := 1000
	if testing.Short() {
		changes = 200
	}
	address := testkit.Unused(t)
	options := []string{"--appendonly", "yes", "--appendfsync", "no"} // kill -9 loses nothing that was answered
	r := redisserver.StartAt(t, address, options...)
	options = append(options, "--dir", r.Dir)
	o := Options{DSN: r.URL(), List: "golden"}
	k := keysOf(o)[0]

	// Each writer has entries of its own, so that it knows which of its changes have come about.
	var group sync.WaitGroup
	var done, polls atomic.Int64
	polled := sync.NewCond(&sync.Mutex{})
	made := make([]map[string][]string, many) // by entry the values in turn; "" = it was taken out
	for n := range many {
		made[n] = map[string][]string{}
		group.Go(func() {
			rng := rand.New(rand.NewPCG(11, uint64(n)))
			w := newWriter(t, client(t, address), o)
			for i := range changes {
				polled.L.Lock()
				for int64(i) > 25*(polls.Load()+1) { // or there would be few copies
					polled.Wait()
				}
				polled.L.Unlock()
				entry, value := fmt.Sprintf("w%d-%d.example", n, rng.IntN(40)), ""
				args := []any{"del", entry}
				if rng.IntN(3) > 0 {
					value = fmt.Sprintf("block\t%d", 4102444800+i)
					args = []any{"put", entry, value}
				}
				was := ""
				if all := made[n][entry]; len(all) > 0 {
					was = all[len(all)-1]
				}
				for {
					_, err := w.try(args...)
					if err == nil {
						break
					}
					now, err := w.c.HGet(context.Background(), k.entries, entry).Result()
					if (err == nil || errors.Is(err, goredis.Nil)) && now == value {
						break // it was done, but for the answer
					}
				}
				if was != value {
					made[n][entry] = append(made[n][entry], value)
				}
				done.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()

	copied := writers.Follow(t, open(t, o))
	rng := rand.New(rand.NewPCG(12, 0))
	killed := 0
	for running := true; running; { // a reader that is ended in the midst of what it does, and begins anew
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(500))*time.Millisecond)
		for range 6 {
			_ = copied.Poll(t, ctx)
			polled.L.Lock()
			polls.Add(1)
			polled.L.Unlock()
			polled.Broadcast()
		}
		cancel()
		copied.Source.Close()
		copied.Source = open(t, o)
		copied.Restart(t)
		if killed < kills && done.Load() >= int64(many*changes*(killed+1)/(kills+1)) {
			killed++
			gone := make(chan struct{})
			go func() { r.Kill(); close(gone) }()
			_ = copied.Poll(t, t.Context()) // in the midst of it
			<-gone
			r = redisserver.StartAt(t, address, options...)
		}
		select {
		case <-ended:
			running = false
		default:
		}
	}

	// The log says in which order the changes came about.
	log := testkit.Value(client(t, address).XRange(t.Context(), k.log, "-", "+").Result())(t)
	var list writers.Sums
	states := []uint64{list.Now()}
	for _, change := range log {
		entry := change.Values["f"].(string)
		var n int
		fmt.Sscanf(entry, "w%d-", &n)
		if len(made[n][entry]) == 0 {
			t.Fatalf("a change of %s that nobody made", entry)
		}
		row := valueRow(entry, made[n][entry][0])
		if made[n][entry][0] == "" {
			row.Entry = ""
		}
		made[n][entry] = slices.Delete(made[n][entry], 0, 1)
		list.Set(t, entry, row)
		states = append(states, list.Now())
	}
	copied.CheckStates(t, states)
	testkit.AtLeast(t, "kills of the server", killed, kills)
}

// BenchmarkRead reads a list of a million entries of 37 octets into a copy, and takes changes in. BLOCKD_TEST_ROWS
// gives another number, in thousands.
func BenchmarkRead(b *testing.B) {
	n := mirrortest.BenchRows(1_000_000) / 1000 * 1000
	r, c := server(b)
	o := Options{DSN: r.URL(), List: "bench"}
	w := newWriter(b, c, o)
	w.do("put", "sender000000000@bulk000000.test.example", "block\t\t4711\tsold addresses")
	for i := 0; i < n; i += 1000 {
		if _, err := c.Pipelined(b.Context(), func(p goredis.Pipeliner) error {
			var all []any
			for n := i; n < i+1000; n++ {
				all = append(all, fmt.Sprintf("sender%09d@bulk%06d.test.example", n, n%99991), "block\t\t4711\tsold addresses")
			}
			return p.HSet(context.Background(), keysOf(o)[0].entries, all...).Err()
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { c.Del(context.Background(), keysOf(o)[0].entries) })
	mirrortest.Benchmark(b, open(b, o), n, func(i int) { w.do("put", fmt.Sprintf("new%d.example", i), "") })
}
