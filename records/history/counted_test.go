package history

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// busy fills a history with records of which few names have many, in so many finished segments and an open one.
func busy(t testing.TB, l *Log, r *rand.Rand, start time.Time, segments, each int) {
	t.Helper()
	for i := range segments {
		for n := range each {
			v := anything(r, start.Add(time.Duration(i*each+n)*time.Millisecond))
			who := int(600 * r.Float64() * r.Float64())
			v.Sender, v.Recipient = fmt.Sprintf("u%d@d%d.example", who, who%50), fmt.Sprintf("R%d@Here.example", who)
			v.Client = netip.AddrFrom4([4]byte{192, 0, byte(who >> 8), byte(who)})
			l.Add(v)
		}
		testkit.Must(t, l.Flush())
		if i < segments-1 {
			finish(l)
		}
	}
}

// TestMostBySums holds counts by sums against those of the whole, also where a file of sums is damaged, missing, or of another content.
func TestMostBySums(t *testing.T) {
	l, r := open(t), rand.New(rand.NewPCG(3, 4))
	start := time.Now().Add(-time.Hour)
	busy(t, l, r, start, 6, 700)
	compare := func(when string) {
		t.Helper()
		for _, by := range Groups() {
			for _, q := range []Query{{}, {Outcome: "refuse"}, {Outcome: Mail}, {Door: "milter", Verdict: "blocked"}, {List: "own"}, {List: "none"},
				{Since: start.Add(1000 * time.Millisecond)}, {Since: start.Add(700 * time.Millisecond), Until: start.Add(2900 * time.Millisecond)}, {Until: start}} {
				q.Limit = 7
				got := testkit.Value(l.Most(t.Context(), TopQuery{Query: q, By: by}))(t)
				want := testkit.Value(Most(t.Context(), l.settings.Folder, TopQuery{Query: q, By: by}))(t)
				for i := range got.Rows { // equal counts may be of any names
					if got.Rows[i].Decisions == want.Rows[len(want.Rows)-1].Decisions {
						got.Rows[i].Name = want.Rows[i].Name
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, by %s %+v:\n%+v, want\n%+v", when, by, q, got, want)
				}
			}
		}
	}
	compare("without sums")
	testkit.Must(t, l.sumSegments(t.Context()))
	files, _ := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix))
	testkit.MustEqual(t, "files of sums", len(files), 5)
	testkit.Value(mostBySums(t.Context(), l.settings.Folder, TopQuery{Query: Query{Limit: 5}, By: "sender"}, mostUnsummed))(t)
	compare("with sums")
	text := testkit.Read(t, files[2])
	for _, at := range []int{3, len(sumsHeadText) + 2, len(sumsHeadText) + 9, len(text) / 10, len(text) / 2, len(text) - 1} {
		broken := slices.Clone(text)
		broken[at] ^= 4
		testkit.Write(t, files[2], broken)
		compare(fmt.Sprint("damaged at ", at))
	}
	testkit.Write(t, files[2], text[:len(text)-30])
	compare("cut")
	testkit.Must(t, os.Remove(files[1]))
	compare("removed")
	for _, path := range files {
		os.Remove(path)
	}
	testkit.Fails(mostBySums(t.Context(), l.settings.Folder, TopQuery{Query: Query{Limit: 5}, By: "sender"}, 30_000))(t, "more rows than memory", errUnsummed)
	testkit.Must(t, l.sumSegments(t.Context()))
	testkit.Value(l.Forget(t.Context(), func(r *Record) bool { return r.Sender == "u1@d1.example" }))(t)
	compare("shortened")
	testkit.Must(t, l.sumSegments(t.Context()))
	compare("made anew")
	for _, s := range l.older {
		os.Remove(s.path)
	}
	testkit.Must(t, l.sumSegments(t.Context()))
	if files, _ := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix)); len(files) != 0 {
		t.Errorf("%d files of sums without segments", len(files))
	}
}

// TestOneFileWithoutSums: one that cannot have them does not keep the older ones from theirs.
func TestOneFileWithoutSums(t *testing.T) {
	l, r := open(t), rand.New(rand.NewPCG(3, 4))
	busy(t, l, r, time.Now().Add(-time.Hour), 6, 700)
	newest := l.older[len(l.older)-1]
	testkit.Must(t, os.MkdirAll(filepath.Join(strings.TrimSuffix(newest.path, suffix)+sumsSuffix, "in the way"), 0o700))
	if err := l.sumSegments(t.Context()); err == nil {
		t.Error("no error")
	}
	if files, _ := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix)); len(files) != len(l.older) {
		t.Errorf("%d files of sums, with the one in the way, for %d segments", len(files), len(l.older))
	}
}

