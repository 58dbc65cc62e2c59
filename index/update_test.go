package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// published builds and publishes an index of sources, with its cache.
func published(t testing.TB, path string, sources []Source, hashes ...digest.Algorithm) *Index {
	t.Helper()
	d := built(t, path, sources, Options{Cache: path + CacheSuffix, Workers: 2, Hashes: digest.SetOf(hashes...)})
	publish(t, d)
	return d.Index()
}

// editable is a list whose lines are edited at random.
type editable struct {
	source Source
	lines  []string
}

func (e *editable) write(t testing.TB) {
	t.Helper()
	temp := e.source.Path + ".new"
	testkit.Write(t, temp, strings.Join(e.lines, "\n")+"\n")
	testkit.Must(t, os.Rename(temp, e.source.Path))
}

// line is a line of every kind and scope, often one that is there already.
func (e *editable) line(rng *rand.Rand) string {
	if len(e.lines) > 0 && rng.IntN(4) == 0 {
		return e.lines[rng.IntN(len(e.lines))]
	}
	var text string
	switch rng.IntN(9) {
	default:
		text = randomDomain(rng)
	case 0:
		text = randomSender(rng)
	case 1:
		text = testLocals[rng.IntN(2)] + "@"
	case 2:
		text = "." + randomDomain(rng)
	case 3:
		text = fmt.Sprintf("198.51.%d.0/%d", rng.IntN(4), 24+rng.IntN(3))
	case 4:
		text = fmt.Sprintf("2001:db8::%x", rng.IntN(8))
	case 5:
		text = "# a comment"
	case 6:
		text = ""
	}
	if e.source.Settings.Format == "hosts" { // several entries a line
		return strings.Join([]string{"0.0.0.0", randomName(rng), randomName(rng), randomName(rng)}[:2+rng.IntN(3)], " ")
	}
	if rng.IntN(6) == 0 && text != "" {
		text = "!" + text
	}
	if rng.IntN(3) == 0 && text != "" {
		text += fmt.Sprintf(" # reason %d", rng.IntN(5))
	}
	return text
}

// randomName is a domain as a file of hosts has it.
func randomName(rng *rand.Rand) string {
	return testLabels[rng.IntN(len(testLabels))] + "." + testLabels[rng.IntN(len(testLabels))] + ".test"
}

func (e *editable) edit(rng *rand.Rand) {
	n := len(e.lines)
	at := rng.IntN(n + 1)
	switch to := rng.IntN(n + 1); {
	case rng.IntN(3) == 0 || n < 2:
		e.lines = slices.Insert(e.lines, at, e.line(rng))
	case rng.IntN(4) == 0: // a block of lines
		var block []string
		for range rng.IntN(60) {
			block = append(block, e.line(rng))
		}
		e.lines = slices.Insert(e.lines, at, block...)
	case rng.IntN(4) == 0:
		from, to := min(at, to), max(at, to)
		e.lines = slices.Delete(e.lines, from, min(to, from+60))
	case at == n || to == n:
		e.lines = append(e.lines, e.lines[rng.IntN(n)])
	case rng.IntN(3) == 0:
		e.lines[at], e.lines[to] = e.lines[to], e.lines[at]
	case rng.IntN(2) == 0:
		e.lines[at] = e.line(rng)
	default:
		e.lines = slices.Delete(e.lines, at, at+1)
	}
}

// answers are what an index says of many senders, clients and domains.
type answers struct {
	table    []ListInfo
	keys     uint64
	entries  uint64
	worth    []ListWorth
	overlaps []Overlap
	all      []Entry
	matches  map[string][]Match
	digests  uint64
	hashed   map[string]string // digests of senders and the addresses that they are of
}

