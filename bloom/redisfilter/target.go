package redisfilter

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"blockd/bloom/filter"
	"blockd/internal/redisclient"
)

// What Target takes as the number of parts, beside a power of two from 2 to filter.MaxShards.
const (
	OneKey   = 0  // the filter is the key NAME
	AsNeeded = -1 // as it is there; a new filter has one key up to 8 MiB, and else parts of at most that
)

// Kinds are the kinds of filters that a Redis can hold.
func Kinds() []string { return []string{"bitmap", "redisbloom", "redisson"} }

// largestPart is that of AsNeeded, in bits. Redis clears new memory in one step, during which it
// answers no client: 8 ms for 8 MiB, 200 ms for 120 MiB (measured with Redis 7.0).
const largestPart = 8 << 23

// Target is a name at a server that filters are pushed to. One goroutine may use it.
type Target struct {
	server *Server
	name   string
	kind   string
	shards int
	there  map[string]string // the numbers of the filter that is there
}

// Target finds out what is there under a name. A key that is no filter, and a filter of
// another kind or in another number of parts, is an error: their readers would not find what
// they know.
func (s *Server) Target(ctx context.Context, name, kind string, shards int) (*Target, error) {
	switch {
	case !slices.Contains(Kinds(), kind):
		return nil, fmt.Errorf("no kind of filter %q in a Redis; want one of %v", kind, Kinds())
	case shards != OneKey && shards != AsNeeded && (shards < 2 || shards > filter.MaxShards || shards&(shards-1) != 0):
		return nil, fmt.Errorf("want a power of two from 2 to %d as the number of parts, have %d", filter.MaxShards, shards)
	}
	if err := checkName(name, shards); err != nil {
		return nil, err
	}
	found, err := s.inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	t := &Target{server: s, name: name, kind: kind, shards: shards, there: found.numbers}
	if !found.filter {
		return t, nil
	}
	if shards == AsNeeded {
		t.shards = found.shards
	}
	if found.kind != kind || found.shards != t.shards {
		return nil, fmt.Errorf("%s at %s is a %s filter in %s, which its readers know; push under another name, or delete it first", name, s, found.kind, parts(found.shards))
	}
	return t, nil
}

func parts(shards int) string {
	if shards == OneKey {
		return "one key"
	}
	return fmt.Sprintf("%d parts", shards)
}

// New makes an empty filter for n keys, to be filled and given to Push. Of n keys it says
// "perhaps" to a share p of all others, or fewer.
//
// Programs know the size of a bitmap and its hashes, and Redisson's do not look again. So a new
// one has room for a quarter more keys, and the next one has the same size as long as it fits: not
// too small, nor four times too large.
func (t *Target) New(n uint64, p float64) (filter.Filter, error) {
	if t.kind == "redisbloom" {
		return t.parts(n, p, n, func(n uint64) (filter.Filter, error) { return filter.New(t.kind, n, p) })
	}
	const least = 1000 // a filter of a few bits is wrong more often than p, and does not fit for long
	room := max(n+n/4, least)
	return t.parts(n, p, room, func(room uint64) (filter.Filter, error) {
		expected, err := strconv.ParseUint(t.there["expectedInsertions"], 10, 64)
		rate, err2 := strconv.ParseFloat(t.there["falseProbability"], 64)
		if need := perPart(n, t.shards); err == nil && err2 == nil && rate == p && expected >= need && expected/5 <= need {
			if f, err := filter.EmptyStored(t.there); err == nil && f.Kind() == t.kind {
				return f, nil
			}
		}
		return filter.New(t.kind, room, p)
	})
}

