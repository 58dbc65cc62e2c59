package redisclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// Hint is what to do about an answer of a server that begins with Words.
type Hint struct{ Words, Text string }

// hints are those that help every caller.
var hints = []Hint{
	{"NOAUTH", "it wants a password"},
	{"WRONGPASS", "it does not take this user with this password"},
	{"NOPERM", "this user may not do that"},
	{"OOM", "it has no memory left (maxmemory)"},
	{"READONLY", "it is a replica: name the master, or the Sentinels by redis-sentinel://"},
	{"MISCONF", "it takes no writes because it cannot save to its disk"},
	{"LOADING", "it has just begun and reads its data; try again"},
	{"MASTERDOWN", "it is a replica without its master"},
	{"CLUSTERDOWN", "its Cluster lacks nodes (redis-cli cluster info)"},
	{"MOVED", "it is a node of a Cluster, and this user may not ask it so (CLUSTER INFO)"},
	{"TRYAGAIN", "its Cluster moves this slot; try again"},
	{"WRONGTYPE", "the key is of another type"},
	{"ERR max number of clients", "it has as many clients as it takes (maxclients)"},
	{"ERR Client sent AUTH", "it has no password, and was given one"},
	{"ERR AUTH", "it has no password, and was given one"},
	{"ERR invalid password", "it does not take this password"},
	{"ERR DB index", "it has fewer databases"},
	{"ERR This instance has cluster support disabled", "several hosts in a URL are nodes of a Cluster, and this one is of none"},
	{"ERR unknown command", "it does not know a command that is needed"},
}

// explained is an error with a text for people. What it was made of is still found by errors.As.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// Explain makes one line of an error of the server, with what to do about it. It tells no password.
func (c *Client) Explain(err error) error {
	_, done := errors.AsType[*explained](err)
	switch {
	case err == nil, done, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return context.Canceled // by Close
	}
	return &explained{c.shown + c.explain(err), err}
}

func (c *Client) explain(err error) string {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case IsReply(err):
		for _, all := range [][]Hint{c.hints, hints} {
			for _, h := range all {
				if strings.HasPrefix(err.Error(), h.Words) {
					return fmt.Sprintf(": %s: %s", h.Words, h.Text)
				}
			}
		}
		return " answers: " + c.visible(err)
	case ok && timeout.Timeout():
		return fmt.Sprintf(": no answer within %v: %s", c.Timeout(), c.visible(err))
	}
	return ": " + c.visible(err)
}

// visible makes an error fit for a line. An answer may repeat what the server was sent, the password too.
func (c *Client) visible(err error) string {
	text := err.Error()
	if secret := c.options.Password; secret != "" {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return Visible(text)
}

// Visible makes a server's words fit for a line: 200 octets that can be shown.
func Visible(text string) string {
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
