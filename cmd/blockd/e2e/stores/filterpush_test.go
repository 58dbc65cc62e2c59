package stores

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/murmur3"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// cut passes connections on to a server, and ends the sender's process after a number of octets.
type cut struct {
	net.Listener
	to string

	mu    sync.Mutex
	left  int  // octets until the end
	ended bool // all connections are cut
	kill  func()
}

func newCut(t *testing.T, to string) *cut {
	c := &cut{Listener: testkit.Listen(t), to: to}
	go func() {
		for {
			from, err := c.Accept()
			if err != nil {
				return
			}
			go c.pass(from)
		}
	}()
	return c
}

func (c *cut) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(from, to) }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if c.send(to, buffer[:n]) || err != nil {
			return
		}
	}
}

// send passes on what may be, and reports whether that was the end.
func (c *cut) send(to net.Conn, octets []byte) (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		n := min(len(octets), c.left)
		_, _ = to.Write(octets[:n])
		if c.left -= n; c.left == 0 {
			c.ended = true
			c.kill()
		}
	}
	return c.ended
}

// pushes runs blockd filter push through c, and kills it after that many octets. It returns how
// many octets were sent.
func (c *cut) pushes(t *testing.T, bdx string, octets int, flags ...string) (sent int, killed bool) {
	t.Helper()
	cmd := exec.Command(e2e.Program, append([]string{"filter", "push", "-i", bdx, "--as", "bitmap", "-p", "0.0001"}, append(flags, "redis://"+c.Addr().String(), "bl")...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	c.mu.Lock()
	c.left, c.ended = octets, false
	c.kill = func() { _ = cmd.Process.Kill() }
	if err := cmd.Start(); err != nil {
		c.mu.Unlock()
		t.Fatal(err)
	}
	c.mu.Unlock()
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.ended {
		t.Fatalf("push: %v\n%s", err, out.String())
	}
	return octets - c.left, c.ended
}

// asking is a client as docs/filters.md has it, of a filter in parts or in one key.
type asking struct {
	*redis.Client
	shards int
}

func (a asking) perhaps(ctx context.Context, key string) (bool, error) {
	h1, h2 := murmur3.StringSum128(key)
	name, config := "bl", "{bl}:config"
	if a.shards > 1 {
		name = fmt.Sprintf("{bl:%d}", int(float64(h1>>32)/(1<<32)*float64(a.shards)))
		config = name + ":config"
	}
	for {
		numbers := a.HMGet(ctx, config, "size", "hashIterations")
		var n struct {
			Size   uint64 `redis:"size"`
			Hashes uint64 `redis:"hashIterations"`
		}
		if err := numbers.Scan(&n); err != nil || n.Size == 0 {
			return false, fmt.Errorf("no filter: %v, %v", numbers.Val(), err)
		}
		var now *redis.SliceCmd
		var bits []*redis.IntCmd
		if _, err := a.TxPipelined(ctx, func(p redis.Pipeliner) error {
			now = p.HMGet(ctx, config, "size", "hashIterations")
			for i := range n.Hashes {
				bits = append(bits, p.GetBit(ctx, name, int64((h1+i*h2)&math.MaxInt64%n.Size)))
			}
			return nil
		}); err != nil {
			return false, err
		}
		if slices.Equal(now.Val(), numbers.Val()) {
			return !slices.ContainsFunc(bits, func(bit *redis.IntCmd) bool { return bit.Val() == 0 }), nil
		}
	}
}

// A push is killed wherever it may be, and repeated. A program that asks all the time for what
// is in the old filter and in the new one never hears "surely not", although their sizes differ.
func TestFilterPushKilledAtAnyPoint(t *testing.T) {
	const common = 2_000
	key := func(i int) string { return fmt.Sprintf("user%d@bulk%d.example", i, i%977) }
	list := func(from, to int) string {
		var b strings.Builder
		for i := range common {
			b.WriteString(key(i) + "\n")
		}
		for i := from; i < to; i++ {
			b.WriteString(key(i) + "\n")
		}
		return b.String()
	}
	indexes := []string{compiledList(t, list(10_000, 40_000)), compiledList(t, list(90_000, 90_100))}
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			var flags []string
			if shards > 1 {
				flags = []string{"--shards", strconv.Itoa(shards)}
			}
			server := redisserver.Start(t)
			client := asking{redis.NewClient(&redis.Options{Addr: server.Address}), shards}
			defer client.Close()
			through := newCut(t, server.Address)
			var totals [2]int
			for i := range 2 { // once over another, for the whole length
				for _, which := range []int{1, 0}[:2-i] {
					totals[which], _ = through.pushes(t, indexes[which], math.MaxInt, flags...)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			asked, done := 0, make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					perhaps, err := client.perhaps(t.Context(), key(asked%common))
					if err != nil || !perhaps {
						done <- fmt.Errorf("question %d: %v, %v", asked, perhaps, err)
						return
					}
					asked++
				}
				done <- nil
			}()
			kills := 0
			for i, part := range []float64{0.0001, 0.1, 0.5, 0.8, 0.97, 0.99, 0.993, 0.996, 0.998, 0.999, 1} {
				which := i % 2
				if _, killed := through.pushes(t, indexes[which], int(part*float64(totals[which])), flags...); killed {
					kills++
				}
			}
			through.pushes(t, indexes[1], math.MaxInt, flags...)
			stop()
			if err := <-done; err != nil || asked < 100 || kills < 9 {
				t.Errorf("%v; %d questions, %d kills", err, asked, kills)
			}
			t.Logf("%d questions, %d kills, %d and %d octets a push", asked, kills, totals[0], totals[1])
			for _, pattern := range []string{"*:tmp:*", "*:claim"} {
				if keys, err := client.Keys(t.Context(), pattern).Result(); err != nil || len(keys) > 0 {
					t.Errorf("left behind: %q, %v", keys, err)
				}
			}
			e2e.Blockd(t, "filter", "compare", "--against", indexes[1], server.URL()+"#bl")
		})
	}
}

