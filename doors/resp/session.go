package resp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/redcon"
)

// client is what a session knows of its client.
type client struct {
	id      int64
	name    string
	user    string // that has logged in; "" = none has
	trusted bool   // it may ask
	wrong   int    // passwords
	multi   *queue // commands after MULTI; nil = there was none
}

// maxWrong is how many wrong passwords end a connection.
const maxWrong = 10

// maxClientName bounds what CLIENT SETNAME takes, in octets.
const maxClientName = 128

func ping(c *conn, args [][]byte) {
	switch len(args) {
	case 1:
		c.word("PONG")
	case 2:
		c.echo(args[1])
	default:
		c.err(wrongNumber("ping"))
	}
}

func selectDB(c *conn, args [][]byte) {
	if string(args[1]) != "0" {
		c.err("ERR DB index is out of range")
		return
	}
	c.ok()
}

func quit(c *conn, _ [][]byte) {
	c.ok()
	c.quit = true
}

func reset(c *conn, _ [][]byte) {
	c.dequeue()
	c.client, c.resp3 = client{id: c.client.id, trusted: c.trusts(), wrong: c.wrong}, false
	c.word("RESET")
}

// hello answers HELLO [2|3 [AUTH user password] [SETNAME name]].
func hello(c *conn, args [][]byte) {
	resp3 := c.resp3
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			resp3 = false
		case "3":
			resp3 = true
		default:
			c.err("NOPROTO unsupported protocol version")
			return
		}
	}
	name := c.name
	for rest := args[min(len(args), 2):]; len(rest) > 0; {
		switch {
		case is(rest[0], "auth") && len(rest) > 2:
			if !c.logIn(rest[1], rest[2]) {
				return
			}
			rest = rest[3:]
		case is(rest[0], "setname") && len(rest) > 1:
			if name = string(rest[1]); !validName(name) {
				c.err(badName)
				return
			}
			rest = rest[2:]
		default:
			c.err("ERR Syntax error in HELLO option '" + plain(rest[0]) + "'")
			return
		}
	}
	if !c.trusted {
		c.err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.resp3, c.name = resp3, name
	c.pairs(7)
	c.bulk("server")
	c.bulk("redis")
	c.bulk("version")
	c.bulk(likeVersion)
	c.bulk("proto")
	c.int(map[bool]int64{false: 2, true: 3}[resp3])
	c.bulk("id")
	c.int(c.client.id)
	c.bulk("mode")
	c.bulk("standalone")
	c.bulk("role")
	c.bulk("master")
	c.bulk("modules")
	c.array(0)
}

// auth answers AUTH [user] password.
func auth(c *conn, args [][]byte) {
	user := []byte(defaultUser)
	switch len(args) {
	case 2:
		if c.users.none() {
			c.err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
			return
		}
	case 3:
		user = args[1]
	default:
		c.err("ERR syntax error")
		return
	}
	if c.logIn(user, args[len(args)-1]) {
		c.ok()
	}
}

