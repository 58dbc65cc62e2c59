package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// firstPort and the five after it are those of the nodes, with the ports of their bus 10,000 above.
const firstPort = 27500

// cluster is a Redis Cluster of three masters with a replica each.
type cluster struct {
	dir   string
	nodes []*exec.Cmd
}

func address(node int) string { return "127.0.0.1:" + strconv.Itoa(firstPort+node) }

// startCluster starts a Cluster. It returns what has to be ended even with an error.
func startCluster(ctx context.Context) (c *cluster, err error) {
	c = &cluster{}
	if c.dir, err = os.MkdirTemp("", "redisclients-"); err != nil {
		return c, err
	}
	create := []string{"--cluster", "create"}
	for i := range 6 {
		dir := filepath.Join(c.dir, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return c, err
		}
		node := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(firstPort+i), "--dir", dir,
			"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--save", "", "--appendonly", "no")
		if err := node.Start(); err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, node)
		create = append(create, address(i))
	}
	if err := c.until(ctx, func(answer string) bool { return strings.Contains(answer, "PONG") }, "PING"); err != nil {
		return c, err
	}
	if out, err := exec.CommandContext(ctx, "redis-cli", append(create, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput(); err != nil {
		return c, fmt.Errorf("redis-cli --cluster create: %s", out)
	}
	whole := func(answer string) bool { return strings.Count(answer, "slave ") == 3 }
	if err := c.until(ctx, whole, "CLUSTER", "NODES"); err != nil {
		return c, err
	}
	return c, c.until(ctx, func(answer string) bool { return strings.Contains(answer, "cluster_state:ok") }, "CLUSTER", "INFO")
}

// until waits until each node's answer to a command is good.
func (c *cluster) until(ctx context.Context, good func(answer string) bool, command ...string) error {
	for i := range c.nodes {
		for {
			out, _ := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", strconv.Itoa(firstPort + i)}, command...)...).Output()
			if good(string(out)) {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func (c *cluster) seeds() (all []string) {
	for i := range c.nodes {
		all = append(all, address(i))
	}
	return all
}

// fill makes the sets, and returns those of the first master, once its replica has them.
func (c *cluster) fill(ctx context.Context) (ofMaster map[int]bool, err error) {
	client := newGoRedis(c.seeds())
	defer client.Close()
	for set := range sets {
		for i := range members {
			if err := client.SAdd(ctx, setName(set), member(i, set)).Err(); err != nil {
				return nil, err
			}
		}
	}
	master := redis.NewClient(&redis.Options{Addr: address(0)})
	defer master.Close()
	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		return nil, err
	}
	var ranges []redis.SlotRange
	for _, shard := range shards {
		if slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.Port == firstPort }) {
			ranges = shard.Slots
		}
	}
	ofMaster = map[int]bool{}
	for set := range sets {
		slot, err := client.ClusterKeySlot(ctx, setName(set)).Result()
		if err != nil {
			return nil, err
		}
		ofMaster[set] = slices.ContainsFunc(ranges, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End })
	}
	return ofMaster, master.Wait(ctx, 1, 10*time.Second).Err()
}

// signalMaster kills or stops the first master. To do it again does nothing.
func (c *cluster) signalMaster(signal syscall.Signal) { _ = c.nodes[0].Process.Signal(signal) }

// end ends every node.
func (c *cluster) end() {
	for _, node := range c.nodes {
		_ = node.Process.Kill()
		_ = node.Wait()
	}
	_ = os.RemoveAll(c.dir)
}