// pushedFilter is a Redis with the filter bl of filterList.
func pushedFilter(t *testing.T) *redisserver.Server {
	t.Helper()
	server := redisserver.Start(t)
	e2e.Blockd(t, "filter", "push", "-i", compiledList(t, filterList), "--as", "bitmap", "-p", "0.000001", server.URL(), "bl")
	return server
}

// sameAsOurs holds a documented client's answers to those of filter check.
func sameAsOurs(t *testing.T, server *redisserver.Server, theirs string) {
	t.Helper()
	if ours := words(answersOf(t, filterAsked, e2e.Program, "filter", "check", server.URL()+"#bl", "-")); theirs != ours || !strings.Contains(ours, "absent") {
		t.Errorf("it says\n%swe\n%s", theirs, ours)
	}
}

// mmh3 stands in for the module of that name, which Debian has not: MurmurHash3 for x64, 128 bits.
const mmh3 = `
import struct
M = 2**64 - 1
def rotl(x, n): return (x << n | x >> 64 - n) & M
def mix(k):
    k ^= k >> 33; k = k * 0xff51afd7ed558ccd & M
    k ^= k >> 33; k = k * 0xc4ceb9fe1a85ec53 & M
    return k ^ k >> 33
def hash64(key, signed=True):
    assert not signed
    data, a, b = key.encode(), 0, 0
    c, d = 0x87c37b91114253d5, 0x4cf5ad432745937f
    whole = len(data) // 16 * 16
    def first(k): return rotl(k * c & M, 31) * d & M
    def second(k): return rotl(k * d & M, 33) * c & M
    for i in range(0, whole, 16):
        k, l = struct.unpack("<QQ", data[i:i + 16])
        a = ((rotl(a ^ first(k), 27) + b) * 5 + 0x52dce729) & M
        b = ((rotl(b ^ second(l), 31) + a) * 5 + 0x38495ab5) & M
    k, l = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    a ^= first(k) ^ len(data); b ^= second(l) ^ len(data)
    a = a + b & M; b = b + a & M
    a, b = mix(a), mix(b)
    a = a + b & M
    return a, b + a & M
`

