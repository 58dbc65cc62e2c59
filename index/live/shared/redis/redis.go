// Package redis has the live entries of a fleet in a Redis or Valkey. All keys of a name are in one slot, and are changed by
// scripts (Lua) alone, so that they cannot part:
//
//	{blockd:NAME}:live     hash        OWNER\x1fENTRY\x1fSCOPE to REV TAB GONE TAB HASH TAB CREATED TAB EXPIRES TAB ACTION TAB FLAGS TAB BY TAB WHY
//	{blockd:NAME}:log      stream      the last changes; the id is REV-1, f the field, v the value
//	{blockd:NAME}:rev      integer     the highest revision
//	{blockd:NAME}:epoch    text        drawn when the keys were begun
//	{blockd:NAME}:sum      hash        n entries in force, and x, the XOR of their hashes
//	{blockd:NAME}:ends     sorted set  fields by when they end
//	{blockd:NAME}:gone     sorted set  fields by when they were removed; their rows stay for 7 days
//	{blockd:NAME}:owners   hash        how many entries an owner has
//	{blockd:NAME}:owned    hash        the sum of the revisions of an owner's entries
//	{blockd:NAME}:nodes    sorted set  nodes by when they have last reported
//	{blockd:NAME}:node:X   text        the report of a node, with a life
//
// A Redis acknowledges a change before its replicas have it, so a failover may lose one. Nodes notice that and tell of it.
package redis

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/redisclient"
)

var (
	//go:embed write.lua
	writeScript string
	//go:embed sweep.lua
	sweepScript string
	//go:embed read.lua
	readScript string
)

const (
	replyLimit = 5 * time.Second
	waitLimit  = 5 * time.Second // of one XREAD

	// A change waits so long for one replica to have it.
	replicas     = 1
	replicaLimit = 200 * time.Millisecond
)

var hints = []redisclient.Hint{
	{Words: "NOAUTH", Text: "it wants a password: put the URL with it into live.dsn_file"},
	{Words: "NOPERM", Text: "this user may not use the keys of the fleet; docs/live.md has the ACL"},
}

// Engine is a shared.Engine.
type Engine struct {
	name     string
	client   *redisclient.Client
	keys     []string      // as the scripts take them
	last     atomic.Uint64 // the highest revision that was read
	waits    bool          // there are replicas to wait for
	asked    time.Time     // when that was found out
	pending  chan error    // of a read that waits for a hint; nil = none does
	reported string        // the prefix of reports
}

// Open judges the URL; it does not connect. An error never holds a password.
func Open(dsn, name string) (*Engine, error) {
	if name == "" || strings.ContainsAny(name, "{}") {
		return nil, fmt.Errorf("name: the keys are {blockd:NAME}:live and so on: want a name without braces, have %q", name)
	}
	client, err := redisclient.New(redisclient.Options{URL: dsn, Timeout: replyLimit, Hints: hints})
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	e := &Engine{name: name, client: client, reported: "{blockd:" + name + "}:node:"}
	for _, part := range []string{"live", "log", "rev", "epoch", "sum", "ends", "gone", "owners", "owned", "nodes"} {
		e.keys = append(e.keys, "{blockd:"+name+"}:"+part)
	}
	return e, nil
}

// The places of keys.
const (
	liveKey  = 0
	logKey   = 1
	revKey   = 2
	epochKey = 3
	sumKey   = 4
	nodesKey = 9
	changing = 9 // how many of them the scripts take
)

// String names the servers.
func (e *Engine) String() string { return e.client.String() + ", name " + e.name }

// Close ends the connections.
func (e *Engine) Close() { e.client.Close() }

// node connects to the master that has the keys.
func (e *Engine) node(ctx context.Context) (*goredis.Client, error) {
	client, err := e.client.Connect(ctx)
	if err != nil {
		return nil, err
	}
	switch c := client.(type) {
	case *goredis.ClusterClient:
		return c.MasterForKey(ctx, e.keys[liveKey])
	case *goredis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("a client of the type %T", client)
}

// asking runs ask with the master. A Cluster whose master is another one now says so to a client of a node: the next call
// goes there.
func (e *Engine) asking(ctx context.Context, ask func(*goredis.Client) error) error {
	c, err := e.node(ctx)
	if err == nil {
		if err = ask(c); redisclient.IsReply(err, "MOVED", "READONLY", "MASTERDOWN", "CLUSTERDOWN") {
			if whole, _ := e.client.Connect(ctx); whole != nil {
				if cluster, ok := whole.(*goredis.ClusterClient); ok {
					cluster.ReloadState(ctx)
				}
			}
		}
	}
	if err == nil || errors.Is(err, live.ErrOwnerFull) || errors.Is(err, live.ErrChanged) || errors.Is(err, live.ErrYielded) || errors.Is(err, live.ErrUnwritable) || errors.Is(err, shared.ErrUnknown) {
		return err
	}
	return e.client.Explain(err)
}

// begin draws an epoch if there is none.
func (e *Engine) begin(ctx context.Context, c *goredis.Client) error {
	return c.SetNX(ctx, e.keys[epochKey], rand.Text(), 0).Err()
}

// Changes is one transaction.
func (e *Engine) Changes(ctx context.Context, since uint64, most int) (p shared.Page, err error) {
	err = e.asking(ctx, func(c *goredis.Client) error {
		var epoch, rev *goredis.StringCmd
		var now *goredis.TimeCmd
		var first *goredis.XMessageSliceCmd
		var after *goredis.Cmd
		ask := func() error {
			_, err := c.TxPipelined(ctx, func(t goredis.Pipeliner) error {
				epoch, rev, now = t.Get(ctx, e.keys[epochKey]), t.Get(ctx, e.keys[revKey]), t.Time(ctx)
				first = t.XRangeN(ctx, e.keys[logKey], "-", "+", 1)
				after = t.Eval(ctx, readScript, e.keys[:changing], "log", strconv.FormatUint(since+1, 10), most+1, shared.MaxField)
				return nil
			})
			if err == goredis.Nil {
				return nil
			}
			return err
		}
		if err := ask(); err != nil {
			return err
		}
		if epoch.Val() == "" {
			if err := e.begin(ctx, c); err != nil {
				return err
			}
			if err := ask(); err != nil {
				return err
			}
		}
		p = shared.Page{Epoch: epoch.Val(), Now: now.Val()}
		if text := rev.Val(); text != "" {
			if p.Rev, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("%s: %w", e.keys[revKey], err)
			}
		}
		if p.Rev > since && (len(first.Val()) == 0 || revisionOf(first.Val()[0].ID) > since+1) {
			p.TooOld = true
			return nil
		}
		texts, err := after.StringSlice()
		if err != nil {
			return err
		}
		for i := 0; i+2 < len(texts); i += 3 {
			if i/3 == most {
				p.More = true
				break
			}
			p.To = revisionOf(texts[i])
			if r, err := parse(texts[i+1], texts[i+2]); err != nil || r.Rev != p.To {
				p.Bad = append(p.Bad, named(texts[i+1]))
			} else {
				p.Rows = append(p.Rows, r)
			}
		}
		if e.last.Store(p.Rev); p.More {
			e.last.Store(p.To)
		}
		return nil
	})
	return p, err
}