// parts makes the parts, each for its share of room keys.
func (t *Target) parts(n uint64, p float64, room uint64, part func(room uint64) (filter.Filter, error)) (filter.Filter, error) {
	if t.shards == AsNeeded {
		size, _ := filter.ClassicSize(room, p)
		if t.shards = OneKey; size > largestPart {
			t.shards = min(1<<bits.Len64((size+size/50)/largestPart), filter.MaxShards)
		}
		if err := checkName(t.name, t.shards); err != nil {
			return nil, err
		}
	}
	if t.shards == OneKey {
		return part(max(room, 1))
	}
	var all filter.Sharded
	for range t.shards {
		f, err := part(perPart(room, t.shards))
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// perPart is how many of n keys the fullest part may have: hashes spread them evenly, but for
// four standard deviations.
func perPart(n uint64, shards int) uint64 {
	if shards <= 1 {
		return max(n, 1)
	}
	share := float64(n) / float64(shards)
	return uint64(math.Ceil(share+4*math.Sqrt(share))) + 1
}

// Mark tells the filter that is there under a name from every other that was pushed, and from itself with fewer
// parts; "" = there is none.
func (s *Server) Mark(ctx context.Context, name string) (string, error) {
	f, err := s.inspect(ctx, name)
	if err != nil || !f.filter {
		return "", err
	}
	keys := []string{name}
	if f.shards != OneKey {
		keys = nil
		for i := range f.shards {
			keys = append(keys, shardKey(name, i))
		}
	}
	there := make([]*redis.IntCmd, len(keys))
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			there[i] = p.Exists(ctx, key)
		}
		return nil
	}); err != nil {
		return "", s.Explain(err)
	}
	count := int64(0) // Redisson has no key for an empty filter
	for _, one := range there {
		count += one.Val()
	}
	mark := fmt.Sprintf("%s keys=%d", f.kind, count)
	for _, number := range slices.Sorted(maps.Keys(f.numbers)) {
		mark += fmt.Sprintf(" %s=%q", number, f.numbers[number])
	}
	return mark, nil
}

// found is what is there under a name.
type found struct {
	filter  bool
	kind    string
	shards  int               // of a filter whose parts have names of their own
	numbers map[string]string // config
	octets  int64             // of the string; 0 if there is none
}

// inspect says what is at key. What is no filter is an error.
func (s *Server) inspect(ctx context.Context, key string) (f found, err error) {
	var kind, configKind *redis.StatusCmd
	if _, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		kind, configKind = p.Type(ctx, key), p.Type(ctx, configKey(key))
		return nil
	}); err != nil {
		return f, s.Explain(err)
	}
	if configKind.Val() == "hash" {
		if f.numbers, err = s.client.HGetAll(ctx, configKey(key)).Result(); err != nil {
			return f, s.Explain(err)
		}
	}
	if kind.Val() == "string" {
		if f.octets, err = s.client.StrLen(ctx, key).Result(); err != nil {
			return f, s.Explain(err)
		}
	}
	switch what := kind.Val(); {
	case configKind.Val() != "none" && configKind.Val() != "hash":
		return f, fmt.Errorf("%s at %s is a %s, and should be the hash with the filter's numbers: choose another name, or delete it", configKey(key), s, redisclient.Visible(configKind.Val()))
	case what == "none" && len(f.numbers) == 0:
		return f, nil
	case what == "MBbloom--":
		f.filter, f.kind = true, "redisbloom"
		return f, nil
	case what != "none" && what != "string":
		return f, s.noFilter(key, "is a "+redisclient.Visible(what))
	}
	return f, f.fromNumbers(s, key, kind.Val())
}

// fromNumbers reads what the config says.
func (f *found) fromNumbers(s *Server, key, kind string) error {
	if text := f.numbers["shards"]; text != "" && kind == "none" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 || n > filter.MaxShards || n&(n-1) != 0 || !slices.Contains(Kinds(), f.numbers["kind"]) {
			return s.noFilter(configKey(key), "tells of parts that cannot be")
		}
		f.filter, f.kind, f.shards = true, f.numbers["kind"], n
		return nil
	}
	if len(f.numbers) == 0 {
		return s.noFilter(key, "is a string without "+configKey(key)+", which has a filter's size")
	}
	// Redisson has no string yet where nothing was added.
	empty, err := filter.ReadStored(nil, f.numbers)
	if err != nil {
		return s.noFilter(key, redisclient.Visible("has wrong numbers: "+err.Error()))
	}
	f.filter, f.kind = true, empty.Kind()
	size, _ := strconv.ParseInt(f.numbers["size"], 10, 64) // ReadStored has read it
	if f.octets > (size+7)/8 {
		return s.noFilter(key, fmt.Sprintf("has %d octets, and a size of %d bits", f.octets, size))
	}
	return nil
}

func (s *Server) noFilter(key, why string) error {
	return fmt.Errorf("%s at %s is no filter: it %s; choose another name, or delete it first", key, s, why)
}
