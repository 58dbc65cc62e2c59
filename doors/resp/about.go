package resp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"blockd/index/live"
)

// likeVersion is the version of Redis that clients are told: they choose their commands by it.
const likeVersion = "7.0.15"

// slots is how many slots a cluster of Redis has. One node has all of them.
const slots = 16384

// newID is the name of a node in a cluster: 40 hexadecimal digits.
func newID() string {
	var id [20]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// readSetOf is setOf, of a set that can be answered for.
func (c *conn) readSetOf(name []byte) *set {
	in := c.setOf(name)
	if in != nil && c.notRead()[in] {
		c.err(in.loading())
		return nil
	}
	return in
}

// size is how many entries a set has.
func (c *conn) size(in *set) int64 {
	n := int64(0)
	for _, l := range c.settings.Serving().Lists() {
		if (in.list == "" || l.Source.List == in.list) && l.Source.List != live.ListName {
			n += int64(l.Entries())
		}
	}
	if c.settings.Live != nil && (in.list == "" || in.list == live.ListName) {
		n += int64(c.settings.Live())
	}
	return n
}

// card answers SCARD, HLEN and BF.CARD.
func card(c *conn, args [][]byte) {
	if in := c.readSetOf(args[1]); in != nil {
		c.int(c.size(in))
	}
}

// bloomInfo answers BF.INFO. There is one filter, of all lists, whose false positives no client sees.
func bloomInfo(c *conn, args [][]byte) {
	in := c.readSetOf(args[1])
	if in == nil {
		return
	}
	ix := c.settings.Serving()
	keys, _ := ix.Counts()
	all := []struct {
		name, short string
		value       int64
	}{
		{"Capacity", "capacity", int64(keys)}, {"Size", "size", int64(ix.FilterSize())}, {"Number of filters", "filters", 1},
		{"Number of items inserted", "items", c.size(in)}, {"Expansion rate", "expansion", 1},
	}
	if len(args) == 2 {
		c.pairs(len(all))
		for i := range all {
			c.bulk(all[i].name)
			c.int(all[i].value)
		}
		return
	}
	for i := range all {
		if len(args) == 3 && is(args[2], all[i].short) {
			c.array(1)
			c.int(all[i].value)
			return
		}
	}
	c.err("ERR Invalid information value")
}

// object answers OBJECT ENCODING and its like of a list.
func object(c *conn, args [][]byte) {
	if len(args) != 3 {
		c.noSubcommand("OBJECT", args)
		return
	}
	if c.setOf(args[2]) == nil {
		return
	}
	switch strings.ToLower(string(args[1])) {
	case "encoding":
		c.bulk("hashtable")
	case "refcount":
		c.int(1)
	case "idletime":
		c.int(0)
	default:
		c.noSubcommand("OBJECT", args)
	}
}

func dbsize(c *conn, _ [][]byte) { c.int(int64(len(c.settings.Lists) + 1)) }

func role(c *conn, _ [][]byte) {
	c.array(3)
	c.bulk("master")
	c.int(0)
	c.array(0)
}

// configCommand answers CONFIG GET with nothing: clients ask for settings of Redis.
func configCommand(c *conn, args [][]byte) {
	if is(args[1], "get") && len(args) > 2 {
		c.pairs(0)
		return
	}
	c.err("ERR CONFIG is not answered: blockd has its settings in config.toml")
}

// info answers INFO, of which clients read loading, redis_version and cluster_enabled.
func info(c *conn, _ [][]byte) {
	ix := c.settings.Serving()
	keys, _ := ix.Counts()
	_, port := c.address()
	var text strings.Builder
	section := func(name string, lines ...any) {
		fmt.Fprintf(&text, "# %s\r\n", name)
		for i := 0; i < len(lines); i += 2 {
			fmt.Fprintf(&text, "%s:%v\r\n", lines[i], lines[i+1])
		}
		text.WriteString("\r\n")
	}
	uptime := int64(time.Since(c.Server.began) / time.Second)
	section("Server", "redis_version", likeVersion, "redis_mode", "standalone", "server_name", "blockd", "run_id", c.Server.id, "tcp_port", port,
		"uptime_in_seconds", uptime, "uptime_in_days", uptime/86400)
	section("Clients", "maxclients", c.settings.MaxConnections)
	section("Persistence", "loading", 0)
	section("Replication", "role", "master", "connected_slaves", 0)
	section("Cluster", "cluster_enabled", 1)
	section("Blockd", "generation", ix.Generation(), "built", ix.Built().UTC().Format(time.RFC3339), "index_keys", keys)
	section("Keyspace", "db0", fmt.Sprintf("keys=%d,expires=0,avg_ttl=0", len(c.settings.Lists)+1))
	c.text(text.String())
}

// address is where the client has found this server; "" and 0 on a Unix socket.
func (c *conn) address() (host string, port int) {
	if a, ok := c.local.(*net.TCPAddr); ok {
		return a.IP.String(), a.Port
	}
	return "", 0
}

// commandCommand answers COMMAND, by which clients of a cluster find the keys in commands.
func commandCommand(c *conn, args [][]byte) {
	sub := ""
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	switch all := c.commands; {
	case sub == "":
		c.array(len(all))
		for _, cmd := range all {
			c.describe(cmd)
		}
	case sub == "count" && len(args) == 2:
		c.int(int64(len(all)))
	case sub == "docs":
		c.pairs(0)
	case sub == "list" && len(args) == 2:
		c.array(len(all))
		for name := range all {
			c.bulk(name)
		}
	case sub == "info":
		c.array(len(args) - 2)
		for _, name := range args[2:] {
			if cmd := c.find(name); cmd != nil {
				c.describe(cmd)
			} else {
				c.null()
			}
		}
	default:
		c.noSubcommand("COMMAND", args)
	}
}

// describe writes what COMMAND tells of a command.
func (c *conn) describe(cmd *command) {
	c.array(10)
	c.bulk(cmd.name)
	c.int(int64(cmd.arity))
	c.set(2)
	c.word("readonly")
	c.word("fast")
	c.int(int64(cmd.keys.first))
	c.int(int64(cmd.keys.last))
	c.int(int64(cmd.keys.step))
	c.set(0) // categories of access lists
	c.array(0)
	c.array(0)
	c.array(0)
}

// cluster answers CLUSTER: one node has all slots.
func cluster(c *conn, args [][]byte) {
	host, port := c.address()
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "slots" && len(args) == 2:
		c.array(1)
		c.array(3)
		c.int(0)
		c.int(slots - 1)
		c.array(4)
		c.bulk(host)
		c.int(int64(port))
		c.bulk(c.Server.id)
		c.array(0)
	case sub == "shards" && len(args) == 2:
		c.shards(host, port)
	case sub == "nodes" && len(args) == 2:
		c.bulk(fmt.Sprintf("%s %s@0 myself,master - 0 0 1 connected 0-%d\n", c.Server.id, net.JoinHostPort(host, strconv.Itoa(port)), slots-1))
	case sub == "info" && len(args) == 2:
		c.text(fmt.Sprintf("cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:%[1]d\r\ncluster_slots_ok:%[1]d\r\n"+
			"cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n", slots))
	case sub == "myid" && len(args) == 2:
		c.bulk(c.Server.id)
	case sub == "keyslot" && len(args) == 3:
		c.int(int64(slotOf(args[2])))
	default:
		c.noSubcommand("CLUSTER", args)
	}
}

// shards answers CLUSTER SHARDS.
func (c *conn) shards(host string, port int) {
	c.array(1)
	c.pairs(2)
	c.bulk("slots")
	c.array(2)
	c.int(0)
	c.int(slots - 1)
	c.bulk("nodes")
	c.array(1)
	c.pairs(7)
	for _, p := range [][2]string{{"id", c.Server.id}, {"ip", host}, {"endpoint", host}, {"role", "master"}, {"health", "online"}} {
		c.bulk(p[0])
		c.bulk(p[1])
	}
	c.bulk("port")
	c.int(int64(port))
	c.bulk("replication-offset")
	c.int(0)
}

// slotOf is the slot of a key in a cluster of Redis: CRC-16/XMODEM of it, or of what is
// between its first "{" and the next "}".
func slotOf(key []byte) uint16 {
	if _, after, ok := strings.Cut(string(key), "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = []byte(tag)
		}
	}
	crc := uint16(0)
	for _, b := range key {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc % slots
}
