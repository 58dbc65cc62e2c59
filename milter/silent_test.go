package milter

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/listener"
)

// A stop does not wait for a connection without an SMTP session in progress, such as one that
// its mail server keeps for the next client.
func TestSilent(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	settings := Settings{}.withDefaults()
	g := newConnections(settings, newMetrics(prometheus.NewRegistry()), listener.NewCalmLog(slog.New(slog.DiscardHandler)), nil)
	c := &conn{Conn: ours, connections: g, taken: make(chan struct{})}
	defer c.Close()
	if !c.silent() {
		t.Error("before the first packet: not silent")
	}
	for _, step := range []struct {
		name, packet string
		silent       bool
	}{
		{"the negotiation", "O" + string(make([]byte, 12)), false},
		{"a client", "Cclient.example\x00U", false},
		{"its sender", "M<a@there.example>\x00", false},
		{"its end, the connection is kept", "K", true},
		{"macros of the next client", "Dj\x00mail.example\x00", false},
		{"its end", "K", true},
	} {
		packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(step.packet))), step.packet...)
		go theirs.Write(packet)
		if _, err := io.ReadFull(c, make([]byte, len(packet))); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := c.silent(); got != step.silent {
			t.Errorf("behind %s: silent = %v, want %v", step.name, got, step.silent)
		}
	}
}
