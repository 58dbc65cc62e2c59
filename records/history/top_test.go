package history

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// slowTop is Most as one would write it down, for a query that selects by outcome and time.
func slowTop(records []Record, q TopQuery) Top {
	top := Top{By: q.By, Rows: []TopRow{}}
	counts := map[string]uint64{}
	for _, r := range records {
		if q.Outcome != "" && r.Outcome != q.Outcome || r.Time.Before(q.Since) {
			continue
		}
		client := ""
		if r.Client.IsValid() {
			client = r.Client.Unmap().String()
		}
		sender, domain := cmp.Or(Lower(r.Sender), "<>"), "<>"
		if r.Sender != "" {
			parts := strings.Split(Lower(r.Sender), "@")
			domain = parts[len(parts)-1]
		}
		name := map[string]string{"client": client, "sender": sender, "domain": domain, "list": r.List, "recipient": Lower(r.Recipient), "entry": entryName(&r)}[q.By]
		n := uint64(1)
		if r.Repeated > 0 {
			n = uint64(r.Repeated)
		}
		if top.Decisions += n; name == "" {
			top.Without += n
		} else {
			counts[name] += n
		}
	}
	for name, n := range counts {
		top.Rows = append(top.Rows, TopRow{name, n, float64(n) / float64(top.Decisions)})
	}
	slices.SortFunc(top.Rows, func(a, b TopRow) int {
		return cmp.Or(cmp.Compare(b.Decisions, a.Decisions), strings.Compare(a.Name, b.Name))
	})
	top.Distinct = uint64(len(top.Rows))
	top.Rows = top.Rows[:min(len(top.Rows), q.Limit)]
	return top
}

func entryName(r *Record) string {
	if r.Entry == "" {
		return ""
	}
	return r.List + " " + r.Entry
}

// TestMost holds Most against the slow one. In 600 octets there is room for five names, so that
// nearly every name goes to a file, and parts are divided again.
func TestMost(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(5, 6))
	folder, start := t.TempDir(), time.Now().Add(-time.Hour)
	var records []Record
	for i := range 2000 {
		v := anything(r, start.Add(time.Duration(i)*time.Millisecond))
		if r.IntN(2) == 0 { // few have many, and many have few
			n := int(600 * r.Float64() * r.Float64())
			v.Sender, v.Recipient = fmt.Sprintf("u%d@d%d.example", n, n%300), fmt.Sprintf("R%d@Here.example", n)
			v.Client = netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)})
		}
		records = append(records, v)
	}
	write(t, folder, records)
	for _, by := range Groups() {
		for _, tt := range []struct {
			memory int64
			rows   int
		}{{0, 1}, {0, 7}, {600, 7}, {10_000, MaxTop}} {
			q := TopQuery{By: by, Memory: tt.memory}
			q.Limit = tt.rows
			if tt.rows == 7 {
				q.Outcome, q.Since = "refuse", start.Add(time.Second)
			}
			got, err := Most(t.Context(), folder, q)
			if want := slowTop(records, q); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("by %s, %+v: %+v, %v, want %+v", by, tt, got, err, want)
			}
		}
	}
}

func TestMostOfDamagedFiles(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, []Record{blocked(1), blocked(1), blocked(2)})
	path := segmentPath(folder, 1)
	text := testkit.Read(t, path)
	text[len(text)-10] ^= 1
	testkit.Write(t, path, text)
	q := TopQuery{By: "sender", Query: Query{Limit: 10}}
	var done, total int64
	q.Progress = func(d, of int64) { done, total = d, of }
	got, err := Most(t.Context(), folder, q)
	if err != nil || got.Damaged != 1 || got.Decisions != 2 || len(got.Rows) != 1 || got.Rows[0].Decisions != 2 {
		t.Errorf("with a damaged line: %+v, %v", got, err)
	}
	testkit.Equal(t, "progress at the end", [...]int64{done, total}, [...]int64{total, int64(len(text))})
}