func answersOf(t testing.TB, ix *Index, seed uint64) answers {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	a := answers{table: ix.Lists(), worth: ix.Worth(), overlaps: ix.Overlaps(), matches: map[string][]Match{}, digests: ix.Digests(), hashed: map[string]string{}}
	a.keys, a.entries = ix.Counts()
	for e, err := range ix.Entries(t.Context(), nil) {
		testkit.Must(t, err)
		a.all = append(a.all, e)
	}
	checkLines(t, ix)
	slices.SortStableFunc(a.all, func(x, y Entry) int { // of one line the walk has any order
		if x.Row != y.Row || x.Item.Line != y.Item.Line {
			return 0
		}
		return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
	now := time.Now()
	var batch []addr.Addr
	for n := range 250 {
		text := randomSender(rng)
		if n >= 200 {
			text = "x@" + randomName(rng)
		}
		s := sender(t, text)
		matches, err := ix.Lookup(nil, s, now)
		testkit.Must(t, err)
		a.matches[s.String()] = matches
		for text := range digest.Texts(s.String()) {
			for h := range ix.Hashes().All() {
				address, _, err := ix.AddressOf(digest.Of(h, text))
				testkit.Must(t, err)
				a.hashed[fmt.Sprint(h, text)] = address.String()
			}
		}
		batch = append(batch, s)
		domain := domainKey(t, s.Domain())
		a.matches[domain.Text] = testkit.Value(ix.LookupDomain(nil, domain, now))(t)
	}
	var b Batch
	ix.LookupBatch(&b, batch, now)
	for i, s := range batch {
		if matches, err := b.Matches(i); err != nil || !slices.Equal(matches, a.matches[s.String()]) {
			t.Fatalf("LookupBatch(%s) = %v, %v, Lookup %v", s, matches, err, a.matches[s.String()])
		}
	}
	for i := range 64 {
		for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(i % 5), byte(i * 4)}), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i%10))} {
			matches := testkit.Value(ix.LookupClient(nil, ip, now))(t)
			a.matches[ip.String()] = matches
		}
	}
	return a
}

// An update says what a build of the same files says, in every respect.
func TestUpdateSaysWhatABuildSays(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() || race.Enabled {
		seeds = 3
	}
	done := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		folder := t.TempDir()
		var files []*editable
		var sources []Source
		for i := range 1 + rng.IntN(5) {
			name := fmt.Sprintf("list%d", i/2)
			e := &editable{source: plain(name, filepath.Join(folder, fmt.Sprintf("%d.txt", i)))}
			e.source.Settings.Reason = []string{"", "listed"}[rng.IntN(2)]
			e.lines = []string{"bulk.test", "mx.bulk.test", "198.51.0.0/24"}
			if rng.IntN(3) == 0 {
				e.source.Settings.Format, e.lines = "hosts", []string{"0.0.0.0 bulk.test mx.bulk.test"}
			}
			for range rng.IntN(2000) {
				e.lines = append(e.lines, e.line(rng))
			}
			e.write(t)
			files, sources = append(files, e), append(sources, e.source)
		}
		var hashes []digest.Algorithm
		if seed%3 > 0 {
			hashes = []digest.Algorithm{digest.SHA1, digest.SHA256}
		}
		path := filepath.Join(folder, "base.bdx")
		ix := published(t, path, sources, hashes...)
		if seed%2 == 0 {
			testkit.Must(t, ix.Promote(t.Context()))
		}
		for round := range 8 {
			for range 1 + rng.IntN(8) {
				files[rng.IntN(len(files))].edit(rng)
			}
			for _, e := range files {
				e.write(t)
			}
			updated, report, err := ix.Update(t.Context(), sources, Options{Cache: path + CacheSuffix, Workers: 1 + rng.IntN(3), Hashes: digest.SetOf(hashes...)})
			if err != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
			if len(report.Notes) > 0 || updated.Generation() == ix.Generation() {
				t.Errorf("report %+v of generation %s", report, updated.Generation())
			}
			done += report.Keys
			fresh := published(t, filepath.Join(folder, "fresh.bdx"), sources, hashes...)
			got, want := answersOf(t, updated, seed), answersOf(t, fresh, seed)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, round %d: %s", seed, round, differ(got, want))
			}
			testkit.Must(t, updated.Verify(t.Context()))
			if rng.IntN(3) == 0 {
				testkit.Must(t, updated.Promote(t.Context()))
			}
			ix = updated
		}
	}
	testkit.AtLeast(t, "keys that were in an overlay", done, 1)
}

