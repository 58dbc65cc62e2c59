package stores

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestRESP has clients of four languages and rspamd ask one daemon.
func TestRESP(t *testing.T) {
	address := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Files: map[string]string{"spam.txt": "bad.example\n192.0.2.0/24\n", "friends.txt": "good@bad.example\n192.0.2.7\n"},
		Lists: fmt.Sprintf("[resp]\nlisten = %q\n", address) + e2e.List("spam") + e2e.List("friends", `action = "allow"`, `exceptions = "all"`)})
	host, port, _ := net.SplitHostPort(address)
	for _, client := range []struct {
		name, want string
		run        func(t *testing.T) *exec.Cmd
	}{
		{"node", "redis cluster: well", func(t *testing.T) *exec.Cmd {
			if _, err := os.Stat("../node/node_modules"); err != nil {
				testkit.Missing(t, "ioredis and redis are not installed (npm --prefix cmd/blockd/e2e/node ci)")
			}
			return exec.Command(testkit.Peer(t, "node"), "../node/resp.mjs", host, port)
		}},
		{"python", "RedisCluster: well", func(t *testing.T) *exec.Cmd {
			if _, err := os.Stat("/usr/share/doc/python3-redis"); err != nil {
				testkit.Missing(t, "python3-redis is not installed (make peers)")
			}
			return exec.Command("/usr/bin/python3", "../resp/clients.py", host, port)
		}},
		{"hiredis", "hiredis: well", func(t *testing.T) *exec.Cmd {
			if _, err := os.Stat("/usr/include/hiredis/hiredis.h"); err != nil {
				testkit.Missing(t, "libhiredis-dev is not installed (make peers)")
			}
			program := filepath.Join(t.TempDir(), "clients")
			e2e.Ran(t, exec.Command(testkit.Peer(t, "gcc"), "-Wall", "-o", program, "../resp/clients.c", "-lhiredis"))
			return exec.Command(program, host, port)
		}},
		{"redis-cli", "1\n0\n1\n", func(t *testing.T) *exec.Cmd {
			return exec.Command(testkit.Peer(t, "redis-cli"), "-c", "-3", "-h", host, "-p", port, "SMISMEMBER", "senders", "x@bad.example", "good@bad.example", "192.0.2.1")
		}},
	} {
		t.Run(client.name, func(t *testing.T) {
			out, err := client.run(t).CombinedOutput()
			if err != nil || !strings.Contains(string(out), client.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("go-redis", func(t *testing.T) {
		for _, r := range []redis.UniversalClient{
			redis.NewClient(&redis.Options{Addr: address}), redis.NewClient(&redis.Options{Addr: address, Protocol: 2}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}}),
		} {
			goRedis(t, r)
			r.Close()
		}
	})
	t.Run("rspamd", func(t *testing.T) { rspamdAsks(t, address) })

	// Programs that ask leave a trace.
	d.Prints(t, "history --sender x@bad.example --json", `"door":"resp"`, `"outcome":"listed"`)
	testkit.Equal(t, "panics", d.Metric(`blockd_resp_faults_total{why="panic"}`), "0")
}

// goRedis asks as a Go program does.
func goRedis(t *testing.T, r redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	if yes, err := r.SIsMember(ctx, "senders", "x@bad.example").Result(); err != nil || !yes {
		t.Errorf("%T: SISMEMBER: %v, %v", r, yes, err)
	}
	if all, err := r.SMIsMember(ctx, "senders", "x@bad.example", "good@bad.example").Result(); err != nil || len(all) != 2 || !all[0] || all[1] {
		t.Errorf("%T: SMISMEMBER: %v, %v", r, all, err)
	}
	if reason, err := r.HGet(ctx, "spam", "x@bad.example").Result(); err != nil || reason != "bad.example" {
		t.Errorf("%T: HGET: %q, %v", r, reason, err)
	}
	if _, err := r.HGet(ctx, "spam", "x@clear.example").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("%T: HGET of a clear sender: %v", r, err)
	}
	if all, err := r.BFMExists(ctx, "spam", "x@bad.example", "x@clear.example").Result(); err != nil || len(all) != 2 || !all[0] || all[1] {
		t.Errorf("%T: BF.MEXISTS: %v, %v", r, all, err)
	}
	if _, err := r.BFInfo(ctx, "spam").Result(); err != nil {
		t.Errorf("%T: BF.INFO: %v", r, err)
	}
	if _, err := r.SIsMember(ctx, "spam", "a b").Result(); err == nil || !strings.Contains(err.Error(), "no sender") {
		t.Errorf("%T: no sender: %v", r, err)
	}
	p := r.Pipeline()
	for range 10_000 {
		p.SIsMember(ctx, "spam", "x@bad.example")
	}
	answers, err := p.Exec(ctx)
	if err != nil || len(answers) != 10_000 || !answers[9_999].(*redis.BoolCmd).Val() {
		t.Errorf("%T: a pipeline of %d: %v", r, len(answers), err)
	}
}

// rspamdAsks has a real rspamd check messages by maps in the RESP door, by sender, domain and client.
func rspamdAsks(t *testing.T, address string) {
	scanner := e2e.RunRspamd(t, `
  dns { nameserver = "127.0.0.1:1"; }`, strings.ReplaceAll(`
modules { path = "$PLUGINSDIR/multimap.lua"; }
multimap {
  servers = "RESP";
  SENDER { type = "from"; filter = "email:addr"; map = "redis://senders"; }
  DOMAIN { type = "from"; filter = "email:domain"; map = "redis://senders"; }
  CLIENT { type = "ip"; map = "redis://senders"; }
}
`, "RESP", address))
	symbols := func(from, ip string) (found []string) {
		answer, err := e2e.Scan(scanner, "From: <a@b.example>\r\nSubject: x\r\n\r\nx\r\n", map[string]string{"From": from, "IP": ip})
		if err != nil {
			return []string{err.Error()}
		}
		for _, name := range []string{"SENDER", "DOMAIN", "CLIENT"} {
			if _, ok := answer.Symbols[name]; ok {
				found = append(found, name)
			}
		}
		return append(found, ".")
	}
	testkit.Eventually(t, "rspamd to answer", func() bool { return slices.Equal(symbols("x@clear.example", "198.51.100.1"), []string{"."}) })
	for _, tt := range []struct{ from, ip, want string }{
		{"x@clear.example", "198.51.100.1", "."},
		{"x@bad.example", "198.51.100.1", "SENDER DOMAIN ."},
		{"good@bad.example", "198.51.100.1", "DOMAIN ."}, // the exception is for the address
		{"x@clear.example", "192.0.2.1", "CLIENT ."},
		{"x@clear.example", "192.0.2.7", "."}, // an exception within a listed network
	} {
		testkit.Equal(t, fmt.Sprintf("%s from %s", tt.from, tt.ip), strings.Join(symbols(tt.from, tt.ip), " "), tt.want)
	}
}
