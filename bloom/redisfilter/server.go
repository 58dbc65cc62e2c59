// Package redisfilter keeps Bloom filters in a live Redis: a single server, a Cluster, or
// what a Sentinel watches over. A reader sees a whole filter at all times, the old or the new one.
package redisfilter

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"blockd/internal/redisclient"
)

// defaultGrace is how long Ctrl-C waits for a server that does not answer: a push removes what it has left.
const defaultGrace = 2 * time.Second

// hints are what a push does about the answers of servers.
var hints = []redisclient.Hint{
	{Words: "NOAUTH", Text: "it wants a password: --password-file, REDISCLI_AUTH or the URL give it"},
	{Words: "NOPERM", Text: "this user may not do that; docs/filters.md has the ACL that a push needs"},
	{Words: "OOM", Text: "it has no memory for a filter beside the one that is there (maxmemory)"},
	{Words: "EXECABORT", Text: "it has refused a part of the swap, and the old filter stays"},
	{Words: "ERR string exceeds maximum", Text: "one key cannot be so large there (proto-max-bulk-len): --shards cuts a filter up"},
	{Words: "ERR unknown command", Text: "it does not know a command that is needed: RedisBloom filters need the module RedisBloom (Redis 8 has it)"},
}

// Server is a connection to a Redis. Any number of goroutines may use it.
type Server struct {
	*redisclient.Client
	client redis.UniversalClient
	stop   func() bool
	closed chan struct{}
}

// Dial connects. When ctx ends, so do soon the connections, and whatever waits for them. Who
// dials calls Close, once.
func Dial(ctx context.Context, o redisclient.Options) (*Server, error) {
	return dial(ctx, o, defaultGrace)
}

// dial is Dial with how long after its context's end a push may remove what it has left.
func dial(ctx context.Context, o redisclient.Options, grace time.Duration) (*Server, error) {
	o.Hints = hints
	c, err := redisclient.New(o)
	if err != nil {
		return nil, err
	}
	s := &Server{Client: c, closed: make(chan struct{})}
	if s.client, err = c.Connect(ctx); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() {
		select {
		case <-s.closed:
		case <-time.After(grace):
		}
		c.Close()
	})
	return s, nil
}

// Close ends the connections.
func (s *Server) Close() {
	if close(s.closed); s.stop() {
		s.Client.Close()
	}
}