func TestDocumentedPythonAsksRedis(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which python3-redis is for
	if err := exec.Command(python, "-c", "import redis").Run(); err != nil {
		testkit.Missing(t, "python3-redis is not installed (make peers)")
	}
	server := pushedFilter(t)
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "mmh3.py"), mmh3)
	script := "import sys\nsys.path.insert(0, " + strconv.Quote(dir) + ")\nimport mmh3, redis\nr = redis.Redis(unix_socket_path=" + strconv.Quote(server.Socket) + ")\n" +
		"for sender in sys.stdin.read().splitlines():\n    " + strings.ReplaceAll(documented(t, "python bitmap", "", ""), "\n", "\n    ") + "\n" +
		"    print(\"perhaps\" if perhaps else \"absent\")\n"
	sameAsOurs(t, server, answersOf(t, filterAsked, python, "-c", script))
}

func TestDocumentedNodeAsksRedis(t *testing.T) {
	node := testkit.Peer(t, "node")
	modules := filepath.Join(e2e.Root, "cmd/blockd/e2e", "node", "node_modules")
	if _, err := os.Stat(modules); err != nil {
		testkit.Missing(t, "ioredis is not installed: npm --prefix cmd/blockd/e2e/node ci")
	}
	server := pushedFilter(t)
	script := `const { Redis } = require(` + strconv.Quote(filepath.Join(modules, "ioredis")) + `), murmur = require(` + strconv.Quote(filepath.Join(modules, "murmurhash3js-revisited")) + `);
const redis = new Redis(` + strconv.Quote(server.Socket) + `);
(async () => {
for (const sender of require("fs").readFileSync(0, "utf8").split("\n").slice(0, -1)) {
` + documented(t, "js bitmap", "", "") + `
console.log(perhaps ? "perhaps" : "absent");
}
redis.disconnect();
})();
`
	sameAsOurs(t, server, answersOf(t, filterAsked, node, "-e", script))
}

func TestDocumentedGoAsksRedis(t *testing.T) {
	server := pushedFilter(t)
	source := testkit.File(t, "main.go", `package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/murmur3"
)

`+documented(t, "go bitmap", "", "")+`

func main() {
	r := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1]})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		at := strings.LastIndexByte(in.Text(), '@') + 1
		keys := []string{in.Text(), in.Text()[:at]}
		for domain, more := in.Text()[at:], true; more; _, domain, more = strings.Cut(domain, ".") {
			keys = append(keys, domain)
		}
		word := "absent"
		for _, key := range keys {
			if has, err := perhaps(context.Background(), r, key); err != nil {
				panic(err)
			} else if has {
				word = "perhaps"
			}
		}
		fmt.Println(word)
	}
}
`)
	sameAsOurs(t, server, answersOf(t, filterAsked, "go", "run", source, server.Socket))
}

// Redisson itself is not in Debian: its filter is a set here, which the documented lines ask.
func TestDocumentedRedisson(t *testing.T) {
	javac, java := testkit.Peer(t, "javac"), testkit.Peer(t, "java")
	dir := t.TempDir()
	source := testkit.File(t, "Ask.java", `import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
interface RBloomFilter<T> { boolean contains(T key); }
class StringCodec { static final StringCodec INSTANCE = new StringCodec(); }
class Redisson {
  static final Set<String> KEYS = Set.of("promo@bulk.test", "offers@", "bad.test", "alone.test", "müller@xn--bcher-kva.test");
  <T> RBloomFilter<T> getBloomFilter(String name, StringCodec codec) { return key -> KEYS.contains(key); }
}
class Ask {
  public static void main(String[] args) throws Exception {
    var redisson = new Redisson();
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String sender; (sender = in.readLine()) != null; ) {
`+documented(t, "java redisson", "", "")+`
      System.out.println(perhaps ? "perhaps" : "absent");
    }
  }
}
`)
	e2e.Ran(t, exec.Command(javac, "-encoding", "UTF-8", "-d", dir, source))
	theirs := answersOf(t, filterAsked, java, "-cp", dir, "Ask")
	if ours := words(answersOf(t, filterAsked, e2e.Program, "filter", "check", exportedAs(t, "redisson", "bl"), "-")); theirs != ours {
		t.Errorf("Java says\n%swe\n%s", theirs, ours)
	}
}
