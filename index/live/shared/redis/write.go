package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/redisclient"
)

// lookAgain is how often it is found out whether there are replicas.
const lookAgain = 10 * time.Second

// Write makes changes by one script, and waits a moment for a replica to have them.
func (e *Engine) Write(ctx context.Context, wants []live.Want, terms live.Terms) (w shared.Written, err error) {
	args := []any{"EVAL", writeScript, changing}
	for _, k := range e.keys[:changing] {
		args = append(args, k)
	}
	args = append(args, rand.Text(), terms.MostOfOwner)
	if h := terms.Holding; h != nil {
		args = append(args, h.Owner, h.Count, strconv.FormatUint(h.Sum, 10))
	} else {
		args = append(args, "", 0, "0")
	}
	for i := range wants {
		r, want, gone, hash := &wants[i].Row, "", "", ""
		if wants[i].IfRev != nil {
			want = strconv.FormatUint(*wants[i].IfRev, 10)
		}
		if r.Gone != 0 {
			gone = "1"
		}
		owner := r.Owner
		if r.Scope != shared.ScopeToken {
			h := r.Hash()
			hash = fmt.Sprintf("%016x%016x", h[0], h[1])
		} else {
			owner = ""
		}
		if strings.ContainsAny(r.Owner+r.Entry, "\x1f") || strings.Contains(r.By, "\t") {
			return w, fmt.Errorf("%w: %s has a control character", shared.ErrRefused, r)
		}
		args = append(args, fieldOf(r), owner, want, gone, r.Created, hash, r.Expires, rest(r))
	}
	sent := false
	var result shared.Written
	err = e.asking(ctx, func(c *goredis.Client) error {
		if time.Since(e.asked) > lookAgain {
			info, err := c.Info(ctx, "replication").Result()
			if err != nil && !redisclient.IsReply(err) {
				return err
			}
			e.waits, e.asked = !strings.Contains(info, "connected_slaves:0\r\n"), time.Now()
		}
		// A pipeline has one connection, to which WAIT belongs. The client may send it twice; the second time it changes nothing.
		sent = true
		var answer, replied *goredis.Cmd
		c.Pipelined(ctx, func(p goredis.Pipeliner) error { // each command has its error
			answer = p.Do(ctx, args...)
			if e.waits {
				replied = p.Do(ctx, "WAIT", replicas, replicaLimit.Milliseconds())
			}
			return nil
		})
		if answer.Err() != nil {
			return answer.Err()
		}
		w, err := written(answer.Val(), wants)
		if replied != nil && replied.Err() == nil {
			w.Replicas, _ = replied.Int()
		} else if !e.waits {
			w.Replicas = 0
		} else {
			w.Replicas = -1
		}
		result = w
		return err
	})
	if err != nil && sent && !errors.Is(err, live.ErrOwnerFull) && !errors.Is(err, live.ErrChanged) && !redisclient.IsReply(err) {
		err = fmt.Errorf("%w: %w", shared.ErrUnknown, err)
	}
	return result, err
}

// written reads the answer of the script.
func written(answer any, wants []live.Want) (w shared.Written, err error) {
	w.Given = make([]live.Given, len(wants))
	parts, ok := answer.([]any)
	text := func(v any) string { s, _ := v.(string); return s }
	was := func(i int, value string) error {
		if value == "" {
			return nil
		}
		r, err := parse(fieldOf(&wants[i].Row), value)
		w.Given[i].Was = &r
		return err
	}
	switch {
	case !ok || len(parts) == 0:
	case text(parts[0]) == "full" && len(parts) == 3:
		return w, fmt.Errorf("%w: %s has %s (max_entries_per_owner)", live.ErrOwnerFull, text(parts[1]), text(parts[2]))
	case text(parts[0]) == "changed":
		return w, live.ErrChanged
	case text(parts[0]) == "conflict" && len(parts) == 3:
		i, _ := parts[1].(int64)
		if i < 0 || int(i) >= len(wants) {
			break
		}
		w.Given[i].Conflict = true
		return w, was(int(i), text(parts[2]))
	case text(parts[0]) == "ok" && len(parts) == 1+len(wants):
		for i := range wants {
			pair, _ := parts[1+i].([]any)
			if len(pair) != 2 {
				return w, errors.New("the script has answered something else")
			}
			rev, bad := strconv.ParseUint(text(pair[0]), 10, 64)
			w.Given[i].Rev = rev
			if err := errors.Join(bad, was(i, text(pair[1]))); err != nil {
				return w, err
			}
		}
		return w, nil
	}
	return w, fmt.Errorf("the script has answered %.100v", answer)
}

// Sweep runs the script until nothing is left.
func (e *Engine) Sweep(ctx context.Context) error {
	return e.asking(ctx, func(c *goredis.Client) error {
		for {
			n, err := c.Eval(ctx, sweepScript, e.keys[:changing], int(shared.KeepGone.Seconds())).Int()
			if err != nil || n < 500 {
				return err
			}
		}
	})
}

// Wait waits for the stream to grow.
func (e *Engine) Wait(ctx context.Context) error {
	if e.pending == nil {
		pending := make(chan error, 1)
		e.pending = pending
		go func() {
			c, err := e.node(context.Background())
			if err == nil {
				err = c.XRead(context.Background(), &goredis.XReadArgs{Streams: []string{e.keys[logKey], strconv.FormatUint(e.last.Load(), 10) + "-1"}, Count: 1, Block: waitLimit}).Err()
			}
			pending <- err
		}()
	}
	select {
	case err := <-e.pending:
		if e.pending = nil; err == nil {
			return nil
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Report keeps a node's report under a key with a life.
func (e *Engine) Report(ctx context.Context, node string, report []byte, life time.Duration) error {
	return e.asking(ctx, func(c *goredis.Client) error {
		now := time.Now().Unix()
		_, err := c.TxPipelined(ctx, func(t goredis.Pipeliner) error {
			t.Set(ctx, e.reported+node, report, life)
			t.ZAdd(ctx, e.keys[nodesKey], goredis.Z{Score: float64(now), Member: node})
			t.ZRemRangeByScore(ctx, e.keys[nodesKey], "-inf", strconv.FormatInt(now-int64((24*time.Hour).Seconds()), 10))
			return nil
		})
		return err
	})
}

// Reports reads the reports of the nodes that are known.
func (e *Engine) Reports(ctx context.Context) (all map[string][]byte, err error) {
	err = e.asking(ctx, func(c *goredis.Client) error {
		all = map[string][]byte{}
		names, err := c.ZRange(ctx, e.keys[nodesKey], -shared.MostReports, -1).Result() // those that have reported last
		if err != nil {
			return err
		}
		octets := 0
		for some := range slices.Chunk(names, 100) {
			values := make([]*goredis.StringCmd, len(some))
			_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
				for i, name := range some {
					values[i] = p.GetRange(ctx, e.reported+name, 0, shared.MaxReport)
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, v := range values {
				text := v.Val()
				if octets += len(text); octets > shared.MaxAllReports {
					return fmt.Errorf("the reports of nodes have more than %d octets", shared.MaxAllReports)
				}
				if text != "" && len(text) <= shared.MaxReport {
					all[some[i]] = []byte(text)
				}
			}
		}
		return nil
	})
	return all, err
}
