package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports of servers that tests start lie from firstPort on, in blocks. They are below those that systems give clients (32768 and up,
// ip_local_port_range), where one that was only looked at is soon somebody else's.
const (
	firstPort  = 12_000
	portBlocks = 40
	blockPorts = 500
)

// ports are the block of this run. It holds a lock on it, so that packages whose tests run beside each other take no port
// of each other between the look at it and the start of its server.
type ports struct {
	first int
	next  atomic.Uint32
	lock  *os.File
}

// claimPorts takes a block that nobody has. If all are taken, it shares one.
func claimPorts() *ports {
	begin := rand.IntN(portBlocks)
	for i := range portBlocks {
		block := (begin + i) % portBlocks
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("blockd-test-ports-%d", block)), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return &ports{first: firstPort + block*blockPorts, lock: lock}
		}
		lock.Close()
	}
	return &ports{first: firstPort + begin*blockPorts}
}

// FreeAddress returns a loopback address that nobody listens on, and that nobody else is given while its server starts.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range blockPorts {
		address := fmt.Sprintf("127.0.0.1:%d", own.first+int(own.next.Add(1)%blockPorts))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("somebody listens on every port of this run")
	return ""
}
