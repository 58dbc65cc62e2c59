package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// isReply reports whether a server has answered with err.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// hints are what to do about the answers of servers, by the word that they begin with.
var hints = []struct{ word, hint string }{
	{"NOAUTH", "it wants a password: --password-file, REDISCLI_AUTH or the URL give it"},
	{"WRONGPASS", "it does not take this user with this password"},
	{"NOPERM", "this user may not do that; docs/filters.md has the ACL that a push needs"},
	{"OOM", "it has no memory for a filter beside the one that is there (maxmemory)"},
	{"READONLY", "it is a replica: name the master, or the Sentinels by redis-sentinel://"},
	{"MISCONF", "it takes no writes because it cannot save to its disk"},
	{"LOADING", "it has just begun and reads its data; try again"},
	{"MASTERDOWN", "it is a replica without its master"},
	{"CLUSTERDOWN", "its Cluster lacks nodes (redis-cli cluster info)"},
	{"MOVED", "it is a node of a Cluster, and this user may not ask it so (CLUSTER INFO)"},
	{"TRYAGAIN", "its Cluster moves this slot; try again"},
	{"EXECABORT", "it has refused a part of the swap, and the old filter stays"},
	{"ERR max number of clients", "it has as many clients as it takes (maxclients)"},
	{"ERR Client sent AUTH", "it has no password, and was given one"},
	{"ERR AUTH", "it has no password, and was given one"},
	{"ERR invalid password", "it does not take this password"},
	{"ERR DB index", "it has fewer databases"},
	{"ERR string exceeds maximum", "one key cannot be so large there (proto-max-bulk-len): --shards cuts a filter up"},
	{"ERR unknown command", "it does not know a command that is needed: RedisBloom filters need the module RedisBloom (Redis 8 has it)"},
}

// refused reports whether a server will answer nothing else before something is changed.
func refused(err error) bool {
	return err != nil && isReply(err) && !strings.HasPrefix(err.Error(), "ERR This instance has cluster support disabled") &&
		!strings.HasPrefix(err.Error(), "NOPERM") && !strings.HasPrefix(err.Error(), "ERR unknown")
}

// explain makes one line of an error of the server, with what to do about it.
func (s *Server) explain(err error) error {
	var timeout net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return context.Canceled // Dial's context closed it
	case isReply(err):
		for _, h := range hints {
			if strings.HasPrefix(err.Error(), h.word) {
				return fmt.Errorf("%s: %s: %s", s.shown, h.word, h.hint)
			}
		}
		return fmt.Errorf("%s answers: %s", s.shown, visible(err.Error()))
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: no answer within %v: %s", s.shown, s.timeout, visible(err.Error()))
	}
	return fmt.Errorf("%s: %s", s.shown, visible(err.Error()))
}

// visible makes a server's words fit for a line: an answer may repeat what it was sent.
func visible(text string) string {
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, text)
}
