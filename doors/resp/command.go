package resp

import (
	"bytes"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// command is one that clients may give.
type command struct {
	name  string
	arity int  // words, the name included; -n: n or more
	keys  keys // where the names of lists are, for clients that look
	asks  bool // run adds look-ups to the batch, and answers those before it if it answers at once
	free  bool // needs no log-in
	now   bool // is never queued by MULTI
	run   func(c *conn, args [][]byte)

	counter prometheus.Counter
}

// keys are the places of the keys among the words of a command: first, last (-1: the last
// word) and how many words from one to the next; the zero keys are none.
type keys struct{ first, last, step int }

// oneKey is the key of most commands.
var oneKey = keys{1, 1, 1}

// commands are all that are answered. They are looked for by these names in lower case.
func commands() []command {
	all := []command{
		// Look-ups.
		{name: "sismember", arity: 3, keys: oneKey, asks: true, run: members(formInt)},
		{name: "smismember", arity: -3, keys: oneKey, asks: true, run: members(formInts)},
		{name: "hexists", arity: 3, keys: oneKey, asks: true, run: members(formInt)},
		{name: "hget", arity: 3, keys: oneKey, asks: true, run: fields(formText)},
		{name: "hmget", arity: -3, keys: oneKey, asks: true, run: fields(formTexts)},
		{name: "bf.exists", arity: 3, keys: oneKey, asks: true, run: members(formBool)},
		{name: "bf.mexists", arity: -3, keys: oneKey, asks: true, run: members(formBools)},
		{name: "get", arity: 2, keys: oneKey, asks: true, run: texts(formText)},
		{name: "mget", arity: -2, keys: keys{1, -1, 1}, asks: true, run: texts(formTexts)},
		{name: "exists", arity: -2, keys: keys{1, -1, 1}, asks: true, run: exists},
		{name: "type", arity: 2, keys: oneKey, asks: true, run: aboutKey(formType, func(c *conn) { c.word("set") })},
		{name: "ttl", arity: 2, keys: oneKey, asks: true, run: aboutKey(formTTL, func(c *conn) { c.int(-1) })},
		{name: "pttl", arity: 2, keys: oneKey, asks: true, run: aboutKey(formTTL, func(c *conn) { c.int(-1) })},
		// Numbers of lists.
		{name: "scard", arity: 2, keys: oneKey, run: card},
		{name: "hlen", arity: 2, keys: oneKey, run: card},
		{name: "bf.card", arity: 2, keys: oneKey, run: card},
		{name: "bf.info", arity: -2, keys: oneKey, run: bloomInfo},
		{name: "object", arity: -2, keys: keys{2, 2, 1}, run: object},
		{name: "dbsize", arity: 1, run: dbsize},
		// Sessions.
		{name: "ping", arity: -1, run: ping},
		{name: "echo", arity: 2, run: func(c *conn, args [][]byte) { c.echo(args[1]) }},
		{name: "select", arity: 2, run: selectDB},
		{name: "hello", arity: -1, free: true, now: true, run: hello},
		{name: "auth", arity: -2, free: true, now: true, run: auth},
		{name: "quit", arity: -1, free: true, now: true, run: quit},
		{name: "reset", arity: 1, free: true, now: true, run: reset},
		{name: "client", arity: -2, run: clientCommand},
		{name: "multi", arity: 1, now: true, run: multi},
		{name: "exec", arity: 1, now: true, run: exec},
		{name: "discard", arity: 1, now: true, run: discard},
		{name: "watch", arity: -2, keys: keys{1, -1, 1}, now: true, run: func(c *conn, _ [][]byte) { c.ok() }},
		{name: "unwatch", arity: 1, run: func(c *conn, _ [][]byte) { c.ok() }},
		// What clients want to know of a server.
		{name: "info", arity: -1, run: info},
		{name: "command", arity: -1, run: commandCommand},
		{name: "cluster", arity: -2, run: cluster},
		{name: "readonly", arity: 1, run: func(c *conn, _ [][]byte) { c.ok() }},
		{name: "readwrite", arity: 1, run: func(c *conn, _ [][]byte) { c.ok() }},
		{name: "asking", arity: 1, run: func(c *conn, _ [][]byte) { c.ok() }},
		{name: "role", arity: 1, run: role},
		{name: "time", arity: 1, run: clock},
		{name: "config", arity: -2, run: configCommand},
	}
	for name := range strings.FieldsSeq(writing) {
		all = append(all, command{name: name, arity: -1, keys: oneKey, run: refuse(readOnly)})
	}
	for name := range strings.FieldsSeq(reading) {
		all = append(all, command{name: name, arity: -1, run: refuse("ERR " + strings.ToUpper(name) +
			" is not answered: lists are not read out here; see blockd export and blockd filter export")})
	}
	return all
}

// readOnly is what a replica of Redis says.
const readOnly = "READONLY You can't write against a read only replica."

// writing are the commands that write, of Redis 7 and RedisBloom.
const writing = `append bitfield bitop blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin copy decr decrby del expire
expireat flushall flushdb function geoadd georadius georadiusbymember geosearchstore getdel getex getset hdel hincrby hincrbyfloat
hmset hset hsetnx incr incrby incrbyfloat linsert lmove lmpop lpop lpush lpushx lrem lset ltrim migrate move mset msetnx persist
pexpire pexpireat pfadd pfmerge psetex publish rename renamenx restore rpop rpoplpush rpush rpushx sadd sdiffstore set setbit setex
setnx setrange sinterstore smove sort spop spublish srem sunionstore swapdb unlink xack xadd xautoclaim xclaim xdel xgroup
xreadgroup xsetid xtrim zadd zdiffstore zincrby zinterstore zmpop zpopmax zpopmin zrangestore zrem zremrangebylex
zremrangebyrank zremrangebyscore zunionstore bf.add bf.madd bf.insert bf.reserve bf.loadchunk`

// reading are the commands that would read a list out.
const reading = `scan sscan hscan keys smembers srandmember hgetall hkeys hvals hrandfield randomkey sdiff sinter sintercard sunion dump
bf.scandump`

func refuse(words string) func(*conn, [][]byte) { return func(c *conn, _ [][]byte) { c.err(words) } }

// maxName is longer than every name of a command.
const maxName = 32

// find returns the command of a name in any case; nil: there is none.
func (s *Server) find(name []byte) *command {
	var lower [maxName]byte
	if len(name) > len(lower) {
		return nil
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return s.commands[string(lower[:len(name)])]
}

// command answers a command, or has it wait for others that ask about senders too. Answers keep
// the order of commands.
func (c *conn) command(args [][]byte) error {
	cmd := c.find(args[0])
	if cmd == nil || !cmd.asks || c.multi != nil {
		c.answerLookups()
	}
	switch {
	case cmd == nil:
		c.metrics.other.Inc()
		c.spoil()
		c.err(unknown(args))
		return nil
	case !c.trusted && !cmd.free:
		c.err("NOAUTH Authentication required.")
		return nil
	case cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		c.answerLookups()
		c.spoil()
		c.err(wrongNumber(cmd.name))
		return nil
	}
	cmd.counter.Inc()
	if c.multi != nil && !cmd.now {
		c.queue(args)
		return nil
	}
	cmd.run(c, args)
	if c.wrong >= maxWrong {
		return errPasswords
	}
	if c.batch != nil && len(c.batch.asked) >= batchSize {
		c.answerLookups()
	}
	return nil
}

func wrongNumber(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// unknown is what Redis says of a command that it does not know.
func unknown(args [][]byte) string {
	var text strings.Builder
	text.WriteString("ERR unknown command '" + plain(args[0]) + "', with args beginning with: ")
	for _, a := range args[1:min(len(args), 5)] {
		text.WriteString("'" + plain(a) + "' ")
	}
	return text.String()
}

// plain is a text of a client as an error may hold it, in the way of Redis.
func plain(b []byte) string {
	text := shown(string(b))
	return strings.ReplaceAll(text[1:len(text)-1], "'", `\'`)
}

// setOf returns the set of a name. If there is none, it answers that.
func (c *conn) setOf(name []byte) *set {
	in := c.sets[string(name)]
	if in == nil {
		c.answerLookups()
		c.err("ERR there is no list " + shown(string(name)) + "; want " + Verdict + " (all lists), the name of a list, or " + Raw + ": and the name of a list")
	}
	return in
}

// members answers the commands LIST TEXT….
func members(f form) func(*conn, [][]byte) {
	return func(c *conn, args [][]byte) {
		if in := c.setOf(args[1]); in != nil {
			c.add(f, in, args[2:])
		}
	}
}

// fields answers HGET and HMGET, which rspamd sends for a map. It takes the beginning of a value for a
// symbol, a weight or both, as in "SYMBOL:5". So the text of a list would choose them, and the
// entry 192.0.2.0/24 would weigh 192. The values of all lists together begin with the weight 1.
func fields(f form) func(*conn, [][]byte) {
	return func(c *conn, args [][]byte) {
		in := c.setOf(args[1])
		if in == nil {
			return
		}
		c.add(f, in, args[2:])
		c.batch.lookups[len(c.batch.lookups)-1].weighs = in.list == ""
	}
}

// noList answers a key that begins with no list.
func (c *conn) noList(key []byte) {
	c.answerLookups()
	c.err("ERR no list in the key " + shown(string(key)) + "; want LIST:SENDER with " + Verdict + " or the name of a list")
}

// texts answers the commands LIST:TEXT….
func texts(f form) func(*conn, [][]byte) {
	return func(c *conn, args [][]byte) {
		for _, key := range args[1:] {
			if in, _ := c.split(key); in == nil {
				c.noList(key)
				return
			}
		}
		b := c.begin(f)
		for _, key := range args[1:] {
			b.add(c.split(key))
		}
		b.end()
	}
}

// exists counts the lists and listed texts among keys. A text of a list that is not there is an error: with a
// slip in the list's name all senders would be clear.
func exists(c *conn, args [][]byte) {
	for _, key := range args[1:] {
		if in, _ := c.split(key); in == nil && c.sets[string(key)] == nil && bytes.IndexByte(key, ':') >= 0 {
			c.noList(key)
			return
		}
	}
	b := c.begin(formCount)
	lists := int64(0)
	for _, key := range args[1:] {
		if c.sets[string(key)] != nil {
			lists++
		} else if in, text := c.split(key); in != nil {
			b.add(in, text)
		}
	}
	b.lookups[len(b.lookups)-1].immediate = lists
	b.end()
}

// aboutKey answers a command about a key, which of a list has always the same answer.
func aboutKey(f form, list func(*conn)) func(*conn, [][]byte) {
	return func(c *conn, args [][]byte) {
		key := args[1]
		in, text := c.split(key)
		if c.sets[string(key)] != nil {
			c.answerLookups()
			list(c)
			return
		}
		b := c.begin(f)
		if in != nil {
			b.add(in, text)
		}
		b.end()
	}
}

// is reports whether a word of a client is this one, in any case.
func is(word []byte, want string) bool { return bytes.EqualFold(word, []byte(want)) }