func revisionOf(id string) uint64 {
	text, _, _ := strings.Cut(id, "-")
	rev, _ := strconv.ParseUint(text, 10, 64)
	return rev
}

// named is a field as people read it.
func named(field string) string {
	if len(field) > 300 {
		field = field[:300] + "..."
	}
	return fmt.Sprintf("the field %q", field)
}

// All walks through the hash.
func (e *Engine) All(ctx context.Context, each func([]live.Row, []string) error) error {
	return e.asking(ctx, func(c *goredis.Client) error {
		for cursor := "0"; ; {
			pairs, err := c.Eval(ctx, readScript, e.keys[:changing], "all", cursor, 1000, shared.MaxField).StringSlice()
			if err != nil {
				return err
			}
			if len(pairs) == 0 {
				return errors.New("the script has answered nothing")
			}
			cursor, pairs = pairs[0], pairs[1:]
			rows, bad := make([]live.Row, 0, len(pairs)/2), []string(nil)
			for i := 0; i+1 < len(pairs); i += 2 {
				if r, err := parse(pairs[i], pairs[i+1]); err != nil {
					bad = append(bad, named(pairs[i]))
				} else {
					rows = append(rows, r)
				}
			}
			if err := each(rows, bad); err != nil {
				return err
			}
			if cursor == "0" {
				return nil
			}
		}
	})
}

// State reads what the scripts keep.
func (e *Engine) State(ctx context.Context) (s shared.State, err error) {
	err = e.asking(ctx, func(c *goredis.Client) error {
		var epoch, rev, count, xor *goredis.StringCmd
		var now *goredis.TimeCmd
		_, err := c.TxPipelined(ctx, func(t goredis.Pipeliner) error {
			epoch, rev, now = t.Get(ctx, e.keys[epochKey]), t.Get(ctx, e.keys[revKey]), t.Time(ctx)
			count, xor = t.HGet(ctx, e.keys[sumKey], "n"), t.HGet(ctx, e.keys[sumKey], "x")
			return nil
		})
		if err != nil && err != goredis.Nil {
			return err
		}
		s = shared.State{Epoch: epoch.Val(), Now: now.Val(), XOR: new([2]uint64)}
		number := func(text string, base int) (n uint64) {
			if text != "" {
				var bad error
				n, bad = strconv.ParseUint(text, base, 64)
				err = errors.Join(err, bad)
			}
			return n
		}
		err = nil
		s.Rev, s.Count = number(rev.Val(), 10), int64(number(count.Val(), 10))
		if x := xor.Val(); len(x) == 32 {
			s.XOR[0], s.XOR[1] = number(x[:16], 16), number(x[16:], 16)
		}
		return err
	})
	return s, err
}

// parse reads a field and its value.
func parse(field, value string) (r live.Row, err error) {
	names, parts := strings.Split(field, "\x1f"), strings.SplitN(value, "\t", 9)
	if len(names) != 3 || len(parts) != 9 || len(field) > shared.MaxField || len(value) > shared.MaxField {
		return r, fmt.Errorf("the field %q: want OWNER, ENTRY and SCOPE, and a value of 9 parts", field)
	}
	number := func(text string) int64 {
		n, bad := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	r = live.Row{Owner: names[0], Entry: names[1], Scope: names[2], Rev: uint64(number(parts[0])), Gone: number(parts[1]), Created: number(parts[3]), Expires: number(parts[4]),
		Action: parts[5], Forced: strings.Contains(parts[6], "f"), Proof: strings.Contains(parts[6], "p"), By: parts[7], Why: parts[8]}
	if err != nil {
		return r, fmt.Errorf("the value of %q: %w", field, err)
	}
	return r, nil
}

func fieldOf(r *live.Row) string { return r.Owner + "\x1f" + r.Entry + "\x1f" + r.Scope }

// rest is the end of a row's value.
func rest(r *live.Row) string {
	flags := ""
	if r.Forced {
		flags += "f"
	}
	if r.Proof {
		flags += "p"
	}
	return strings.Join([]string{r.Action, flags, r.By, r.Why}, "\t")
}

var _ shared.Engine = (*Engine)(nil)
