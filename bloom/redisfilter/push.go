package redisfilter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"blockd/bloom/filter"
)

const (
	chunkSize  = 256 << 10 // of one command
	batchSize  = 4         // chunks without waiting for an answer
	countSize  = 1 << 20   // octets whose bits are counted by one command: 0.4 ms
	tmpExpires = 10 * time.Minute
	rebuilds   = 3 // how often a filter is written, and swaps are tried
)

// errSuperseded ends the older of two pushes. The newer has the newer lists.
var errSuperseded = errors.New("another push of the same name has begun, and its filter counts; this one has stopped")

// errUnclaimed ends a push whose claim has gone, and with it perhaps all that it has written.
var errUnclaimed = errors.New("what this push has written is lost: a FLUSHALL, a failover, an eviction (maxmemory-policy), or it stood still for ten minutes; push again")

// errDamaged is for a filter that is not as it was written.
var errDamaged = errors.New("what is written gets lost: a failover, an eviction (maxmemory-policy) or a FLUSHALL; the old filter stays")

// Push puts a filter in the place of the one that is there. f is one that New has made. It is
// built aside, counted, and renamed, part by part: a reader sees a whole one, old or new. The old
// one goes with the rename.
//
// What a killed push has left is removed by the next one, and else ends after ten minutes. Of two
// pushes the later wins. progress is called with octets.
func (t *Target) Push(ctx context.Context, f filter.Filter, progress func(done, total int64)) error {
	p := &push{Target: t, token: rand.Text(), before: map[string]string{}, progress: progress}
	files := []filter.Filter{f}
	if all, ok := f.(filter.Sharded); ok {
		files = all
	}
	for _, f := range files {
		p.total += octetsOf(f)
	}
	if t.shards == OneKey {
		return p.part(ctx, t.name, f)
	}
	return p.all(ctx, files)
}

// push is a Push under way.
type push struct {
	*Target
	token       string
	before      map[string]string // the pushes whose filters were there when keys were claimed, by key
	done, total int64
	progress    func(done, total int64)
}

func (p *push) c() redis.UniversalClient { return p.server.client }

// all pushes the parts of a filter, and then their number.
func (p *push) all(ctx context.Context, files []filter.Filter) (err error) {
	if err := p.claim(ctx, p.name); err != nil {
		return err
	}
	defer p.cleanUp(ctx, p.name, &err)
	for i, f := range files {
		if err := p.part(ctx, shardKey(p.name, i), f); err != nil {
			return err
		}
	}
	numbers := p.numbers(files[0])
	numbers["shards"] = strconv.Itoa(p.shards)
	err = p.c().Watch(ctx, func(tx *redis.Tx) error {
		if err := p.holds(ctx, tx, p.name); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Del(ctx, configKey(p.name))
			pipe.HSet(ctx, configKey(p.name), numbers)
			pipe.Del(ctx, beside(p.name, "claim"))
			return nil
		})
		return err
	}, beside(p.name, "claim"))
	return p.ended(err)
}

// numbers are what the config says of a filter.
func (p *push) numbers(f filter.Filter) map[string]string {
	_, numbers, _ := filter.Stored(f)
	numbers = maps.Clone(numbers)
	if numbers == nil {
		numbers = map[string]string{}
	}
	numbers["kind"], numbers["push"] = p.kind, p.token
	return numbers
}