// logIn checks a password. A wrong one is answered.
func (c *conn) logIn(user, password []byte) bool {
	if !c.users.knows(user, password) {
		c.wrong++
		c.err("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.user, c.trusted = string(user), true
	return true
}

// badName is what Redis says of a name with a blank or a control character.
const badName = "ERR Client names cannot contain spaces, newlines or special characters."

func validName(name string) bool {
	return len(name) <= maxClientName && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// clientCommand answers CLIENT.
func clientCommand(c *conn, args [][]byte) {
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "id" && len(args) == 2:
		c.int(c.client.id)
	case sub == "getname" && len(args) == 2:
		if c.name == "" {
			c.null()
		} else {
			c.bulk(c.name)
		}
	case sub == "setname" && len(args) == 3:
		if name := string(args[2]); validName(name) {
			c.name = name
			c.ok()
		} else {
			c.err(badName)
		}
	case sub == "info" && len(args) == 2:
		user := c.user
		if user == "" {
			user = defaultUser
		}
		c.text(fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 user=%s resp=%d\n", c.client.id, c.remote, c.local, c.name, user,
			map[bool]int{false: 2, true: 3}[c.resp3]))
	case sub == "setinfo" && len(args) == 4, (sub == "no-evict" || sub == "no-touch") && len(args) == 3,
		sub == "reply" && len(args) == 3 && is(args[2], "on"), sub == "tracking" && len(args) == 3 && is(args[2], "off"):
		c.ok()
	default:
		c.noSubcommand("CLIENT", args)
	}
}

func (c *conn) noSubcommand(name string, args [][]byte) {
	c.err("ERR unknown subcommand or wrong number of arguments for '" + plain(args[1]) + "': " + name + " knows few of them here; see docs/resp.md")
}

// The bounds of the commands between MULTI and EXEC.
const (
	maxQueued       = 10_000
	maxQueuedOctets = maxCommand
)

// queue has the commands after MULTI. Nothing is written here, so a
// transaction is only a way in which clients send many commands.
type queue struct {
	octets  []byte // they count in Server.held
	n       int
	done    int  // octets of them that EXEC has answered
	spoiled bool // a command was refused
}

// dequeue ends a transaction, and returns it; nil = there was none.
func (c *conn) dequeue() *queue {
	q := c.multi
	if q != nil {
		c.held.Add(-int64(cap(q.octets)))
	}
	c.multi = nil
	return q
}

// multi begins a transaction.
func multi(c *conn, _ [][]byte) {
	if c.multi != nil {
		c.err("ERR MULTI calls can not be nested")
		return
	}
	c.multi = &queue{}
	c.ok()
}

// queue keeps a command for EXEC.
func (c *conn) queue(args [][]byte) {
	q := c.multi
	size := 0
	for _, a := range args {
		size += len(a) + maxDigits
	}
	if q.n >= maxQueued || len(q.octets)+size > maxQueuedOctets {
		c.spoil()
		c.err("ERR too many commands in one MULTI: at most 10000, and 1048576 octets")
		return
	}
	if c.held.Load()+int64(size) > heldSize {
		c.spoil()
		c.err(farewells[errMemory])
		return
	}
	before := cap(q.octets)
	q.octets = redcon.AppendArray(q.octets, len(args))
	for _, a := range args {
		q.octets = redcon.AppendBulk(q.octets, a)
	}
	c.held.Add(int64(cap(q.octets) - before))
	q.n++
	c.word("QUEUED")
}

// spoil has EXEC fail, because a command before it did.
func (c *conn) spoil() {
	if c.multi != nil {
		c.held.Add(-int64(cap(c.multi.octets)))
		c.multi.spoiled, c.multi.octets = true, nil
	}
}

// exec answers the commands after MULTI.
func exec(c *conn, _ [][]byte) {
	switch q := c.dequeue(); {
	case q == nil:
		c.err("ERR EXEC without MULTI")
	case q.spoiled:
		c.err("EXECABORT Transaction discarded because of previous errors.")
	default:
		if c.array(q.n); q.n > 0 {
			c.script = q
			c.held.Add(int64(cap(q.octets)))
		}
	}
}

// execute answers the next command of EXEC. The others wait until the peer has taken the answers: those to 10,000
// times COMMAND are 200 MB.
func (c *conn) execute() {
	q := c.script
	_, args, _, rest, _ := redcon.ReadNextCommand(q.octets[q.done:], c.args)
	q.done = len(q.octets) - len(rest)
	cmd := c.find(args[0])
	if !cmd.asks {
		c.answerLookups()
	}
	cmd.run(c, args)
	if c.batch != nil && len(c.batch.asked) >= batchSize {
		c.answerLookups()
	}
	if len(rest) == 0 {
		c.answerLookups()
		c.unscript()
	}
}

// unscript ends EXEC.
func (c *conn) unscript() {
	if c.script != nil {
		c.held.Add(-int64(cap(c.script.octets)))
		c.script = nil
	}
}

func discard(c *conn, _ [][]byte) {
	if c.multi == nil {
		c.err("ERR DISCARD without MULTI")
		return
	}
	c.dequeue()
	c.ok()
}

// clock answers TIME.
func clock(c *conn, _ [][]byte) {
	now := time.Now()
	c.array(2)
	c.bulk(strconv.FormatInt(now.Unix(), 10))
	c.bulk(strconv.Itoa(now.Nanosecond() / 1000))
}
