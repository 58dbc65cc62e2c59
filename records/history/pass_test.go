package history

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// passedBy is how many finished segments a query passes over.
func passedBy(t *testing.T, l *Log, q Query) (n int) {
	t.Helper()
	all := testkit.Value(segments(l.settings.Folder))(t)
	for _, s := range all {
		if passingBy(l.settings.Folder, &q).passes(s) {
			n++
		}
	}
	return n
}

// TestPassing holds that a search finds by sums what it finds by reading everything, for whatever is asked, whatever has happened to the files.
func TestPassing(t *testing.T) {
	race.Skip(t)
	l, r := open(t), rand.New(rand.NewPCG(5, 6))
	start := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	var records []Record
	fill := func(segments int) {
		for range segments {
			few := hostile[r.IntN(len(hostile)-2):][:2]
			for range 300 {
				v := anything(r, start.Add(time.Duration(len(records))*time.Millisecond))
				v.Owner, v.Sender, v.Recipient, v.Helo, v.Entry, v.Reason = "", few[r.IntN(2)], few[r.IntN(2)], "", few[r.IntN(2)], few[r.IntN(2)]
				if r.IntN(3) == 0 {
					who := int(300 * r.Float64() * r.Float64())
					v.Sender, v.Recipient = fmt.Sprintf("Some.%d@D%d.example", who, who%50), fmt.Sprintf("Ünder.%d@Here.example", who)
					v.Client, v.Ref = netip.AddrFrom4([4]byte{192, 0, byte(who >> 8), byte(who)}), fmt.Sprintf("ref%d", who)
				}
				l.Add(v)
				records = append(records, v)
			}
			testkit.Must(t, l.Flush())
			finish(l)
		}
	}
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	address := func() string {
		who := r.IntN(300)
		return pick("", "", "", pick(hostile...), fmt.Sprintf("sOme.%d@d%d.example", who, who%50), fmt.Sprintf("ünder.%d@here.example", who), fmt.Sprintf("@d%d.example", r.IntN(60)), "ſome.3@d3.example")
	}
	passed := 0
	compare := func(when string) {
		t.Helper()
		copied := t.TempDir() // without sums
		for _, s := range l.older {
			testkit.Write(t, segmentPath(copied, s.number), testkit.Read(t, s.path))
		}
		for range 150 {
			q := Query{Sender: address(), Recipient: address(), Text: pick("", "", "", address(), "ome.2", "me.299", "UNDER.", "ünder.7", "192.0.0.7", "\u202e", "\ufffd", "nobody", "f12"),
				Door: pick("", "", "smtp", "dns"), Outcome: pick("", "", Mail, "refuse", "defer"), List: pick("", "", "", "own", "none"), Ref: pick("", "", "", "", "REF7", "k1", "ref299"),
				Entry: pick("", "", "", pick(hostile...)), Domain: pick("", "", "", "D7.example", "<>"), Oldest: r.IntN(2) == 0, Limit: 1 + r.IntN(100)}
			switch r.IntN(8) {
			case 0:
				q.Client = netip.MustParsePrefix("192.0.0.7/32")
			case 1:
				q.Client = netip.MustParsePrefix("192.0.1.0/24")
			case 2:
				q.Client = netip.MustParsePrefix("2001:db8::1/128")
			case 3:
				q.Since = start.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			case 4:
				q.Until = start.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			passed += passedBy(t, l, q)
			got := walk(t, q, func(q Query) (Found, error) { return l.Search(t.Context(), q) })
			want := walk(t, q, func(q Query) (Found, error) { return Search(t.Context(), copied, q) })
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, %+v: %d, want %d", when, q, len(got), len(want))
			}
			top := TopQuery{Query: q, By: pick(Groups()...)}
			count, err := Most(t.Context(), l.settings.Folder, top)
			if all, failed := Most(t.Context(), copied, top); err != nil || failed != nil || !reflect.DeepEqual(count, all) {
				t.Fatalf("%s, %+v: %+v, want %+v, %v, %v", when, q, count, all, err, failed)
			}
		}
	}
	made := func() {
		t.Helper()
		testkit.Must(t, l.sumSegments(t.Context()))
	}
	fill(8)
	made()
	compare("with sums")
	testkit.AtLeast(t, "passed over, of 1,200", passed, 1000)
	files, _ := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix))
	for i, path := range files {
		text := testkit.Read(t, path)
		text[[]int{3, 30, 60, 100, len(text) / 3, len(text) / 2, len(text) - 100, len(text) - 1}[i%8]] ^= 0xff
		testkit.Write(t, path, text[:len(text)-i%2])
	}
	compare("damaged")
	for _, path := range files {
		os.Remove(path)
	}
	made()
	testkit.Value(l.Forget(t.Context(), func(r *Record) bool { return strings.HasPrefix(r.Sender, "Some.7@") }))(t)
	compare("forgotten")
	made()
	compare("made anew")
	testkit.Write(t, filepath.Join(l.settings.Folder, seedName), []byte("12345678"))
	made()
	compare("another seed")
}

