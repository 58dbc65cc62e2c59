package postfix

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
)

// benchRequests are of many senders, so that nothing is remembered by chance, and
// as long as those that Postfix 3.7 sends.
func benchRequests(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = request(fmt.Sprintf("sender=user%d@mx%d.there.example", i, i%97), fmt.Sprintf("instance=3a1.66f0.%d", i),
			"protocol_name=ESMTP", "client_name=mx.there.example", "reverse_client_name=mx.there.example", "stress=",
			"sasl_sender=", "ccert_subject=", "ccert_issuer=", "ccert_fingerprint=", "ccert_pubkey_fingerprint=",
			"encryption_protocol=TLSv1.3", "encryption_cipher=TLS_AES_256_GCM_SHA384", "encryption_keysize=256", "etrn_domain=",
			"policy_context=", "client_port=40000", "server_address=192.0.2.25", "server_port=25", "compatibility_level=3.6", "mail_version=3.7.11")
	}
	return all
}

// BenchmarkPolicy measures requests for clear senders over TCP on loopback, the
// way that Postfix asks, one at a time on each connection, and pipelined.
func BenchmarkPolicy(b *testing.B) {
	for _, connections := range []int{1, 8} {
		for _, together := range []int{1, 16} {
			b.Run(fmt.Sprintf("connections=%d/together=%d", connections, together), func(b *testing.B) { benchmarkPolicy(b, connections, together) })
		}
	}
}

func benchmarkPolicy(b *testing.B, connections, together int) {
	s := benchRig(b).service(Policy)
	address, _ := serve(b, s)
	requests := batches(benchRequests(1024), together)
	answer := make([]byte, together*len("action=DUNNO\n\n"))
	var clients []net.Conn
	for range connections {
		c := testkit.Value(net.Dial("tcp", address))(b)
		defer c.Close()
		clients = append(clients, c)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			mine, got := b.N/connections, make([]byte, len(answer))
			for n := 0; n < mine; n += together {
				if _, err := c.Write(requests[(n/together+i*101)%len(requests)]); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, got); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// batches joins so many requests at a time.
func batches(requests []string, together int) (all [][]byte) {
	for at := 0; at < len(requests); at += together {
		all = append(all, []byte(strings.Join(requests[at:at+together], "")))
	}
	return all
}

// benchRig has 100,000 addresses listed, none of them a sender's.
func benchRig(b *testing.B) *rig {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "spam%d@bulk%d.example\n", i, i%1000)
	}
	return newRig(b, testList{name: "bad", text: text.String()})
}
