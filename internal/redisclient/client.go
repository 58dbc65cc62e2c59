// Package redisclient is the connection to a Redis or Valkey: a single server, a Cluster, or what Sentinels watch over.
// It wraps go-redis, which its callers use for their commands.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Options say where a Redis is.
type Options struct {
	// URL is redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], rediss:// for TLS,
	// unix:///PATH[?db=N], or redis-sentinel://[…@]HOST:PORT[,HOST:PORT]…/MASTER[/DATABASE] with
	// rediss-sentinel:// for TLS. A Cluster is found by itself; several hosts after redis:// or
	// rediss:// are nodes of one Cluster, any of which may be away. USER and PASSWORD are those of
	// the servers; Sentinels are asked without.
	//
	// With TLS a URL may end in ?tls_ca=PATH, tls_cert=PATH and tls_key=PATH, which mean the files below where they are
	// "", and in tls=skip-verify: the server's certificate is not checked.
	URL string
	// Password takes the place of the URL's, where it is not "".
	Password string
	// CAFile has the certificates that a server's is signed with; "" = those of the machine.
	// CertFile and KeyFile are a certificate of ours, for servers that want one.
	CAFile, CertFile, KeyFile string
	// Timeout is for connecting and for one reply. 0 is 15 s. A context that ends sooner counts.
	Timeout time.Duration
	// Connections bounds those to one server that are open at a time. 0 is 4.
	Connections int
	// MaxAnswer bounds one answer, in octets: a longer one is an error, and takes no memory. 0 is 64 MiB.
	MaxAnswer int
	// Hints are the caller's own advice on a server's answers. They go before those of this package.
	Hints []Hint
}

const (
	defaultTimeout     = 15 * time.Second
	defaultConnections = 4
	defaultPort        = "6379"
	defaultSentinel    = "26379"
	// attempts is how often a command is sent again that got no answer, or one such as LOADING.
	attempts = 2
	// reloadPause is between two readings of a Cluster's state that errors ask for.
	reloadPause = 500 * time.Millisecond
	// maxNodes bounds a Cluster. Redis itself is made for a thousand.
	maxNodes = 1000
)

// Client is a connection to a Redis, made when it is first needed. Any number of goroutines may use it.
type Client struct {
	options   *redis.UniversalOptions
	shown     string // without user and password
	hints     []Hint
	connected atomic.Pointer[redis.UniversalClient]
	turn      chan struct{} // held by the goroutine that connects
	closed    atomic.Bool
}

// New judges the options. It does not connect. No error tells a password.
func New(o Options) (*Client, error) {
	to, shown, err := o.parse()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(&logging.VoidLogger{}) // each error comes back, too
	return &Client{options: to, shown: shown, hints: o.Hints, turn: make(chan struct{}, 1)}, nil
}

// Connect gives the library's client, which lives until Close, and makes connections anew after errors. The first
// call finds out whether this is a Cluster, and whether it answers us at all; after an error the next call does. Errors
// of Connect are explained; to those of the client's commands Explain belongs.
//
// The client of a Cluster reads the Cluster's state anew after an error, at most twice a second (docs/decisions/0047).
func (c *Client) Connect(ctx context.Context) (redis.UniversalClient, error) {
	if there := c.connected.Load(); there != nil {
		return *there, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, c.Explain(ctx.Err())
	}
	if there := c.connected.Load(); there != nil {
		return *there, nil
	}
	if c.closed.Load() {
		return nil, context.Canceled
	}
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.connected.Store(&client)
	if c.closed.Load() { // meanwhile
		client.Close()
	}
	return client, nil
}

func (c *Client) connect(ctx context.Context) (redis.UniversalClient, error) {
	to := *c.options
	client := open(&to)
	// The first command tells whether this is a Cluster, and whether we may speak at all.
	err := client.Do(ctx, "CLUSTER", "INFO").Err()
	switch {
	case err == nil && to.MasterName == "" && !to.IsClusterMode:
		client.Close()
		if to.DB != 0 {
			return nil, fmt.Errorf("%s: %w", c.shown, errDatabase)
		}
		to.IsClusterMode = true
		client = open(&to)
		if err := client.Ping(ctx).Err(); err != nil {
			client.Close()
			return nil, c.Explain(err)
		}
	case err != nil && to.IsClusterMode && !IsReply(err, "NOPERM"),
		err != nil && !IsReply(err), refused(err):
		client.Close()
		return nil, c.Explain(err)
	} // else it has no Cluster, or this user may not know
	return client, nil
}

// open makes a client of the library. For Sentinels that is one of a single server, whose dialer asks them.
func open(to *redis.UniversalOptions) redis.UniversalClient {
	if !to.IsClusterMode {
		return redis.NewClient(to.Simple())
	}
	cluster := redis.NewClusterClient(to.Cluster())
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(counting{}) })
	cluster.AddHook(&reloading{cluster: cluster})
	return cluster
}

// Close ends the connections, and whatever waits for them. It may be called more than once.
func (c *Client) Close() {
	c.closed.Store(true)
	if there := c.connected.Load(); there != nil {
		(*there).Close()
	}
}

// String is the server's URL without user and password.
func (c *Client) String() string { return c.shown }

// Timeout is for connecting and for one reply.
func (c *Client) Timeout() time.Duration { return c.options.ReadTimeout }

// counting is the hook of a Cluster's nodes that bounds how many others one may name: the library makes a client of
// each.
type counting struct{}

func (counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if state, ok := cmd.(*redis.ClusterSlotsCmd); ok && err == nil {
			nodes := map[string]bool{}
			for _, slots := range state.Val() {
				for _, node := range slots.Nodes {
					nodes[node.Addr] = true
				}
			}
			if len(nodes) > maxNodes {
				return fmt.Errorf("redis: invalid reply: a Cluster of %d nodes, and at most %d are taken", len(nodes), maxNodes)
			}
		}
		return err
	}
}

// reloading is the hook of a Cluster's client that reads the state of the Cluster anew after an error. By itself go-redis
// goes on to dial a dead master for longer than a minute.
type reloading struct {
	cluster *redis.ClusterClient
	last    atomic.Int64 // Unix milliseconds
}

func (r *reloading) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reloading) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.after(ctx, err)
		return err
	}
}

func (r *reloading) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.after(ctx, err)
		return err
	}
}

func (r *reloading) after(ctx context.Context, err error) {
	if !movedAway(err) {
		return
	}
	now, last := time.Now().UnixMilli(), r.last.Load()
	if now-last >= reloadPause.Milliseconds() && r.last.CompareAndSwap(last, now) {
		r.cluster.ReloadState(ctx) // in the background
	}
}

// movedAway reports whether an error may come from a master that is another now: no answer at all, or one of these.
func movedAway(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	return !IsReply(err) || IsReply(err, "MOVED", "ASK", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "TRYAGAIN")
}

// IsReply reports whether a server has answered with err; with words, whether the answer begins with one of them.
func IsReply(err error, words ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, word := range words {
		if text, ok := strings.CutPrefix(reply.Error(), word); ok && (text == "" || text[0] == ' ') {
			return true
		}
	}
	return len(words) == 0
}

// refused reports whether a server will answer nothing else before something is changed.
func refused(err error) bool {
	return IsReply(err) && !IsReply(err, "ERR This instance has cluster support disabled", "NOPERM") &&
		!strings.HasPrefix(err.Error(), "ERR unknown")
}