// TestCursorsBack: going back from any page has the page before it, whatever is selected.
func TestCursorsBack(t *testing.T) {
	l, r := open(t), rand.New(rand.NewPCG(7, 8))
	busy(t, l, r, time.Now().Add(-time.Hour), 3, 100)
	for _, q := range []Query{{}, {Oldest: true}, {Outcome: "refuse"}, {Door: "smtp", Oldest: true}, {Domain: "d3.example"}, {Text: "d1.EX"}} {
		if q.Limit = 1 + r.IntN(20); q.Domain+q.Text != "" {
			q.Limit = 2
		}
		var pages []Found
		for {
			found := testkit.Value(l.Search(t.Context(), q))(t)
			if len(found.Records) > 0 {
				pages = append(pages, found)
			}
			if q.Cursor = found.Next; q.Cursor == "" {
				break
			}
		}
		if len(pages) < 2 || pages[0].Prev != "" {
			t.Fatalf("%+v: %d pages, before the first %q", q, len(pages), pages[0].Prev)
		}
		last := pages[len(pages)-1]
		for i := len(pages) - 2; i >= 0; i-- {
			q.Cursor = last.Prev
			found, err := l.Search(t.Context(), q)
			if err != nil || !reflect.DeepEqual(found.Records, pages[i].Records) {
				t.Fatalf("%+v: page %d of %d has %d records, want %d, %v", q, i, len(pages), len(found.Records), len(pages[i].Records), err)
			}
			q.Cursor = found.Next
			if again, err := l.Search(t.Context(), q); err != nil || !reflect.DeepEqual(again.Records, pages[i+1].Records) {
				t.Fatalf("%+v: on from page %d: %d records, %v", q, i, len(again.Records), err)
			}
			last = found
		}
		if last.Prev != "" { // there may be nothing before it
			q.Cursor = last.Prev
			if found, err := l.Search(t.Context(), q); err != nil || !reflect.DeepEqual(found.Records, pages[0].Records) {
				t.Errorf("%+v: before the first page are %d records, %v", q, len(found.Records), err)
			}
		}
	}
}

// BenchmarkTop counts five million decisions of 30 days, with 1.5 million senders, as the console does: finished files by their sums.
func BenchmarkTop(b *testing.B) {
	l := open(b)
	l.settings.Max, l.settings.Keep = 4<<30, 100*24*time.Hour
	r := rand.New(rand.NewPCG(1, 2))
	const all = 5_000_000
	start := time.Now().Add(-30 * 24 * time.Hour)
	for i := range all {
		v := clear(int(1_500_000 * r.Float64() * r.Float64()))
		if i%5 == 0 {
			v = blocked(int(1_500_000 * r.Float64() * r.Float64()))
		}
		v.Time = start.Add(30 * 24 * time.Hour / all * time.Duration(i))
		v.Client = netip.AddrFrom4([4]byte{198, byte(r.IntN(20)), byte(r.IntN(100)), byte(r.IntN(250))})
		v.Recipient = fmt.Sprintf("user%d@here.example", r.IntN(20_000))
		v.Sender = fmt.Sprintf("somebody.%d@d%d.example", int(1_500_000*r.Float64()*r.Float64()), int(100_000*r.Float64()*r.Float64()))
		l.Add(v)
		if i%5000 == 0 {
			testkit.Must(b, l.Flush())
		}
	}
	l.Flush()
	began := time.Now()
	l.writing.Lock()
	l.finish()
	older := append([]segment{}, l.older...)
	l.writing.Unlock()
	seed, _ := seedOf(l.settings.Folder, true)
	text, octets := int64(0), int64(0)
	for _, s := range older {
		_, err := l.sumSegment(s, seed)
		testkit.Must(b, err)
		info, _ := os.Stat(sumsPath(l.settings.Folder, s.number))
		text, octets = text+s.size, octets+info.Size()
	}
	b.Logf("%d segments of %d MB, sums of %d MB made in %s", len(older), text>>20, octets>>20, time.Since(began))
	for _, q := range []Query{{Text: "nobody-has-it"}, {Text: "d77777.exam"}, {Sender: "somebody.1400000@d99000.example"}, {Sender: "d99000.example"}, {Recipient: "user77@here.example"},
		{Client: netip.MustParsePrefix("198.3.4.5/32")}, {Ref: "ref1400000"}, {List: "none"}} {
		q.Limit = 100
		b.Run(strings.Trim(fmt.Sprint("search ", q.Text, q.Sender, q.Recipient, q.Ref, q.List, q.Client), "{}"), func(b *testing.B) {
			for b.Loop() {
				_, err := l.Search(b.Context(), q)
				testkit.Must(b, err)
			}
		})
	}
	for _, by := range Groups() {
		for _, outcome := range []string{"", "refuse"} {
			b.Run(by+outcome, func(b *testing.B) {
				for b.Loop() {
					if top, err := l.Most(b.Context(), TopQuery{Query: Query{Limit: 20, Outcome: outcome}, By: by}); err != nil || top.Distinct == 0 {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