// differ names the first thing that differs.
func differ(got, want answers) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := fmt.Sprintf("%+v", g.Field(i)), fmt.Sprintf("%+v", w.Field(i)); a != b {
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			from := max(0, at-200)
			return fmt.Sprintf("%s differ:\n…%.400s\nwant\n…%.400s", g.Type().Field(i).Name, a[from:], b[from:])
		}
	}
	return "kinds of nothing differ"
}

func TestWhatIsNoSmallChange(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		name   string
		change func(s []Source, write func(i int, text string)) []Source
		want   string
	}{
		{"another source", func(s []Source, write func(int, string)) []Source { return s[:1] }, "1 sources instead of 2"},
		{"other settings", func(s []Source, write func(int, string)) []Source {
			s[1].Settings.Subdomains = &yes
			return s
		}, "is read another way"},
		{"a source is refused", func(s []Source, write func(int, string)) []Source {
			write(0, "<html><body>404</body></html>\n")
			return s
		}, "html"},
		{"a source is missing", func(s []Source, write func(int, string)) []Source {
			os.Remove(s[0].Path)
			return s
		}, "missing"},
		{"patterns", func(s []Source, write func(int, string)) []Source {
			write(1, "x*@shop.test\ny*@shop.test\n")
			return s
		}, "patterns have changed: y*@shop.test"},
		{"a self-test fails", func(s []Source, write func(int, string)) []Source {
			write(0, "a.test\n#? pass <> x@a.test\n")
			return s
		}, "shall pass"},
		{"too many lines", func(s []Source, write func(int, string)) []Source {
			var b strings.Builder
			for i := range 2*maxOverlayKeys + 1 {
				fmt.Fprintf(&b, "d%d.test\n", i)
			}
			write(0, b.String())
			return s
		}, "more than 200000 entries differ"},
		{"too many keys", func(s []Source, write func(int, string)) []Source {
			var b strings.Builder
			for i := range maxOverlayKeys + 1 {
				fmt.Fprintf(&b, "d%d.test\n", i)
			}
			write(0, b.String())
			return s
		}, "keys have changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := plain("a", testkit.File(t, "a.txt", "a.test\nb.test\n")), plain("b", testkit.File(t, "b.txt", "x*@shop.test\n"))
			b.Settings.Patterns = true
			sources := []Source{a, b}
			path := filepath.Join(t.TempDir(), "x.bdx")
			ix := published(t, path, sources)
			sources = tt.change(sources, func(i int, text string) {
				testkit.Write(t, sources[i].Path, text)
			})
			_, _, err := ix.Update(t.Context(), sources, Options{Cache: path + CacheSuffix})
			testkit.IsError(t, "error", err, ErrTooDifferent)
			testkit.Has(t, fmt.Sprint(err), tt.want)
		})
	}
}

