package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/sources/mirror"
)

// changes.lua reads changes and the entries that they are about, as of one moment.
//
//go:embed changes.lua
var changesScript string

const (
	changesCount = 1000        // of one answer
	blockLimit   = time.Second // of one XREAD
	pollEach     = 500 * time.Millisecond
)

// mark is where the changes of a shard go on.
type mark struct {
	id   string // of the change that was read last
	rev  int64  // how many changes there were up to it
	seen string // a later one whose effect may have been read: it must come, or a failover has lost it
	size int64  // how many entries there were
}

// marks are those of all shards.
type marks []mark

// mark writes the marks down.
func (all marks) mark() mirror.Mark {
	var text []string
	for _, m := range all {
		text = append(text, fmt.Sprintf("%s %d %s %d", m.id, m.rev, m.seen, m.size))
	}
	return mirror.Mark(strings.Join(text, ","))
}

var idForm = regexp.MustCompile(`^[0-9]+-[0-9]+$`)

var markForm = regexp.MustCompile(`^([0-9]+-[0-9]+) ([0-9]+) ([0-9]+-[0-9]+) ([0-9]+)$`)

// readMarks reads them; false if they are none for so many shards.
func readMarks(text mirror.Mark, shards int) (all marks, ok bool) {
	for part := range strings.SplitSeq(string(text), ",") {
		is := markForm.FindStringSubmatch(part)
		if is == nil {
			return nil, false
		}
		rev, err := strconv.ParseInt(is[2], 10, 64)
		size, err2 := strconv.ParseInt(is[4], 10, 64)
		if err != nil || err2 != nil {
			return nil, false
		}
		all = append(all, mark{is[1], rev, is[3], size})
	}
	return all, len(all) == shards
}

// Changes yields the entries that the log tells of, with what the hash has of them now: those of a page as of one moment,
// which is after that of the call. An entry that changes between two pages comes again with the second one.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	if !s.log {
		return "", mirror.ErrTooOld
	}
	all, ok := readMarks(since, len(s.shards))
	if !ok {
		return "", mirror.TooOld("the mark is of another source")
	}
	client, err := s.client.Connect(ctx)
	if err != nil {
		return "", s.fault(err)
	}
	for i := range all {
		if err := s.follow(ctx, client, s.shards[i], &all[i], yield); err != nil {
			return "", s.fault(err)
		}
	}
	s.read = all
	return all.mark(), nil
}

// follow reads the changes of a shard up to the end of its log.
//
// That the log still has the change that was read last shows that it was neither cut before that, nor lost its end to
// a failover and went on. That rev has counted as many changes as were read shows that none was removed between. A
// mark from before the log shows none of that: then the log must tell of each entry that there is. Whoever writes into
// the hash past the script is found by the number of its entries, unless he replaces as many as he adds.
func (s *Source) follow(ctx context.Context, client goredis.UniversalClient, k keys, m *mark, yield func(mirror.Change) error) error {
	began := *m
	for rev := m.rev; ; {
		p, err := s.page(ctx, client, k, m)
		switch {
		case err != nil:
			return err
		case p.gone:
			return mirror.TooOld("%s has not got the change %s any more: it was cut, or lost in a failover", k.log, m.id)
		}
		if p.met {
			m.seen = noID
		}
		m.id, rev = p.id, rev+p.read
		there := int64(0) // of the entries that were told of
		for i, entry := range p.entries {
			if err := yield(mirror.Change{Entry: entry, Rows: p.rows[i]}); err != nil {
				return err
			}
			there += int64(len(p.rows[i]))
		}
		if p.more && began.id != noID {
			continue
		}
		switch told := rev - began.rev; {
		case began.id == noID && (p.more || p.read > 0 && p.size != there):
			return mirror.TooOld("%s has begun, with other entries than it tells of", k.log)
		case began.id == noID && p.read == 0 && p.size > 0:
			return &mirror.Unlogged{Why: fmt.Sprintf("%s has entries, and %s is not there to tell of others", k.entries, k.log),
				Hint: `let the script that blockd source lua prints write them, or take changes = "none"`}
		case p.rev != rev:
			return mirror.TooOld("%s is %d and not %d: changes were lost, or not counted", k.rev, p.rev, rev)
		case max(p.size-began.size, began.size-p.size) > told:
			return mirror.TooOld("%s has %d entries where it had %d, and %d changes were told: it was written past the script", k.entries, p.size, began.size, told)
		case m.seen != noID:
			return mirror.TooOld("%s has not got the change %s any more: it was lost in a failover", k.log, m.seen)
		}
		m.rev, m.seen, m.size = rev, m.id, p.size
		return ctx.Err()
	}
}

