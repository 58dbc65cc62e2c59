package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/redis/go-redis/v9"

	"blockd/bloom/filter"
)

// fetchSize is how much is read by one command.
const fetchSize = 1 << 20

// tries is how often a filter is read that is replaced meanwhile.
const tries = 10

// maxChain bounds a filter of RedisBloom that is read, in octets. Strings are bounded by Redis.
const maxChain = 4 << 30

// errReplaced is for a filter that is another at the end than at the beginning, and for one that
// has got longer.
var errReplaced = errors.New("is replaced or grows while it is read")

// Fetch reads the filter under a name into memory, of any kind and in any number of parts;
// each part as it was at one time. progress is called with octets.
func (s *Server) Fetch(ctx context.Context, name string, progress func(done, total int64)) (filter.Filter, error) {
	if err := checkName(name, OneKey); err != nil {
		return nil, err
	}
	found, err := s.inspect(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case !found.filter:
		return nil, fmt.Errorf("%s at %s: there is no such key", name, s)
	case found.shards == OneKey:
		return s.fetch(ctx, name, found, progress)
	}
	all := make(filter.Sharded, found.shards)
	for i := range all {
		part, err := s.inspect(ctx, shardKey(name, i))
		if err == nil && (!part.filter || part.kind != found.kind) {
			err = fmt.Errorf("%s at %s: %s of its %d parts is missing", name, s, shardKey(name, i), len(all))
		}
		if err != nil {
			return nil, err
		}
		before := part.octets * int64(i)
		if all[i], err = s.fetch(ctx, shardKey(name, i), part, func(done, _ int64) { progress(before+done, part.octets*int64(len(all))) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// fetch reads one key.
func (s *Server) fetch(ctx context.Context, key string, f found, progress func(done, total int64)) (filter.Filter, error) {
	read := s.fetchStored
	if f.kind == "redisbloom" {
		read = s.fetchChain
	}
	for range tries {
		got, err := read(ctx, key, f, progress)
		if err == nil || !errors.Is(err, errReplaced) {
			return got, err
		}
		if f, err = s.inspect(ctx, key); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s at %s %w, %d times in a row", key, s, errReplaced, tries)
}

func (s *Server) fetchStored(ctx context.Context, key string, f found, progress func(done, total int64)) (filter.Filter, error) {
	var octets []byte
	for int64(len(octets)) < f.octets {
		from := int64(len(octets))
		piece, err := s.client.GetRange(ctx, key, from, from+fetchSize-1).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, s.Explain(err)
		}
		if len(piece) == 0 || len(piece) > fetchSize {
			return nil, errReplaced
		}
		octets = append(octets, piece...)
		progress(int64(len(octets)), f.octets)
	}
	if err := s.same(ctx, key, f); err != nil {
		return nil, err
	}
	got, err := filter.ReadStored(octets, f.numbers)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", key, s, err)
	}
	return got, nil
}

// same reports errReplaced if the numbers are not those of before. Each push has its own.
func (s *Server) same(ctx context.Context, key string, f found) error {
	numbers, err := s.client.HGetAll(ctx, configKey(key)).Result()
	if err == nil && !maps.Equal(numbers, f.numbers) {
		return errReplaced
	}
	return s.Explain(err)
}

func (s *Server) fetchChain(ctx context.Context, key string, f found, progress func(done, total int64)) (filter.Filter, error) {
	var head, octets []byte
	var size uint64
	for answer, err := range dump(ctx, s.client, key) {
		switch {
		case err != nil:
			return nil, s.Explain(err)
		case head == nil:
			head = answer.data
			if size, err = filter.ChainSize(head); err == nil && size > maxChain {
				err = fmt.Errorf("has %d octets, and at most %d are read", size, uint64(maxChain))
			}
			if err != nil {
				return nil, fmt.Errorf("%s at %s: %w", key, s, err)
			}
			continue
		case uint64(len(answer.data)) > size-uint64(len(octets)):
			return nil, errReplaced
		}
		octets = append(octets, answer.data...)
		if answer.iterator != int64(len(octets))+1 {
			return nil, fmt.Errorf("%s at %s: the chunk %d ends at octet %d", key, s, answer.iterator, len(octets))
		}
		progress(int64(len(octets)), int64(size))
	}
	if err := s.same(ctx, key, f); err != nil {
		return nil, err
	}
	if uint64(len(octets)) < size {
		return nil, fmt.Errorf("%s at %s: ends at octet %d of %d", key, s, len(octets), size)
	}
	got, err := filter.ReadChain(head, octets)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", key, s, err)
	}
	return got, nil
}
