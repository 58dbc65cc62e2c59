package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/lists"
	"blockd/sources/mirror"
)

// TestEveryServedStateIsAPrefix lets eight writers change a list at random while the server and the reader are killed
// again and again. Each copy that comes into force is what the list was after one of its changes, and the last one is the list.
func TestEveryServedStateIsAPrefix(t *testing.T) {
	testkit.Peer(t, "redis-server")
	const writers, kills = 8, 5
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
	made := make([]map[string][]string, writers) // by entry the values in turn; "" = it was taken out
	for n := range writers {
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
					value = fmt.Sprintf("block\t\t%d", i)
					args = []any{"put", entry, value}
				}
				was := last(made[n][entry])
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

	folder := filepath.Join(t.TempDir(), "copy")
	served := map[int64]map[string]string{} // by the mark of each copy in force what it has
	follow := func(ctx context.Context, rounds int) (whole bool) {
		m, err := mirror.Open(mirror.Options{Folder: folder, Settings: lists.Settings{}})
		if err != nil {
			t.Error(err)
			return false
		}
		defer m.Close()
		s := open(t, o)
		defer s.Close()
		for range rounds {
			_, err := m.Follow(ctx, s)
			if errors.Is(err, mirror.ErrTooOld) {
				_, err = m.Read(ctx, s)
			}
			if err != nil && classOfError(err) == "" && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			whole = err == nil
			state, ok := m.State()
			if marks, fine := readMarks(state.Mark, 1); ok && fine && served[marks[0].rev] == nil {
				served[marks[0].rev] = copied(t, mirror.Files(folder))
			}
			polled.L.Lock()
			polls.Add(1)
			polled.L.Unlock()
			polled.Broadcast()
		}
		return whole
	}
	ended, followed := make(chan struct{}), make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	go func() { // a reader that is ended in the midst of what it does, and begins anew
		defer close(followed)
		rng := rand.New(rand.NewPCG(12, 0))
		for {
			select {
			case <-ended:
				for !follow(context.Background(), 2) && !t.Failed() {
				}
				return
			default:
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(500))*time.Millisecond)
				follow(ctx, 6)
				cancel()
			}
		}
	}()
	for i := range kills {
		testkit.Eventually(t, "changes", func() bool { return done.Load() >= int64(writers*changes*(i+1)/(kills+1)) })
		r.Kill()
		r = redisserver.StartAt(t, address, options...)
	}
	<-followed

	// The log says in which order the changes came about.
	log, err := client(t, address).XRange(t.Context(), k.log, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	state, checked := map[string]string{}, 0
	for rev := int64(0); ; rev++ {
		if got, ok := served[rev]; ok {
			checked++
			if !maps.Equal(got, state) {
				t.Fatalf("after %d changes: the copy has %d entries, and the list had %d", rev, len(got), len(state))
			}
		}
		if rev == int64(len(log)) {
			break
		}
		entry := log[rev].Values["f"].(string)
		var n int
		fmt.Sscanf(entry, "w%d-", &n)
		if len(made[n][entry]) == 0 {
			t.Fatalf("a change of %s that nobody made", entry)
		}
		if state[entry] = made[n][entry][0]; state[entry] == "" {
			delete(state, entry)
		}
		made[n][entry] = made[n][entry][1:]
	}
	if served[int64(len(log))] == nil || checked != len(served) || checked < kills {
		t.Errorf("%d copies were checked of %d, of %d changes; the last: %v", checked, len(served), len(log), served[int64(len(log))] != nil)
	}
	t.Logf("%d changes, %d copies", len(log), checked)
}

func last(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// copied is what the files of a copy have: by entry the value as it was written.
func copied(t *testing.T, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(fields) == 6 {
				all[fields[0]] = "block\t\t" + fields[4]
			}
		}
	}
	return all
}