// claim makes this push the one that may put a filter at key in place. What the one before it
// has left is removed; should it still run, it stops.
func (p *push) claim(ctx context.Context, key string) error {
	claim := beside(key, "claim")
	var before, there *redis.StringCmd
	_, err := p.c().Pipelined(ctx, func(pipe redis.Pipeliner) error {
		before = pipe.GetSet(ctx, claim, p.token)
		pipe.PExpire(ctx, claim, tmpExpires)
		there = pipe.HGet(ctx, configKey(key), "push")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return p.server.Explain(err)
	}
	p.before[key] = there.Val()
	if token := before.Val(); token != "" && token != p.token {
		return p.server.Explain(p.c().Unlink(ctx, tmpKey(key, token), tmpConfig(key, token)).Err())
	}
	return nil
}

func tmpKey(key, token string) string    { return beside(key, "tmp:"+token) }
func tmpConfig(key, token string) string { return beside(key, "config:tmp:"+token) }

// holds is nil while the claim is this push's, and else says why it is not.
func (p *push) holds(ctx context.Context, c redis.Cmdable, key string) error {
	token, err := c.Get(ctx, beside(key, "claim")).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return p.holder(ctx, c, key, token)
}

// holder is holds, of a claim that has this token; "" = there is no claim: another push has taken
// it and put its filter in place, or it was lost.
func (p *push) holder(ctx context.Context, c redis.Cmdable, key, token string) error {
	switch token {
	case "":
	case p.token:
		return nil
	default:
		return errSuperseded
	}
	there, err := c.HGet(ctx, configKey(key), "push").Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return err
	case there == "" || there == p.before[key]:
		return errUnclaimed
	}
	return errSuperseded
}

// cleanUp removes what a push that failed has left, if it can.
func (p *push) cleanUp(ctx context.Context, key string, failed *error) {
	if *failed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.server.Timeout())
	defer cancel()
	_ = p.c().Unlink(ctx, tmpKey(key, p.token), tmpConfig(key, p.token)).Err()
	if p.holds(ctx, p.c(), key) == nil {
		_ = p.c().Del(ctx, beside(key, "claim")).Err()
	}
}

// part builds a filter aside, and puts it in the place of key.
func (p *push) part(ctx context.Context, key string, f filter.Filter) (err error) {
	found, err := p.server.inspect(ctx, key)
	if err != nil {
		return err
	}
	if found.filter && (found.kind != p.kind || found.shards != OneKey) {
		return fmt.Errorf("%s at %s is a %s filter, which its readers know; push under another name, or delete it first", key, p.server, found.kind)
	}
	if err := p.claim(ctx, key); err != nil {
		return err
	}
	defer p.cleanUp(ctx, key, &err)
	if key != p.name { // after the claim: a newer push either sees this part done, or has stopped us here
		if err := p.holds(ctx, p.c(), p.name); err != nil {
			return p.ended(err)
		}
		if err := p.c().PExpire(ctx, beside(p.name, "claim"), tmpExpires).Err(); err != nil {
			return p.server.Explain(err)
		}
	}
	build := layouts[p.kind](p, key, f)
	before := p.done
	for range rebuilds {
		p.done = before
		if err = build.write(ctx); err == nil {
			err = p.swap(ctx, key, build)
		}
		if !errors.Is(err, errDamaged) {
			break
		}
	}
	return p.ended(err)
}

// ended says how a push ended.
func (p *push) ended(err error) error {
	for _, own := range []error{errSuperseded, errUnclaimed, errDamaged} {
		if errors.Is(err, own) {
			return fmt.Errorf("%s at %s: %w", p.name, p.server, own)
		}
	}
	return p.server.Explain(err)
}

// layout is how a kind of filter gets into a Redis.
type layout interface {
	// write writes the filter under its name aside.
	write(context.Context) error
	// verify has the server say what it holds, which is errDamaged if it is something else.
	verify(context.Context, *redis.Tx) error
}

var layouts = map[string]func(p *push, key string, f filter.Filter) layout{
	"redisson":   newStored,
	"bitmap":     newStored,
	"redisbloom": newChain,
}

// swap renames the filter and its numbers over those that are there, by one connection, so that
// what was counted is what is renamed: after a failover another server would lack
// the last writes.
func (p *push) swap(ctx context.Context, key string, build layout) (err error) {
	tmp, config, claim := tmpKey(key, p.token), tmpConfig(key, p.token), beside(key, "claim")
	for range rebuilds {
		err = p.c().Watch(ctx, func(tx *redis.Tx) error {
			if err := p.holds(ctx, tx, key); err != nil {
				if token, _ := tx.HGet(ctx, configKey(key), "push").Result(); token == p.token {
					return nil // done, but for the answer
				}
				return err
			}
			if there, err := tx.Exists(ctx, tmp, config).Result(); err != nil || there != 2 {
				return errors.Join(err, errDamaged)
			}
			if err := build.verify(ctx, tx); err != nil {
				return err
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Persist(ctx, tmp) // or its end would come after the rename
				pipe.Persist(ctx, config)
				pipe.Rename(ctx, tmp, key)
				pipe.Rename(ctx, config, configKey(key))
				pipe.Del(ctx, claim)
				return nil
			})
			return err
		}, claim, tmp, config)
		if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errUnclaimed) || errors.Is(err, errDamaged) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// sending sends commands in one go, with those that keep a push alive.
