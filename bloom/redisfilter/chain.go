package redisfilter

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"

	"github.com/redis/go-redis/v9"

	"blockd/bloom/filter"
)

// chain is a filter of RedisBloom, which a module keeps.
type chain struct {
	*push
	key    string
	filter filter.Filter
}

func newChain(p *push, key string, f filter.Filter) layout { return &chain{p, key, f} }

func (c *chain) write(ctx context.Context) error {
	tmp := tmpKey(c.key, c.token)
	chunks, _ := filter.Chunks(c.filter, chunkSize)
	for iterator, data := range chunks {
		if err := c.sending(ctx, c.key, len(data), func(pipe redis.Pipeliner) {
			if iterator == 1 { // a header is taken where nothing is
				pipe.Unlink(ctx, tmp)
				c.config(ctx, pipe, c.key, c.filter)
			}
			pipe.Do(ctx, "BF.LOADCHUNK", tmp, iterator, data)
		}); err != nil {
			return err
		}
	}
	return nil
}

// verify reads the filter back, for the module counts no bits.
func (c *chain) verify(ctx context.Context, tx *redis.Tx) error {
	chunks, _ := filter.Chunks(c.filter, math.MaxInt) // the header, and each link
	next, stop := iter.Pull2(chunks)
	defer stop()
	var want []byte
	for answer, err := range dump(ctx, tx, tmpKey(c.key, c.token)) {
		if err != nil {
			return err
		}
		if len(want) == 0 {
			_, want, _ = next()
		}
		if !bytes.HasPrefix(want, answer.data) {
			return errDamaged
		}
		want = want[len(answer.data):]
	}
	if _, _, more := next(); more || len(want) > 0 {
		return errDamaged
	}
	return nil
}

// dumpAnswer is one of BF.SCANDUMP.
type dumpAnswer struct {
	iterator int64
	data     []byte
}

// dump gives the answers of BF.SCANDUMP but for the last, which is empty.
func dump(ctx context.Context, c interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}, key string) iter.Seq2[dumpAnswer, error] {
	return func(yield func(dumpAnswer, error) bool) {
		for iterator := int64(0); ; {
			reply, err := c.Do(ctx, "BF.SCANDUMP", key, iterator).Slice()
			if err != nil {
				yield(dumpAnswer{}, err)
				return
			}
			a, err := readDumpAnswer(reply, iterator)
			if iterator = a.iterator; err == nil && iterator == 0 || !yield(a, err) || err != nil {
				return
			}
		}
	}
}

func readDumpAnswer(reply []any, before int64) (a dumpAnswer, err error) {
	if len(reply) == 2 {
		next, isNumber := reply[0].(int64)
		data, isText := reply[1].(string)
		if isNumber && isText && (next == 0 || next > before && data != "") {
			return dumpAnswer{next, []byte(data)}, nil
		}
	}
	return a, errors.New("BF.SCANDUMP: an answer that is none")
}