// TestForgottenIsNotGuessed: of who has been forgotten nothing is left in the sums that were made anew.
func TestForgottenIsNotGuessed(t *testing.T) {
	l := open(t)
	for i := range 100 {
		l.Add(clear(i))
	}
	gone := clear(1)
	gone.Sender = "jane.q@elsewhere.example"
	l.Add(gone)
	testkit.Must(t, l.Flush())
	finish(l)
	for _, q := range []Query{{Text: "jane.q@"}, {Sender: gone.Sender}, {Sender: "elsewhere.example"}} {
		testkit.Must(t, l.sumSegments(t.Context()))
		testkit.Value(l.Forget(t.Context(), func(r *Record) bool { return r.Sender == gone.Sender }))(t)
		if files, _ := filepath.Glob(filepath.Join(l.settings.Folder, "*"+sumsSuffix)); q.Text != "" && len(files) != 0 {
			t.Error("sums with the forgotten")
		}
		testkit.Must(t, l.sumSegments(t.Context()))
		testkit.Equal(t, fmt.Sprintf("%+v: perhaps there", q), passedBy(t, l, q), 1)
	}
}

// A segment with more facets than sums have room for is counted once, and not at each turn; what is asked of it is right.
func TestCrowdedSums(t *testing.T) {
	l := open(t)
	start := time.Now().Add(-time.Hour)
	for i := range mostFacets + 10 {
		v := blocked(i)
		v.Time, v.List = start, fmt.Sprint("list", i)
		if l.Add(v); i%1000 == 999 {
			testkit.Must(t, l.Flush())
		}
	}
	testkit.Must(t, l.Flush())
	l.writing.Lock()
	l.finish()
	s := l.older[0]
	l.writing.Unlock()
	seed := testkit.Value(seedOf(l.settings.Folder, true))(t)
	for _, want := range []bool{true, false} {
		testkit.MustEqual(t, "made", testkit.Value(l.sumSegment(s, seed))(t), want)
	}
	top := testkit.Value(l.Most(t.Context(), TopQuery{Query: Query{Limit: 3, List: "list77"}, By: "sender"}))(t)
	testkit.Equal(t, "decisions", top.Decisions, 1)
	found := testkit.Value(l.Search(t.Context(), Query{List: "list77"}))(t)
	testkit.Equal(t, "found", len(found.Records), 1)
	passed := 0
	for i := range 20 { // sums of so many facets take one text or another for one that they have
		passed += passedBy(t, l, Query{Text: fmt.Sprintf("nobody%d", i)})
	}
	testkit.AtLeast(t, "passed over", passed, 15)
}

// TestGramsFit: after grams are shortened they still find every text that was added, and seldom one that was not.
func TestGramsFit(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, 100, 20_000} {
		g := make(grams, mostGrams)
		var texts []string
		for range n {
			texts = append(texts, strconv.FormatUint(r.Uint64(), 36)+"@there.example")
			g.add(texts[len(texts)-1], 77)
		}
		g = g.fitting()
		if slices.ContainsFunc(texts, func(text string) bool { return !g.may(text[3:], 77) }) {
			t.Fatalf("a text of %d is not there", n)
		}
		there := 0
		for range 1000 {
			if g.may(strconv.FormatUint(r.Uint64()>>24, 36), 77) {
				there++
			}
		}
		t.Logf("%d texts: %d octets, %d of 1,000 others are there", n, len(g), there)
		if there > 20 || n == 0 && len(g) != 8 {
			t.Errorf("%d texts: %d octets, %d of 1,000 others are there", n, len(g), there)
		}
	}
}

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
	race.Skip(t)
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
	testkit.Equal(t, "an error", l.sumSegments(t.Context()) != nil, true)
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
