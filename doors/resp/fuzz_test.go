package resp

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// FuzzConversation sends octets to a session. It must end by itself, hold nothing, and answer
// each command once; what is no sender must not become an answer. The end of each command must
// be where the library sees it, however its octets come.
func FuzzConversation(f *testing.F) {
	for _, words := range [][]string{{"PING"}, {"SISMEMBER", "spam", "x@bad.example"}, {"HMGET", "senders", "192.0.2.7", "192.0.2.0/24", "x y"},
		{"HELLO", "3", "SETNAME", "x"}, {"MULTI"}, {"EXEC"}, {"CLUSTER", "SLOTS"}, {"GET", "raw:spam:bad.example"}, {"COMMAND"}, {"INFO"}, {"BF.INFO", "spam"}} {
		f.Add(encode(words...))
	}
	f.Add([]byte("*1\r\n$-5\r\nPING\r\n"))
	f.Add([]byte("*-1\r\n*0\r\n\r\nECHO \"a b\" 'c'\r\nPOST / HTTP/1.1\r\n"))
	f.Add(bytes.Repeat(encode("SISMEMBER", "spam", "x@bad.example"), 200))
	r := newRig(f)
	s := r.open(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 4<<10 {
			return
		}
		frames(t, input)
		near, far := socketPair(t)
		go func() {
			near.Write(input)
			near.(*net.UnixConn).CloseWrite()
		}()
		c := newConn(s, far)
		go c.Run()
		out, err := io.ReadAll(near)
		if err != nil && !strings.Contains(err.Error(), "reset") { // the rest of the input after a fault is not read
			t.Fatalf("%v after %q", err, out)
		}
		if n := testPanics(t, r); n != 0 {
			t.Fatalf("%v panics: %s", n, r.log.String())
		}
	})
}

func testPanics(t *testing.T, r *rig) float64 { return r.count(t, "blockd_resp_faults_total", "panic") }

// frames finds the ends of commands in all octets, and octet by octet.
func frames(t *testing.T, input []byte) {
	for rest := input; len(rest) > 0; {
		whole := first()
		n, err := whole.measure(rest)
		slow := first()
		for have := 1; have <= len(rest); have++ {
			m, slowErr := slow.measure(rest[:have])
			if slowErr != nil || m != 0 {
				if (slowErr != nil) != (err != nil) || m != n {
					t.Fatalf("%q: %d, %v; octet by octet %d, %v", rest, n, err, m, slowErr)
				}
				break
			}
			if have == len(rest) && (n != 0 || err != nil) {
				t.Fatalf("%q: %d, %v; octet by octet nothing", rest, n, err)
			}
		}
		if n == 0 {
			return
		}
		if command := rest[:n]; bytes.Count(command, []byte("\n")) > 1 || command[0] != '*' {
			ok, args, _, left, err := redcon.ReadNextCommand(command, nil)
			if err == nil && (!ok || len(left) > 0 || len(args) > maxArguments) {
				t.Fatalf("%q: %v, %d arguments, %q left", command, ok, len(args), left)
			}
			if err != nil && command[0] == '*' {
				t.Fatalf("%q: %v", command, err)
			}
		}
		rest = rest[n:]
	}
}
