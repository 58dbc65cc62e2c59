package redisfilter

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/internal/redisclient"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

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
		keys, err := c.Keys(t.Context(), "{chain}:tmp:*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("%q, %v", keys, err)
		}
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
