package history

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// BenchmarkMost counts 10 million decisions of 30 days by each group. Their senders are of
// a Zipf distribution, as those of real mail are. peak-MiB is the most memory of the Go
// runtime while it counts, and every run but the first reads a cached file.
//
//	go test ./records/history -run '^$' -bench Most -benchtime 1x
func BenchmarkMost(b *testing.B) {
	const decisions = 10_000_000
	folder := tenMillion(b, decisions)
	for _, by := range Groups() {
		b.Run(by, func(b *testing.B) {
			var peak atomic.Uint64
			for b.Loop() {
				q := TopQuery{By: by, Query: Query{Limit: 20}}
				q.Progress = func(int64, int64) { peak.Store(max(peak.Load(), inUse())) }
				top, err := Most(b.Context(), folder, q)
				if err != nil || top.Decisions != decisions {
					b.Fatalf("%d decisions, %v", top.Decisions, err)
				}
				b.ReportMetric(float64(top.Distinct), "names")
			}
			b.ReportMetric(float64(peak.Load())/(1<<20), "peak-MiB")
			b.ReportMetric(float64(decisions)*float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// inUse is what the runtime has of the system, and has not given back.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}

// tenMillion writes a history of n decisions.
func tenMillion(b *testing.B, n int) string {
	folder := filepath.Join(b.TempDir(), "history")
	testkit.Must(b, os.Mkdir(folder, 0o700))
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.05, 1, uint64(n))
	begin := time.Now().Add(-30 * 24 * time.Hour)
	text, number := []byte(fileHead), uint64(1)
	put := func() {
		testkit.Must(b, os.WriteFile(segmentPath(folder, number), text, 0o600))
		text, number = []byte(fileHead), number+1
	}
	for i := range n {
		who := zipf.Uint64()
		v := clear(i)
		v.Time = begin.Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
		v.Sender = fmt.Sprintf("newsletter-%s%d@mail%d.there.example", strings.Repeat("x", int(who%7)), who, who%1_000_000)
		v.Recipient = fmt.Sprintf("somebody.%d@here.example", r.IntN(50_000))
		v.Client = netip.AddrFrom4([4]byte{byte(1 + who%200), byte(who >> 16), byte(who >> 8), byte(who)})
		if who%3 == 0 {
			v.Outcome, v.Verdict, v.Ref, v.List, v.Entry = "refuse", "blocked", "3mg17kdgtb", fmt.Sprintf("list%d", who%12), "there.example"
		}
		if text = appendLine(text, &v); len(text) > maxSegment-maxLine {
			put()
		}
	}
	put()
	return folder
}