func TestMostFails(t *testing.T) {
	q := TopQuery{By: "sender", Query: Query{Limit: 10}, Memory: 1}
	testkit.Fails(Most(t.Context(), filepath.Join(t.TempDir(), "none"), q))(t, "no folder", fs.ErrNotExist)
	folder := t.TempDir()
	write(t, folder, []Record{clear(1), clear(2)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Fails(Most(ctx, folder, q))(t, "an ended context", context.Canceled)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("TMPDIR", nowhere)
	testkit.Got(Most(t.Context(), folder, q))(t, "no folder for temporary files", testkit.Any, "…temporary file in "+nowhere+"…")
	q.Memory = 0
	testkit.Equal(t, "names that fit need no temporary file", testkit.Value(Most(t.Context(), folder, q))(t).Distinct, 2)
}

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

// TestRefusals: only what a list refused counts, each as often as it stands for, and a
// list's sample is drawn from all of its refusals.
func TestRefusals(t *testing.T) {
	l := testkit.Value(Open(Settings{Folder: t.TempDir(), Max: MinMax, Keep: 30 * 24 * time.Hour}))(t)
	now := time.Now()
	add := func(r Record) {
		r.Door = "smtp"
		if r.Time.IsZero() {
			r.Time = now
		}
		l.Add(r)
	}
	refused := Record{Outcome: "refuse", Verdict: "blocked", List: "bad", Sender: "x@bad.example", Recipient: "bob@here.example", Client: netip.MustParseAddr("192.0.2.7")}
	for _, other := range []func(r *Record){
		func(r *Record) { r.Outcome, r.Exempt = "accept", true },
		func(r *Record) { r.Outcome = "tag" },
		func(r *Record) { r.Hearsay = true },
		func(r *Record) { r.Outcome, r.Verdict, r.List = "accept", "clear", "" },
		func(r *Record) { r.Verdict, r.List = "unknown", "" },
		func(r *Record) { r.Time = now.Add(-8 * 24 * time.Hour) },
	} {
		r := refused
		other(&r)
		add(r)
	}
	add(refused)
	many := refused
	many.Repeated, many.List = 512, "flooded"
	add(many)
	login := refused
	login.Authenticated, login.List, login.Source = true, "clients", "from"
	add(login)
	const big = 5000
	for i := range big {
		r := refused
		r.List, r.Sender = "big", fmt.Sprintf("s%d@d.example", i)
		add(r)
	}
	found := testkit.Value(l.Refusals(t.Context(), now.Add(-7*24*time.Hour), 4))(t)
	if got := found["bad"]; got == nil || got.Count != 1 || len(got.Sample) != 1 ||
		got.Sample[0] != (Refusal{Sender: "x@bad.example", Recipient: "bob@here.example", Client: refused.Client, Weight: 1}) {
		t.Errorf("bad: %+v", got)
	}
	if got := found["flooded"]; got == nil || got.Count != mostRepeated {
		t.Errorf("flooded: %+v", got)
	}
	if got := found["clients"]; got == nil || got.Sample[0].Sender != "" || got.Sample[0].Source != "from" {
		t.Errorf("clients: %+v", got)
	}
	got := found["big"]
	if got == nil || got.Count != big || len(got.Sample) != mostOfList {
		t.Fatalf("big: %v refusals", got)
	}
	old := 0 // of the first half
	for _, r := range got.Sample {
		var n int
		fmt.Sscanf(r.Sender, "s%d@", &n)
		if n < big/2 {
			old++
		}
	}
	testkit.AtLeast(t, "of the older half", old, mostOfList*2/5)
	testkit.AtMost(t, "of the older half", old, mostOfList*3/5)
	if found, err := (*Log)(nil).Refusals(t.Context(), now, 1); found != nil || err != nil {
		t.Error(found, err)
	}
}

// TestRefusalsOfManySegments: a later look reads the newest alone, and counts the same.
func TestRefusalsOfManySegments(t *testing.T) {
	race.Skip(t)
	folder := t.TempDir()
	l := testkit.Value(Open(Settings{Folder: folder, Max: 64 << 20, Keep: 30 * 24 * time.Hour}))(t)
	since := time.Now().Add(-7 * 24 * time.Hour)
	n := 0
	add := func(more int) {
		for range more {
			r := blocked(n)
			r.Time, r.Outcome, r.Verdict, r.List, r.Repeated, r.Exempt = time.Now(), "refuse", "blocked", "bad", 0, false
			l.Add(r)
			if n++; n%1000 == 0 {
				l.Flush()
			}
		}
		l.Flush()
	}
	for _, more := range []int{150_000, 50, 70_000} {
		add(more)
		kept := testkit.Value(l.Refusals(t.Context(), since, 4))(t)
		fresh := testkit.Value(Refusals(t.Context(), folder, since, 4))(t)
		for name, found := range map[string]map[string]*Refused{"kept": kept, "fresh": fresh} {
			sum := 0.
			for _, r := range found["bad"].Sample {
				sum += r.Weight
			}
			if got := found["bad"]; got.Count != float64(n) || math.Abs(sum-got.Count) > 1 || len(got.Sample) > mostRefusals {
				t.Errorf("%s: %v refusals, weighing %v, in a sample of %d; want %d", name, got.Count, sum, len(got.Sample), n)
			}
		}
	}
	if all, _ := segments(folder); len(all) < 3 || len(l.refused.segments) != len(all)-1 {
		t.Errorf("%d of %d segments are kept", len(l.refused.segments), len(all))
	}
}

// BenchmarkRefusals reads a week of a history of the usual size, each third decision a
// refusal.
func BenchmarkRefusals(b *testing.B) {
	folder := b.TempDir()
	l, err := Open(Settings{Folder: folder, Max: 256 << 20, Keep: 30 * 24 * time.Hour})
	testkit.Must(b, err)
	r := Record{Door: "smtp", Helo: "mail.there.example", Generation: "0123456789abcdef0123456789abcdef", Time: time.Now()}
	for i := range 1_800_000 {
		r.Client = netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		r.Sender, r.Recipient = fmt.Sprintf("sender%d@domain%d.example", i, i%1000), "someone@here.example"
		r.Outcome, r.Verdict, r.List, r.Ref = "accept", "clear", "", ""
		if i%3 == 0 {
			r.Outcome, r.Verdict, r.Ref = "refuse", "blocked", "0123456789"
			r.List, r.File, r.Line, r.Entry, r.Scope, r.Action = fmt.Sprintf("list%d", i%14), "/etc/blockd/lists/list.txt", i, "domain.example", "tree", "block"
		}
		l.Add(r)
		if i%1000 == 0 {
			l.Flush()
		}
	}
	l.Flush()
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := Refusals(b.Context(), folder, time.Now().Add(-7*24*time.Hour), 14)
			testkit.Must(b, err)
		}
	})
	b.Run("later", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := l.Refusals(b.Context(), time.Now().Add(-7*24*time.Hour), 14)
			testkit.Must(b, err)
		}
	})
}

