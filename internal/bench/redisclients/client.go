package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"
)

// asker asks which texts are members of a set: 1 or 0 each.
type asker func(ctx context.Context, set string, texts []string) ([]int64, error)

// library is a client library, with some options.
type library struct {
	name string
	dial func(seeds []string) (ask asker, end func(), err error)
}

var libraries = []library{
	{"go-redis", dialGoRedis},
	{"go-redis, reload", dialReloading},
	{"rueidis", dialRueidis},
	{"valkey-go", dialValkey},
}

func newGoRedis(seeds []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds, DialTimeout: deadline, ReadTimeout: deadline, WriteTimeout: deadline})
}

func goRedisAsker(c *redis.ClusterClient) asker {
	return func(ctx context.Context, set string, texts []string) ([]int64, error) {
		args := []any{"SMISMEMBER", set}
		for _, text := range texts {
			args = append(args, text)
		}
		return c.Do(ctx, args...).Int64Slice()
	}
}

// dialGoRedis has the library's own ways after an error.
func dialGoRedis(seeds []string) (asker, func(), error) {
	c := newGoRedis(seeds)
	return goRedisAsker(c), func() { c.Close() }, nil
}

// dialReloading asks for the Cluster's state after an error, twice a second at most.
func dialReloading(seeds []string) (asker, func(), error) {
	c := newGoRedis(seeds)
	ask := goRedisAsker(c)
	var last atomic.Int64
	return func(ctx context.Context, set string, texts []string) ([]int64, error) {
		got, err := ask(ctx, set, texts)
		if err != nil {
			now, was := time.Now().UnixMilli(), last.Load()
			if now-was >= 500 && last.CompareAndSwap(was, now) {
				c.ReloadState(context.Background())
			}
		}
		return got, err
	}, func() { c.Close() }, nil
}

func dialRueidis(seeds []string) (asker, func(), error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: seeds, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, set string, texts []string) ([]int64, error) {
		return c.Do(ctx, c.B().Smismember().Key(set).Member(texts...).Build()).AsIntSlice()
	}, c.Close, nil
}

func dialValkey(seeds []string) (asker, func(), error) {
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: seeds, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, set string, texts []string) ([]int64, error) {
		return c.Do(ctx, c.B().Smismember().Key(set).Member(texts...).Build()).AsIntSlice()
	}, c.Close, nil
}