func TestUpdateNeedsItsCache(t *testing.T) {
	source := plain("a", testkit.File(t, "a.txt", "a.test\n"))
	path := filepath.Join(t.TempDir(), "x.bdx")
	ix := published(t, path, []Source{source})
	testkit.Write(t, source.Path, "b.test\n")
	for _, name := range segments(t, path+CacheSuffix) {
		testkit.Must(t, os.Truncate(filepath.Join(path+CacheSuffix, name), 30))
	}
	for _, folder := range []string{"", path + CacheSuffix, filepath.Join(t.TempDir(), "none")} {
		if _, _, err := ix.Update(t.Context(), []Source{source}, Options{Cache: folder}); !errors.Is(err, ErrTooDifferent) {
			t.Errorf("cache %q: error %v", folder, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := ix.Update(ctx, []Source{source}, Options{Cache: path + CacheSuffix}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// TestUpdatesLeaveNoSegmentsBehind: a source that changes again and again has two segments, of what was built and of
// what serves. Other sources that have changed are not compared again.
func TestUpdatesLeaveNoSegmentsBehind(t *testing.T) {
	folder := t.TempDir()
	var sources []Source
	write := func(name, text string) {
		temp := filepath.Join(folder, "new")
		testkit.Write(t, temp, text)
		testkit.Must(t, os.Rename(temp, filepath.Join(folder, name)))
	}
	for _, name := range []string{"a.txt", "b.txt"} {
		write(name, "bulk.test\n"+name+".test\n")
		sources = append(sources, plain(name, filepath.Join(folder, name)))
	}
	path := filepath.Join(folder, "base.bdx")
	ix := published(t, path, sources)
	for round := range 5 {
		write("a.txt", fmt.Sprintf("bulk.test\nn%d.test\n", round))
		if round == 0 {
			write("b.txt", "bulk.test\nother.test\n")
		}
		updated, report, err := ix.Update(t.Context(), sources, Options{Cache: path + CacheSuffix})
		testkit.MustGot(err, report.Sources)(t, fmt.Sprintf("round %d", round), nil, 2)
		ix = updated
	}
	if all, _ := filepath.Glob(filepath.Join(path+CacheSuffix, "*.segment")); len(all) != 4 {
		t.Errorf("%d segments, want two for each source: %q", len(all), all)
	}
	write("a.txt", "bulk.test\na.txt.test\n") // as it was built
	updated, report, err := ix.Update(t.Context(), sources, Options{Cache: path + CacheSuffix})
	testkit.MustGot(err, report.Sources)(t, "sources", nil, 1)
	if all, _ := filepath.Glob(filepath.Join(path+CacheSuffix, "*.segment")); len(all) != 3 {
		t.Errorf("%d segments, want three", len(all))
	}
	testkit.Equal(t, "entries of b.txt", updated.Lists()[1].Summary.Entries, 2)
}

// An index with an overlay costs a clear sender no memory.
func TestOverlayAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ix := changed(t)
	now := time.Now()
	clear, gone := sender(t, "x@clear.example"), sender(t, "x@gone.test")
	var b Batch
	all := []addr.Addr{clear, gone}
	ix.LookupBatch(&b, all, now)
	if n := allocations(func() {
		for _, a := range all {
			if matches, err := ix.Lookup(nil, a, now); err != nil || len(matches) > 0 {
				t.Fatal(matches, err)
			}
		}
		ix.LookupBatch(&b, all, now)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// changed is an index from which gone.test went and to which come.test came.
func changed(t testing.TB) *Index {
	t.Helper()
	source := plain("a", testkit.File(t, "a.txt", "stays.test\ngone.test\n"))
	path := filepath.Join(t.TempDir(), "x.bdx")
	ix := published(t, path, []Source{source})
	testkit.Write(t, source.Path, "stays.test\ncome.test\n")
	updated, _, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
	testkit.Must(t, err)
	return updated
}

func TestProbeSeesTheOverlay(t *testing.T) {
	ix := changed(t)
	for text, want := range map[string][2]bool{"stays.test": {true, true}, "gone.test": {true, false}, "come.test": {true, true}} {
		p := testkit.Value(ix.Probe([]addr.Key{domainKey(t, text)}, netip.Addr{}))(t)
		testkit.MustEqual(t, fmt.Sprintf("Probe(%s) = %+v", text, p), p[0].Perhaps, want[0])
		testkit.Equal(t, fmt.Sprintf("Probe(%s) = %+v", text, p), p[0].Listed, want[1])
	}
}

// Every answer is of one generation, whatever is swapped in and collected.
func TestUpdatesUnderReaders(t *testing.T) {
	source := plain("a", filepath.Join(t.TempDir(), "a.txt"))
	write := func(n int) {
		text := fmt.Sprintf("%s# of now\none.test # %d\nmx.one.test # %d\n", strings.Repeat("more.test\n", n), n, n)
		testkit.Write(t, source.Path, text)
	}
	write(0)
	path := filepath.Join(t.TempDir(), "x.bdx")
	var live atomic.Pointer[Index]
	live.Store(published(t, path, []Source{source}))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			a := sender(t, "x@mx.one.test")
			var b Batch
			for {
				select {
				case <-stop:
					return
				default:
				}
				ix := live.Load()
				matches, err := ix.Lookup(nil, a, time.Now())
				if err != nil || len(matches) != 2 || matches[0].Reason != matches[1].Reason || matches[0].Line != matches[1].Line+1 {
					t.Errorf("Lookup = %v, %v", matches, err)
					return
				}
				ix.LookupBatch(&b, []addr.Addr{a}, time.Now())
				if batch, err := b.Matches(0); err != nil || fmt.Sprint(batch) != fmt.Sprint(matches) {
					t.Errorf("LookupBatch = %v, %v, want %v", batch, err, matches)
					return
				}
			}
		})
	}
	for n := range 60 {
		write(n % 20)
		ix := live.Load()
		updated, _, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
		testkit.Must(t, err)
		if n%7 == 0 {
			testkit.Must(t, updated.Promote(t.Context()))
		}
		if n%20 == 19 {
			updated = published(t, path, []Source{source})
		}
		live.Store(updated)
		runtime.GC()
	}
	close(stop)
	readers.Wait()
}

// Which lines were refused is known alike after a parse, from a segment, after an update, and of an
// index file that is opened again.
func TestRefusedLinesAreToldFromAnySource(t *testing.T) {
	list := longList(t, "a")
	bad := ""
	for i := range 12 {
		bad += fmt.Sprintf("no entry %d\n", i)
	}
	rewrite(t, list, "a.test\n"+bad+"*glob.test\n")
	other := longList(t, "b")
	sources := []Source{list, other}
	old(t, sources)
	o := Options{Cache: filepath.Join(t.TempDir(), "cache")}
	path := filepath.Join(t.TempDir(), "lists.bdx")

	var want lists.Dropped
	for round, how := range []string{"parsed", "from a segment"} {
		d := built(t, path, sources, o)
		publish(t, d)
		opened := opened(t, path)
		if want.Classes == nil {
			want = d.Report.Lists[0].Summary.Dropped
			if want.Count(lists.Syntax) != 12 || want.Count(lists.Unsupported) != 1 || len(want.First) != 10 || want.First[9].Line != 6011 {
				t.Fatalf("refused lines %+v", want)
			}
		}
		testkit.Equal(t, fmt.Sprintf("%s: sources from segments", how), d.Report.Cached, 2*round)
		for _, table := range [][]ListInfo{d.Report.Lists, d.Index().Lists(), opened.Lists()} {
			testkit.EqualDeep(t, how, table[0].Summary.Dropped, want)
			if got := table[1].Summary.Dropped; got.Total() != 0 || got.First != nil {
				t.Errorf("%s: a sound list with %+v", how, got)
			}
		}
	}
	ix := opened(t, path)
	rewrite(t, list, "a.test\nb..test\n"+bad)
	updated, _, err := ix.Update(t.Context(), sources, o)
	testkit.Must(t, err)
	got := updated.Lists()[0].Summary.Dropped
	testkit.Got(got.Count(lists.Syntax), got.Count(lists.Unsupported), testkit.At(got.First, 0).Text)(t, "updated", 13, 0, "b..test")
}

// BenchmarkUpdate is the time from a changed line in one of ten lists of a million
// addresses to an index that knows it.
func BenchmarkUpdate(b *testing.B) {
	folder := b.TempDir()
	var sources []Source
	for i := range 10 {
		var text bytes.Buffer
		for n := range 1_000_000 {
			fmt.Fprintf(&text, "user%d@list%d-%d.example.net\n", n*7919%1_000_003, i, n%50_000)
		}
		name := fmt.Sprintf("list%d", i)
		path := testkit.Write(b, filepath.Join(folder, name), text.Bytes())
		sources = append(sources, plain(name, path))
	}
	old(b, sources)
	path := filepath.Join(folder, "x.bdx")
	ix := published(b, path, sources)
	last := sources[9].Path
	text := testkit.Read(b, last)
	var used time.Duration
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		change := fmt.Sprintf("changed%d@bulk.test\n", n)
		at := bytes.IndexByte(text[len(text)/2:], '\n') + 1 + len(text)/2
		edited := append(append(append([]byte(nil), text[:at]...), change...), text[at:]...)
		testkit.Write(b, last, edited)
		began := testkit.CPUTime(b)
		b.StartTimer()
		updated, _, err := ix.Update(b.Context(), sources, Options{Cache: path + CacheSuffix})
		testkit.Must(b, err)
		b.StopTimer()
		used += testkit.CPUTime(b) - began
		if matches, err := updated.Lookup(nil, sender(b, change[:len(change)-1]), testTime); err != nil || len(matches) != 1 {
			b.Fatal(matches, err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}
