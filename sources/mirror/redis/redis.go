// Package redis reads a list from a Redis or Valkey: a single server, a Cluster, or what Sentinels watch over.
//
// Of its own a list has three keys in one slot, all changed by one script (Lua), so that they cannot part:
//
//	{blockd:NAME}:e      hash      the field is an entry, the value "ACTION TAB EXPIRES TAB ID TAB REASON"
//	{blockd:NAME}:log    stream    op=put|del f=ENTRY: this entry has changed
//	{blockd:NAME}:rev    integer   how many changes there were
//
// With shards it has these for each of {blockd:NAME:0}, {blockd:NAME:1} and so on. The set, hash or sorted set of another program
// can be read too; it tells no changes.
package redis

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/zeebo/xxh3"

	"blockd/internal/redisclient"
	"blockd/sources/mirror"
)

// Options say where a list is.
type Options struct {
	DSN     string // a URL of redisclient.Options, with its password
	List    string // the list's name, which its keys have
	Changes string // "log", or "none": everything is read each time; "" = "none" with Key, else "log"
	Key     string // the set, hash or sorted set of another program; "" = blockd's own keys
	Shards  int    // of blockd's own keys: a power of two from 2 to 1024; 0 and 1 = one
	// Every is how often everything is read without a log. Below ten minutes it is refused for more than a million
	// entries; 0 is not.
	Every time.Duration
	// Notify must be "". A Redis forgets keyspace notifications that find no listener.
	Notify string
}

const (
	maxShards   = 1024
	largeSet    = 1_000_000        // entries
	seldom      = 10 * time.Minute // for a large set: ten million entries take a minute of the server
	replyLimit  = 5 * time.Second
	connections = 4 // one reads, one waits, or still does
)

// hints are what helps a list about the answers of servers.
var hints = []redisclient.Hint{
	{Words: "NOAUTH", Text: "it wants a password: put the URL with it into dsn_file"},
	{Words: "NOPERM", Text: "this user may not read the list's keys; docs/redis.md has the ACL"},
}

// Source is a list in a Redis. It is for one goroutine.
type Source struct {
	client *redisclient.Client
	list   string
	key    string // of another program, or "" and
	shards []keys // blockd's own
	log    bool   // changes are read from their logs
	every  time.Duration
	large  int64 // entries of a key that are not read often
	old    bool  // the server has no EVAL_RO: Redis before 7
	read   marks // what was read last; nil = nothing yet
}

// keys are those of one shard, which are in one slot.
type keys struct{ entries, log, rev string }

// Open judges the options. It does not connect. No error tells a password.
func Open(o Options) (*Source, error) {
	switch {
	case o.Changes == "" && o.Key == "":
		o.Changes = "log"
	case o.Changes == "":
		o.Changes = "none"
	}
	switch {
	case o.Changes == "log" && o.Key != "":
		return nil, errors.New(`changes = "log": the data of another program have no log of blockd; want "none" with key`)
	case o.Changes != "log" && o.Changes != "none":
		return nil, fmt.Errorf(`changes: want "log" or "none", have %q`, o.Changes)
	case o.Shards < 0 || o.Shards > maxShards || o.Shards&(o.Shards-1) != 0:
		return nil, fmt.Errorf("shards: want a power of two up to %d, have %d", maxShards, o.Shards)
	case o.Shards > 1 && o.Key != "":
		return nil, errors.New("shards: the key of another program has none")
	case o.Key == "" && (o.List == "" || strings.ContainsAny(o.List, "{}")):
		return nil, fmt.Errorf("name: the keys are {blockd:NAME}:e and so on: want a name without braces, have %q", o.List)
	case o.Notify != "":
		return nil, errors.New("notify: keyspace notifications get lost while nobody listens; the list's stream loses none, and needs no such key")
	}
	client, err := redisclient.New(redisclient.Options{URL: o.DSN, Timeout: replyLimit, Connections: connections, Hints: hints})
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	s := &Source{client: client, list: o.List, key: o.Key, log: o.Changes == "log", every: o.Every, large: largeSet}
	if s.key == "" {
		s.shards = keysOf(o)
	}
	return s, nil
}

// keysOf are blockd's own keys of a list.
func keysOf(o Options) (all []keys) {
	tag := func(name string) keys { return keys{"{" + name + "}:e", "{" + name + "}:log", "{" + name + "}:rev"} }
	if o.Shards < 2 {
		return []keys{tag("blockd:" + o.List)}
	}
	for i := range o.Shards {
		all = append(all, tag(fmt.Sprintf("blockd:%s:%d", o.List, i)))
	}
	return all
}

// Close ends the connections.
func (s *Source) Close() error {
	s.client.Close()
	return nil
}

// Fingerprint names the servers and the keys. Whether a server still is the one that was read, the log tells.
func (s *Source) Fingerprint(context.Context) (string, error) {
	if s.key != "" {
		return fmt.Sprintf("%s key %q", s.client, s.key), nil
	}
	return fmt.Sprintf("%s %s, shards %d", s.client, s.shards[0].entries, len(s.shards)), nil
}

// Plan says what would be read, for people.
func (s *Source) Plan(ctx context.Context) (string, error) {
	client, err := s.client.Connect(ctx)
	if err != nil {
		return "", s.fault(err)
	}
	plan := strings.Builder{}
	fmt.Fprintf(&plan, "%s: %s\n", s.client, map[bool]string{true: "a Cluster", false: "one server at a time, no Cluster"}[isCluster(client)])
	if s.key != "" {
		node, err := nodeOf(ctx, client, s.key)
		if err != nil {
			return "", s.fault(err)
		}
		found, err := s.lookAt(ctx, node)
		if err != nil {
			return "", s.fault(err)
		}
		fmt.Fprintf(&plan, "%q: a %s of another program with %d entries; it tells no changes, so everything is read each time", s.key, found.kind, found.size)
		return plan.String(), nil
	}
	for _, k := range s.shards {
		node, err := nodeOf(ctx, client, k.entries)
		if err != nil {
			return "", s.fault(err)
		}
		h, err := readHead(ctx, node, k, noID)
		if err != nil {
			return "", s.fault(err)
		}
		fmt.Fprintf(&plan, "%s: a hash of %d entries, read by HSCAN\n", k.entries, h.size)
		if !s.log {
			continue
		}
		last := "no change yet"
		if h.id != noID {
			last = "the last at " + timeOf(h.id).UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(&plan, "%s: a stream of %d changes, %s; %s is %d; read by XREAD from the last one known\n", k.log, h.changes, last, k.rev, h.rev)
	}
	return strings.TrimSuffix(plan.String(), "\n"), nil
}

func isCluster(client goredis.UniversalClient) bool {
	_, ok := client.(*goredis.ClusterClient)
	return ok
}

// nodeOf is the client of the master that has a key.
func nodeOf(ctx context.Context, client goredis.UniversalClient, key string) (*goredis.Client, error) {
	switch c := client.(type) {
	case *goredis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *goredis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("a client of the type %T", client)
}

// shardOf is the shard of an entry: the top bits of its XXH3-64 with the seed 0.
func shardOf(entry string, shards int) int {
	return int(xxh3.HashString(entry) >> (64 - shardBits(shards)))
}

func shardBits(shards int) int { return bits.TrailingZeros(uint(shards)) }

var _ mirror.Origin = (*Source)(nil)
