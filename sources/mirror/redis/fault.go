package redis

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"

	"blockd/internal/redisclient"
	"blockd/sources/mirror"
)

// errShape is for an answer that does not have the form of its command.
var errShape = errors.New("an answer that is none to what was asked")

// classes are those of a server's answers, by the words that these begin with. Any other answer is of ClassQuery.
var classes = []struct {
	class mirror.Class
	words []string
}{
	{mirror.ClassAuth, []string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH"}},
	{mirror.ClassSchema, []string{"WRONGTYPE"}},
	{mirror.ClassUnreachable, []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK"}},
	{mirror.ClassRefused, []string{"READONLY", "BUSY", "MISCONF", "OOM", "NOREPLICAS", "ERR max number of clients"}},
}

// notRedis is in the errors of the library about answers that it cannot read.
var notRedis = regexp.MustCompile(`redis: (can't parse|invalid|unexpected|got) |strconv\.|parsing "`)

// fault gives an error its class, and a text without a password.
func (s *Source) fault(err error) error {
	if _, classed := errors.AsType[*mirror.Error](err); err == nil || classed || errors.Is(err, mirror.ErrTooOld) || errors.Is(err, context.Canceled) {
		return err
	}
	told := s.client.Explain(err)
	if errors.Is(told, context.Canceled) { // Close was called
		return told
	}
	return &mirror.Error{Class: classOf(err), Err: told}
}

func classOf(err error) mirror.Class {
	timeout, ok := errors.AsType[net.Error](err)
	switch text := err.Error(); {
	case redisclient.IsReply(err):
		for _, c := range classes {
			if redisclient.IsReply(err, c.words...) {
				return c.class
			}
		}
		// Before Redis 7 the error of a script's command stands in a longer text.
		if strings.Contains(text, "WRONGTYPE") {
			return mirror.ClassSchema
		}
		return mirror.ClassQuery
	case ok && timeout.Timeout():
		return mirror.ClassTimeout
	case errors.Is(err, errShape) || notRedis.MatchString(text):
		return mirror.ClassQuery
	}
	return mirror.ClassUnreachable
}
