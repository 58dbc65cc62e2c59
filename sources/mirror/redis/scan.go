package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/redisclient"
	"blockd/sources/mirror"
)

const (
	scanCount   = 1000    // entries of one answer: some 0.6 ms of the server
	firstCount  = 64      // of the first one: values may be large
	answerLimit = 1 << 20 // octets of one answer, after which the next ones have fewer entries
)

// noID is the id before every change.
const noID = "0-0"

// head is what a shard has at one moment.
type head struct {
	id      string // of the last change; noID = there is none
	rev     int64
	size    int64 // entries
	changes int64 // that the stream holds
	known   bool  // it has the change that was asked for
}

// readHead reads the head of a shard, and looks for a change that is known.
func readHead(ctx context.Context, c goredis.Cmdable, k keys, known string) (h head, err error) {
	var last, found *goredis.XMessageSliceCmd
	var rev *goredis.StringCmd
	var size, changes *goredis.IntCmd
	cmds, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		last, rev = p.XRevRangeN(ctx, k.log, "+", "-", 1), p.Get(ctx, k.rev)
		size, changes = p.HLen(ctx, k.entries), p.XLen(ctx, k.log)
		found = p.XRange(ctx, k.log, known, known)
		return nil
	})
	for _, cmd := range cmds { // a command that is refused says why, and EXEC only that one was
		if refused := cmd.Err(); refused != nil && !errors.Is(refused, goredis.Nil) && !redisclient.IsReply(refused, "EXECABORT") {
			return h, refused
		}
	}
	if err != nil && !errors.Is(err, goredis.Nil) {
		return h, err
	}
	h = head{id: noID, size: size.Val(), changes: changes.Val(), known: known == noID || len(found.Val()) == 1}
	if all := last.Val(); len(all) > 0 {
		h.id = all[0].ID
	}
	if h.rev, err = rev.Int64(); err != nil && !errors.Is(err, goredis.Nil) {
		return h, &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("%s is no number", k.rev)}
	}
	return h, nil
}

// timeOf is when a change was made, by the server's clock.
func timeOf(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n)
}

// All yields every entry. A Redis has no snapshot: what changes during the read may be seen before or after. The
// mark is from before the read, so that these entries are among the changes that follow it.
func (s *Source) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	client, err := s.client.Connect(ctx)
	if err != nil {
		return "", s.fault(err)
	}
	if s.key != "" {
		return "", s.fault(s.readKey(ctx, client, yield))
	}
	var all marks
	for _, k := range s.shards {
		m, err := s.readShard(ctx, client, k, yield)
		if err != nil {
			return "", s.fault(err)
		}
		all = append(all, m)
	}
	if !s.log {
		return "", nil
	}
	s.read = all
	return all.mark(), nil
}

// readShard reads a hash by one connection, so by one process: another one, after a failover, has another order.
func (s *Source) readShard(ctx context.Context, client goredis.UniversalClient, k keys, yield func(mirror.Row) error) (mark, error) {
	node, err := nodeOf(ctx, client, k.entries)
	if err != nil {
		return mark{}, err
	}
	conn := node.Conn()
	defer conn.Close()
	before, err := readHead(ctx, conn, k, noID)
	if err != nil {
		return mark{}, err
	}
	rows, err := scan(ctx, 2, func(cursor uint64, count int64) *goredis.ScanCmd {
		return conn.HScan(ctx, k.entries, cursor, "", count)
	}, func(texts []string) error { return yield(valueRow(texts[0], texts[1])) })
	if err != nil {
		return mark{}, err
	}
	after, err := readHead(ctx, conn, k, before.id)
	if err != nil {
		return mark{}, err
	}
	if !s.log {
		return mark{}, whole(k.entries, rows, before.size, after.size)
	}
	// Of a hash that goes while it is read the rest is empty, and the cursor is 0. What was there all the time has
	// been read, so fewer rows than that are half a read.
	if changes := after.rev - before.rev; !after.known || changes < 0 || rows+changes < before.size {
		return mark{}, truncated(k.entries)
	}
	return mark{id: before.id, rev: before.rev, seen: after.id, size: before.size}, nil
}

// whole refuses half a read of a key without a log.
func whole(key string, rows, before, after int64) error {
	if rows < min(before, after) || before > 0 && after == 0 {
		return truncated(key)
	}
	return nil
}

func truncated(key string) error {
	return &mirror.Error{Class: mirror.ClassTruncated, Err: fmt.Errorf("%q was deleted or replaced while it was read", key)}
}