func (p *push) sending(ctx context.Context, key string, octets int, commands func(redis.Pipeliner)) error {
	tmp, config, claim := tmpKey(key, p.token), tmpConfig(key, p.token), beside(key, "claim")
	var held *redis.StringCmd
	_, err := p.c().Pipelined(ctx, func(pipe redis.Pipeliner) error {
		held = pipe.Get(ctx, claim)
		commands(pipe)
		for _, key := range []string{tmp, config, claim} {
			pipe.PExpire(ctx, key, tmpExpires)
		}
		return nil
	})
	switch {
	case errors.Is(held.Err(), redis.Nil), held.Err() == nil && held.Val() != p.token:
		return p.holder(ctx, p.c(), key, held.Val())
	case err != nil:
		return err
	}
	p.done += int64(octets)
	p.progress(p.done, p.total)
	return nil
}

// config writes the numbers aside.
func (p *push) config(ctx context.Context, pipe redis.Pipeliner, key string, f filter.Filter) {
	pipe.HSet(ctx, tmpConfig(key, p.token), p.numbers(f))
}

// stored is a filter that is a string.
type stored struct {
	*push
	key    string
	filter filter.Filter
	octets []byte
}

func newStored(p *push, key string, f filter.Filter) layout {
	octets, _, _ := filter.Stored(f)
	return &stored{p, key, f, octets}
}

// write writes to offsets, so that a command that is sent twice does no harm. The last octet is
// first: to grow a string of 512 MiB step by step took Redis 6.7 s and not 1.
func (s *stored) write(ctx context.Context) error {
	tmp := tmpKey(s.key, s.token)
	if err := s.sending(ctx, s.key, 0, func(pipe redis.Pipeliner) {
		s.config(ctx, pipe, s.key, s.filter)
		pipe.Do(ctx, "SETRANGE", tmp, len(s.octets)-1, s.octets[len(s.octets)-1:])
	}); err != nil {
		return err
	}
	for from := 0; from < len(s.octets); {
		batch := min(batchSize*chunkSize, len(s.octets)-from)
		if err := s.sending(ctx, s.key, batch, func(pipe redis.Pipeliner) {
			for end := from + batch; from < end; {
				chunk := s.octets[from:min(from+chunkSize, end)]
				pipe.Do(ctx, "SETRANGE", tmp, from, chunk)
				from += len(chunk)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// verify has Redis count the bits, a few megabytes at a time: other clients wait meanwhile.
func (s *stored) verify(ctx context.Context, tx *redis.Tx) error {
	tmp := tmpKey(s.key, s.token)
	length, err := tx.StrLen(ctx, tmp).Result()
	if err != nil || length != int64(len(s.octets)) {
		return errors.Join(err, errDamaged)
	}
	for from := 0; from < len(s.octets); {
		var counts []*redis.IntCmd
		first := from
		if _, err := tx.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range batchSize {
				if end := min(from+countSize, len(s.octets)); end > from {
					counts = append(counts, pipe.BitCount(ctx, tmp, &redis.BitCount{Start: int64(from), End: int64(end) - 1}))
					from = end
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for i, count := range counts {
			start := first + i*countSize
			if count.Val() != ones(s.octets[start:min(start+countSize, len(s.octets))]) {
				return errDamaged
			}
		}
	}
	return nil
}

func ones(octets []byte) (n int64) {
	for _, o := range octets {
		n += int64(bits.OnesCount8(o))
	}
	return n
}

// octetsOf is how much is sent of a filter.
func octetsOf(f filter.Filter) (n int64) {
	if octets, _, ok := filter.Stored(f); ok {
		return int64(len(octets))
	}
	chunks, _ := filter.Chunks(f, chunkSize)
	for _, data := range chunks {
		n += int64(len(data))
	}
	return n
}
