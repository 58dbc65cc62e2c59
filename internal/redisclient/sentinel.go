package redisclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelPause is how long a connection to a master lives before the Sentinels are asked for it again.
const sentinelPause = 10 * time.Second

// watched is the dialer of a master that Sentinels know: it asks all of them, and goes where the first one says. The
// library's own client of Sentinels ends the process at an answer or a message that has fewer parts than it expects.
func watched(to *redis.UniversalOptions) func(ctx context.Context, network, address string) (net.Conn, error) {
	sentinels, name, dial, patience := to.Addrs, to.MasterName, to.Dialer, to.DialTimeout
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		asking, end := context.WithTimeout(ctx, patience)
		defer end()
		type answer struct {
			master string
			err    error
		}
		answers := make(chan answer, len(sentinels))
		for _, sentinel := range sentinels {
			go func() {
				master, err := masterOf(asking, sentinel, name, dial, patience)
				answers <- answer{master, err}
			}()
		}
		var wrong error
		for range sentinels {
			a := <-answers
			if a.err == nil {
				return dial(ctx, network, a.master)
			}
			wrong = errors.Join(wrong, a.err)
		}
		return nil, fmt.Errorf("no Sentinel names the master: %w", wrong)
	}
}

// masterOf asks a Sentinel, without a password.
func masterOf(ctx context.Context, sentinel, name string, dial func(context.Context, string, string) (net.Conn, error), patience time.Duration) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: sentinel, Dialer: dial, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience})
	defer client.Close()
	reply, err := client.Do(ctx, "SENTINEL", "get-master-addr-by-name", name).StringSlice()
	switch {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("%s knows no %q", sentinel, name)
	case err != nil:
		return "", fmt.Errorf("%s: %w", sentinel, err)
	case len(reply) != 2:
		return "", fmt.Errorf("%s: redis: invalid reply of %d parts", sentinel, len(reply))
	}
	return net.JoinHostPort(reply[0], reply[1]), nil
}