// TestSeveralRecipients: of a line that stands for refusals of several recipients the last one counts once for its
// own, in counts of files and of sums, and in a search for it; the number of all counts for sender, list and domain.
func TestSeveralRecipients(t *testing.T) {
	l := open(t)
	r := blocked(1)
	r.Sender, r.Recipient, r.Repeated, r.Several = "x@bad.example", "Last@Here.example", 40, true
	l.Add(r)
	r.Recipient, r.Repeated, r.Several = "ann@here.example", 7, false
	l.Add(r)
	testkit.Must(t, l.Flush())
	count := func(q TopQuery) string {
		q.Limit = 10
		read := testkit.Value(Most(t.Context(), l.settings.Folder, q))(t)
		asked := testkit.Value(l.Most(t.Context(), q))(t)
		testkit.EqualDeep(t, "by sums", asked, read)
		return fmt.Sprint(read.Decisions, read.Without, read.Rows)
	}
	for range 2 { // read, and by the sums of a finished file
		testkit.Equal(t, "by recipient", count(TopQuery{By: "recipient"}), "47 39 [{ann@here.example 7 0.14893617021276595} {last@here.example 1 0.02127659574468085}]")
		testkit.Equal(t, "by sender", count(TopQuery{By: "sender"}), "47 0 [{x@bad.example 47 1}]")
		testkit.Equal(t, "of the last", count(TopQuery{By: "list", Query: Query{Recipient: "last@here.example"}}), "1 0 [{own 1 1}]")
		testkit.Equal(t, "of the domain", count(TopQuery{By: "list", Query: Query{Recipient: "here.example"}}), "47 0 [{own 47 1}]")
		found := testkit.Value(l.Search(t.Context(), Query{Recipient: "last@here.example"}))(t)
		if len(found.Records) != 1 || found.Records[0].Repeated != 0 || found.Records[0].Several {
			t.Errorf("found %+v", found.Records)
		}
		if l.file != nil {
			finish(l)
		}
		testkit.Must(t, l.sumSegments(t.Context()))
	}
}