// scan goes through a key to the cursor 0, and gives the texts of each element to use: one, or two of a pair.
func scan(ctx context.Context, texts int, next func(cursor uint64, count int64) *goredis.ScanCmd, use func(texts []string) error) (rows int64, err error) {
	cursor, count := uint64(0), int64(firstCount)
	for {
		page, more, err := next(cursor, count).Result()
		if err != nil {
			return rows, err
		}
		if len(page)%texts != 0 {
			return rows, errShape
		}
		octets := 0
		for i := 0; i < len(page); i += texts {
			for _, text := range page[i : i+texts] {
				octets += len(text)
			}
			if err := use(page[i : i+texts]); err != nil {
				return rows, err
			}
			rows++
		}
		if cursor = more; cursor == 0 {
			return rows, ctx.Err()
		}
		if octets > answerLimit {
			count = max(count/8, 1)
		} else if octets < answerLimit/4 {
			count = min(count*2, scanCount)
		}
	}
}

// valueRow makes a row of a field and its value, "ACTION TAB EXPIRES TAB ID TAB REASON", from whose end fields may be
// left out. An end that is no number makes a row that is refused.
func valueRow(entry, value string) mirror.Row {
	row := mirror.Row{Entry: entry}
	var expires string
	for _, field := range []*string{&row.Action, &expires, &row.ID} {
		*field, value, _ = strings.Cut(value, "\t")
	}
	row.Reason = value
	if expires != "" {
		var err error
		if row.Expires, err = strconv.ParseInt(expires, 10, 64); err != nil || row.Expires <= 0 {
			row.Expires = -1
		}
	}
	return row
}

// found is what another program has under a key.
type found struct {
	kind string // "set", "hash", "zset"; "none"
	size int64
}

// lookAt asks what is there under the key of another program.
func (s *Source) lookAt(ctx context.Context, c goredis.Cmdable) (f found, err error) {
	if f.kind, err = c.Type(ctx, s.key).Result(); err != nil {
		return f, err
	}
	switch f.kind {
	case "set":
		f.size, err = c.SCard(ctx, s.key).Result()
	case "hash":
		f.size, err = c.HLen(ctx, s.key).Result()
	case "zset":
		f.size, err = c.ZCard(ctx, s.key).Result()
	case "none":
	default:
		err = &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("%q is a %s; want a set, a hash or a sorted set", s.key, cut(f.kind))}
	}
	if f.size > s.large && s.every > 0 && s.every < seldom {
		err = &mirror.Error{Class: mirror.ClassRefused, Err: fmt.Errorf(
			"%q has %d entries, and to read them all each %v is too much for the server; want every = \"10m\" or more, or blockd's own keys, which tell their changes", s.key, f.size, s.every)}
	}
	return f, err
}

// readKey reads what another program has.
func (s *Source) readKey(ctx context.Context, client goredis.UniversalClient, yield func(mirror.Row) error) error {
	node, err := nodeOf(ctx, client, s.key)
	if err != nil {
		return err
	}
	conn := node.Conn()
	defer conn.Close()
	before, err := s.lookAt(ctx, conn)
	if err != nil {
		return err
	}
	var rows int64
	switch before.kind {
	case "set":
		rows, err = scan(ctx, 1, func(cursor uint64, count int64) *goredis.ScanCmd {
			return conn.SScan(ctx, s.key, cursor, "", count)
		}, func(texts []string) error { return yield(mirror.Row{Entry: texts[0]}) })
	case "zset": // what the scores mean, only its program knows
		rows, err = scan(ctx, 2, func(cursor uint64, count int64) *goredis.ScanCmd {
			return conn.ZScan(ctx, s.key, cursor, "", count)
		}, func(texts []string) error { return yield(mirror.Row{Entry: texts[0]}) })
	case "hash":
		rows, err = scan(ctx, 2, func(cursor uint64, count int64) *goredis.ScanCmd {
			return conn.HScan(ctx, s.key, cursor, "", count)
		}, func(texts []string) error { return yield(foreignRow(texts[0], texts[1])) })
	}
	if err != nil {
		return err
	}
	after, err := s.lookAt(ctx, conn)
	if err != nil {
		return err
	}
	if after.kind != before.kind {
		return truncated(s.key)
	}
	return whole(s.key, rows, before.size, after.size)
}

// foreignRow makes a row of a hash of another program: a value is the reason, unless it has the three tabs of blockd's
// own.
func foreignRow(entry, value string) mirror.Row {
	if strings.Count(value, "\t") >= 3 {
		return valueRow(entry, value)
	}
	return mirror.Row{Entry: entry, Reason: value}
}

// cut bounds a text of a server that is shown.
func cut(text string) string { return text[:min(len(text), 64)] }