// page is what one call of the script gives.
type page struct {
	gone    bool // the log has not got the change that was read last
	read    int64
	id      string // of the last change that was read
	more    bool
	met     bool
	rev     int64
	size    int64 // entries of the hash
	entries []string
	rows    [][]mirror.Row
}

// page calls the script.
func (s *Source) page(ctx context.Context, client goredis.UniversalClient, k keys, m *mark) (*page, error) {
	names := []string{k.entries, k.log, k.rev}
	args := []any{m.id, changesCount, m.seen, answerLimit}
	var reply []any
	err := error(nil)
	if !s.old {
		reply, err = client.EvalRO(ctx, changesScript, names, args...).Slice()
		s.old = err != nil && strings.HasPrefix(err.Error(), "ERR unknown command")
	}
	if s.old {
		reply, err = client.Eval(ctx, changesScript, names, args...).Slice()
	}
	if err != nil {
		return nil, err
	}
	return readPage(reply)
}

// readPage reads what the script has answered.
func readPage(reply []any) (*page, error) {
	if len(reply) == 1 && reply[0] == "gone" {
		return &page{gone: true}, nil
	}
	if len(reply) != 7 {
		return nil, errShape
	}
	p := &page{}
	read, ok := reply[0].(int64)
	id, ok2 := reply[1].(string)
	more, ok3 := reply[2].(int64)
	met, ok4 := reply[3].(int64)
	rev, ok5 := reply[4].(string)
	size, ok6 := reply[5].(int64)
	found, ok7 := reply[6].([]any)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || read < 0 || len(found)%2 != 0 || !idForm.MatchString(id) {
		return nil, errShape
	}
	p.read, p.id, p.more, p.met, p.size = read, id, more == 1, met == 1, size
	var err error
	if p.rev, err = strconv.ParseInt(rev, 10, 64); err != nil || p.more && read == 0 {
		return nil, errShape
	}
	for i := 0; i < len(found); i += 2 {
		entry, ok := found[i].(string)
		if !ok {
			return nil, errShape
		}
		var rows []mirror.Row
		switch value := found[i+1].(type) {
		case nil: // it is gone
		case string:
			rows = []mirror.Row{valueRow(entry, value)}
		default:
			return nil, errShape
		}
		p.entries, p.rows = append(p.entries, entry), append(p.rows, rows)
	}
	return p, nil
}

// Wait returns with the next change: of one shard the server tells, several are asked.
func (s *Source) Wait(ctx context.Context) error {
	if !s.log {
		<-ctx.Done()
		return ctx.Err()
	}
	client, err := s.client.Connect(ctx)
	if err != nil {
		return s.fault(err)
	}
	if len(s.shards) > 1 { // on several servers, each of which would keep a connection busy
		return s.fault(s.poll(ctx, client))
	}
	last := "$"
	if s.read != nil {
		last = s.read[0].id
	}
	heard := make(chan error, 1)
	go func() { heard <- waitFor(ctx, client, s.shards[0].log, last) }()
	select {
	case err := <-heard:
		return s.fault(err)
	case <-ctx.Done(): // the library does not see it; what waits ends after blockLimit
		return ctx.Err()
	}
}

// waitFor returns with a change after the one with the id last.
func waitFor(ctx context.Context, client goredis.UniversalClient, log, last string) error {
	for ctx.Err() == nil {
		block := blockLimit
		if end, ok := ctx.Deadline(); ok {
			block = max(min(block, time.Until(end)), time.Millisecond)
		}
		// A read that its context ends costs the connection, and this one ends by itself.
		err := client.XRead(context.WithoutCancel(ctx), &goredis.XReadArgs{Streams: []string{log, last}, Count: 1, Block: block}).Err()
		if !errors.Is(err, goredis.Nil) {
			return err
		}
	}
	return ctx.Err()
}

// poll returns when a shard has counted other changes than were read.
func (s *Source) poll(ctx context.Context, client goredis.UniversalClient) error {
	read := s.read
	for tick := time.NewTicker(pollEach); ; {
		now := make(marks, len(s.shards))
		cmds, err := client.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, k := range s.shards {
				p.Get(ctx, k.rev)
			}
			return nil
		})
		if err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		for i, cmd := range cmds {
			now[i].rev, _ = cmd.(*goredis.StringCmd).Int64()
			if read != nil && read[i].rev != now[i].rev {
				return nil
			}
		}
		if read == nil {
			read = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
