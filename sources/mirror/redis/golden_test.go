package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror/mirrortest"
)

// TestEveryServedStateIsAPrefix lets eight writers change a list at random while the server is killed and the reader ended
// again and again. Each copy that comes into force is what the list was after one of its changes, in their order, and the last
// one is the list.
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
	if killed < kills {
		t.Errorf("the server was killed %d times of %d", killed, kills)
	}
}

// BenchmarkRead reads a list of a million entries of 37 octets into a copy, and takes changes in. BLOCKD_TEST_ROWS gives another
// number, in thousands.
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
