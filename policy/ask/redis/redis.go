// Package redis asks a list in a Redis or Valkey: the set, hash or sorted set of another program, or blockd's own hash. All of a
// question is one round trip.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/redisclient"
	"blockd/policy/ask"
	"blockd/sources/mirror"
	"blockd/sources/mirror/redis"
)

// Options say where a list is: as for package sources/mirror/redis, of which DSN, List, Key and Shards count.
type Options = redis.Options

// connections bounds those to one server: a hung one fails those who wait, and none of the others.
const connections = 16

// maxAnswer bounds what the store says of one question, in octets.
const maxAnswer = 4 << 20

// Store is a list in a Redis. Any number of goroutines may use it.
type Store struct {
	client *redisclient.Client
	key    string   // of another program, or ""
	shards []string // blockd's own hashes
	kind   atomic.Pointer[kind]
}

// kind is how a key is asked.
type kind struct {
	name, command string
	row           func(text string, reply any) (rows []mirror.Row, ok bool)
}

var kinds = []*kind{
	{"set", "SMISMEMBER", func(text string, reply any) ([]mirror.Row, bool) {
		switch reply {
		case int64(0):
			return nil, true
		case int64(1):
			return []mirror.Row{{Entry: text}}, true
		}
		return nil, false
	}},
	hash,
	{"zset", "ZMSCORE", func(text string, reply any) ([]mirror.Row, bool) {
		switch reply.(type) {
		case nil:
			return nil, true
		case string, float64:
			return []mirror.Row{{Entry: text}}, true
		}
		return nil, false
	}},
}

// The hash of another program, and blockd's own.
var (
	hash = &kind{"hash", "HMGET", fieldOf(redis.Row)}
	own  = &kind{"hash", "HMGET", fieldOf(redis.OwnRow)}
)

func fieldOf(row func(entry, value string) mirror.Row) func(string, any) ([]mirror.Row, bool) {
	return func(text string, reply any) ([]mirror.Row, bool) {
		switch value := reply.(type) {
		case nil:
			return nil, true
		case string:
			return []mirror.Row{row(text, value)}, true
		}
		return nil, false
	}
}

// Open judges the options. It does not connect. No error tells a password.
func Open(o Options) (*Store, error) {
	if _, err := redis.Open(o); err != nil { // who judges them; it has no connection to close
		return nil, err
	}
	client, err := redisclient.New(redisclient.Options{URL: o.DSN, Connections: connections, MaxAnswer: maxAnswer})
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	s := &Store{client: client, key: o.Key}
	if o.Key == "" {
		s.shards = redis.Keys(o)
		s.kind.Store(own)
	}
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	s.client.Close()
	return nil
}

// String is the server and the key, without secrets.
func (s *Store) String() string {
	if s.key != "" {
		return fmt.Sprintf("%s %s", s.client, s.key)
	}
	return fmt.Sprintf("%s %s", s.client, s.shards[0])
}

// Ask asks for all texts. A key that is not there is an error: nobody can tell an emptied list from one that was lost.
func (s *Store) Ask(ctx context.Context, texts []string) ([]ask.Answer, error) {
	client, err := s.client.Connect(ctx)
	if err != nil {
		return nil, err
	}
	k, err := s.kindOf(ctx, client)
	if err != nil {
		return nil, s.client.Explain(err)
	}
	answers, err := s.ask(ctx, client, k, texts)
	if redisclient.IsReply(err, "WRONGTYPE") && s.key != "" {
		s.kind.Store(nil) // it is another one now; the next question finds out
	}
	if errors.Is(err, ask.ErrWrong) {
		return nil, err
	}
	return answers, s.client.Explain(err)
}

// kindOf finds out, once, of which kind the key is.
func (s *Store) kindOf(ctx context.Context, client goredis.UniversalClient) (*kind, error) {
	if k := s.kind.Load(); k != nil {
		return k, nil
	}
	name, err := client.Type(ctx, s.key).Result()
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if k.name == name {
			s.kind.Store(k)
			return k, nil
		}
	}
	if name == "none" {
		return nil, errGone
	}
	return nil, fmt.Errorf("the key is a %s; want a set, a hash or a sorted set", redisclient.Visible(name))
}

var errGone = errors.New("the key is not there")

// ask asks each key that may have some of the texts, all of them in one pipeline.
func (s *Store) ask(ctx context.Context, client goredis.UniversalClient, k *kind, texts []string) ([]ask.Answer, error) {
	parts := map[string][]int{} // of each key: the places of its texts
	for i, text := range texts {
		name := s.key
		if name == "" {
			name = s.shards[redis.Shard(text, len(s.shards))]
		}
		parts[name] = append(parts[name], i)
	}
	type sent struct {
		exists *goredis.IntCmd
		reply  *goredis.Cmd
		places []int
	}
	pipe, all := client.Pipeline(), make([]sent, 0, len(parts))
	for name, places := range parts {
		command := []any{k.command, name}
		for _, i := range places {
			command = append(command, texts[i])
		}
		all = append(all, sent{pipe.Exists(ctx, name), pipe.Do(ctx, command...), places})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	answers := make([]ask.Answer, len(texts))
	for _, c := range all {
		if c.exists.Val() != 1 {
			return nil, errGone
		}
		replies, ok := c.reply.Val().([]any)
		if !ok || len(replies) != len(c.places) {
			return nil, fmt.Errorf("%w: %s", ask.ErrWrong, strings.ToLower(k.command))
		}
		for j, i := range c.places {
			rows, ok := k.row(texts[i], replies[j])
			if !ok {
				return nil, fmt.Errorf("%w: %s", ask.ErrWrong, strings.ToLower(k.command))
			}
			answers[i] = ask.Answer{Text: texts[i], Rows: rows}
		}
	}
	return answers, nil
}
