package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// naiveLines is the model of lineReader: the whole text at once.
func naiveLines(text string, eol byte) []line {
	var lines []line
	for text != "" {
		var one string
		one, text, _ = strings.Cut(text, string(eol))
		if eol == '\n' {
			one = strings.TrimSuffix(one, "\r")
		}
		l := line{number: len(lines) + 1, text: one, long: len(one) > maxLine}
		if l.long {
			l.text = one[:maxText]
		}
		lines = append(lines, l)
	}
	return lines
}

// ragged reads pieces of random size, now and then none, and may give the last
// one together with the end.
type ragged struct {
	text string
	rng  *rand.Rand
	end  error
}

func (r *ragged) Read(p []byte) (int, error) {
	n := min(len(p), len(r.text), r.rng.IntN(r.rng.IntN(200_000)+1))
	copy(p, r.text[:n])
	r.text = r.text[n:]
	if r.text == "" && (n == 0 || r.rng.IntN(2) == 0) {
		return n, r.end
	}
	return n, nil
}

func readLines(r io.Reader, eol byte) ([]line, error) {
	lr := newLineReader(r, eol)
	var lines []line
	for {
		l, ok := lr.next()
		if !ok {
			return lines, lr.err
		}
		lines = append(lines, l)
	}
}

func randomText(rng *rand.Rand) string {
	var b strings.Builder
	for range rng.IntN(40) {
		switch n := rng.IntN(20); {
		case n == 0:
			b.WriteString(strings.Repeat("x", maxLine-2+rng.IntN(5)))
		case n == 1:
			b.WriteString(strings.Repeat("y", blockSize-2+rng.IntN(5)))
		case n == 2:
			b.WriteString(strings.Repeat("z", rng.IntN(3*blockSize)))
		default:
			b.WriteString(strings.Repeat("ab", rng.IntN(40)))
		}
		b.WriteString([]string{"\n", "\n", "\r\n", "\r", "\n\n", "\r\r\n", ""}[rng.IntN(7)])
	}
	return b.String()
}

func TestLinesAgreeWithWholeFile(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 0))
		text := randomText(rng)
		eol := "\n\r"[rng.IntN(2)]
		want := naiveLines(text, eol)
		got, err := readLines(&ragged{text, rng, io.EOF}, eol)
		if err != io.EOF || len(got) != len(want) {
			t.Fatalf("seed %d: %d lines, %v; want %d", seed, len(got), err, len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("seed %d, line %d: got %d (%d octets, long %v), want %d (%d octets, long %v)", seed, i+1,
					got[i].number, len(got[i].text), got[i].long, want[i].number, len(want[i].text), want[i].long)
			}
		}
	}
}

func TestLinesEndWithTheReadersError(t *testing.T) {
	torn := errors.New("torn")
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		if _, err := readLines(&ragged{randomText(rng), rng, torn}, '\n'); err != torn {
			t.Fatalf("seed %d: %v, want %v", seed, err, torn)
		}
	}
}

var manyX = strings.Repeat("x", 1<<20)

// endless is a file of one line: n octets after head, then tail. It can be
// rewound, as a file can, and is nowhere in memory.
type endless struct {
	head, tail string
	n, at      int64
}

func (e *endless) size() int64 { return int64(len(e.head)) + e.n + int64(len(e.tail)) }

func (e *endless) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errors.New("not a test's way to seek")
	}
	e.at = 0
	return 0, nil
}

func (e *endless) Read(p []byte) (int, error) {
	if e.at == e.size() {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && e.at < e.size() {
		switch from := e.at - int64(len(e.head)); {
		case from < 0:
			k := copy(p[n:], e.head[e.at:])
			n, e.at = n+k, e.at+int64(k)
		case from < e.n:
			k := int(min(int64(len(p)-n), e.n-from))
			k = copy(p[n:n+k], manyX)
			n, e.at = n+k, e.at+int64(k)
		default:
			k := copy(p[n:], e.tail[from-e.n:])
			n, e.at = n+k, e.at+int64(k)
		}
	}
	return n, nil
}

// TestMemoryIsBounded reads a GiB that has no line end, or none where the format
// would need one, and looks at what was allocated in all.
func TestMemoryIsBounded(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	const limit = 16 << 20
	for _, tt := range []struct {
		name, format, head, tail string
		want                     string // of Summary.Why, or the last item
	}{
		{"one line", "plain", "a.test\n", "\nb.test\n", "domain b.test"},
		{"one comment", "hosts", "#", "\nb.test", "domain b.test"},
		{"one logical line", "postfix", "a.test REJECT\n ", "\nb.test OK\n", "domain b.test"},
		{"open quote", "csv", "a.test,\"", "\nb.test,\n", "domain b.test"},
		{"one directive", "spamassassin", "unblocklist_from ", "\nblocklist_from *@b.test\n", "domain b.test"},
		{"one template", "rbldnsd", "$1 ", "\nb.test $1\n", "domain b.test"},
		{"open parenthesis", "rpz", "a.test TXT (\n", "\nb.test CNAME .\n", "domain b.test"},
		{"one network", "drop", "192.0.2.0/24 ; ", "\n198.51.100.0/24\n", "cidr 198.51.100.0/24"},
		{"one value", "lsearch", "a.test: ", "\nb.test\n", "domain b.test"},
		{"one string", "json", `["`, `"]`, "json: "},
		{"guess", "auto", "a.test\n", "\nb.test\n", "domain b.test"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := &endless{head: tt.head, tail: tt.tail, n: size}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			last := ""
			src := &source{ctx: context.Background(), file: file, size: file.size()}
			sum, err := read(src, nil, Settings{Format: tt.format}, func(it *Item) error {
				last = it.Kind.String() + " " + it.Name()
				return nil
			})
			if sum, err = finish(sum, "x", err); err != nil {
				last = sum.Why
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > limit {
				t.Errorf("%d octets allocated, want at most %d", got, limit)
			}
			testkit.Begins(t, "why", last, tt.want)
		})
	}
}

func TestReadErrorOfTheDiskRefusesTheFile(t *testing.T) {
	src := &source{ctx: context.Background(), size: 100}
	src.file = struct {
		io.Reader
		io.Seeker
	}{io.MultiReader(strings.NewReader("a.test\nb.test\n"), iotest.ErrReader(errors.New("input/output error"))), &endless{}}
	_, err := read(src, nil, Settings{Format: "plain"}, func(*Item) error { return nil })
	fe, ok := errors.AsType[*FileError](err)
	if !ok || fe.Class != Truncated || fe.Err.Error() != "read at octet 14: input/output error" {
		t.Errorf("%v", err)
	}
}

// TestRangeIsCoveredOnce holds rangeNets against counting, in the last 12 bits.
func TestRangeIsCoveredOnce(t *testing.T) {
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}) }
	rng := rand.New(rand.NewPCG(1, 0))
	for range 2000 {
		from := rng.IntN(4096)
		to := from + rng.IntN(4096-from)
		covered := map[netip.Addr]int{}
		nets := rangeNets(at(from), at(to))
		for _, n := range nets {
			testkit.MustEqual(t, fmt.Sprintf("%d-%d: has host bits", from, to), n, n.Masked())
			for a := n.Addr(); n.Contains(a); a = a.Next() {
				covered[a]++
			}
		}
		for i := from; i <= to; i++ {
			if covered[at(i)] != 1 {
				t.Fatalf("%d-%d: %v is covered %d times by %v", from, to, at(i), covered[at(i)], nets)
			}
		}
		if len(covered) != to-from+1 || len(nets) > 24 {
			t.Fatalf("%d-%d: %d addresses in %v", from, to, len(covered), nets)
		}
	}
}

// A summary counts the refused lines by class and shows the first ten, also of a file that several
// workers read.
func TestSummaryTellsOfRefusedLines(t *testing.T) {
	var text strings.Builder
	for i := 1; i <= 30_000; i++ {
		switch {
		case i%1000 == 0:
			fmt.Fprintf(&text, "no entry %d\n", i)
		case i == 4321:
			text.WriteString("a..test\n")
		case i%10 == 0:
			text.WriteString("x*y@bulk.test*\n")
		default:
			fmt.Fprintf(&text, "d%d.test\n", i)
		}
	}
	path := testkit.File(t, "list.txt", text.String())
	for _, workers := range []int{1, 2, 5} {
		sum := testkit.Value(ReadBlocks(t.Context(), path, Settings{Format: "plain"}, workers, func(int, *Item) error { return nil }))(t)
		d := sum.Dropped
		want := []ClassCount{{Syntax, 31}, {Unsupported, 2970}}
		if !reflect.DeepEqual(d.Classes, want) || d.Total() != sum.Errors || d.Count(Syntax) != 31 || d.Count(IDNA) != 0 {
			t.Errorf("%d workers: %v of %d refused lines, want %v", workers, d.Classes, sum.Errors, want)
		}
		if got, want := d.String(), "2970 unsupported, 31 syntax"; got != want {
			t.Errorf("%d workers: %q, want %q", workers, got, want)
		}
		var lines []int
		for _, l := range d.First {
			if l.Class != Syntax || l.Message == "" {
				t.Errorf("%d workers: %+v, want a syntax error: patterns nobody declared give way", workers, l)
			}
			lines = append(lines, l.Line)
		}
		if want := []int{1000, 2000, 3000, 4000, 4321, 5000, 6000, 7000, 8000, 9000}; !reflect.DeepEqual(lines, want) {
			t.Errorf("%d workers: lines %v, want %v", workers, lines, want)
		}
		testkit.Equal(t, fmt.Sprintf("%d workers: text", workers), d.First[4].Text, "a..test")
	}
}

func TestRefusedLinesAreShownInOrder(t *testing.T) {
	path := testkit.File(t, "list.txt", "ok.test\n*x.test\nno entry\n~x\n"+strings.Repeat("ä", 300)+" ß\n")
	sum := testkit.Value(ReadFile(t.Context(), path, Settings{Format: "plain"}, func(*Item) error { return nil }))(t)
	var got []string
	for _, l := range sum.Dropped.First {
		got = append(got, fmt.Sprintf("%d %s", l.Line, l.Class))
	}
	if want := []string{"2 unsupported", "3 syntax", "4 unsupported", "5 syntax"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := sum.Dropped.First[3].Text; text != strings.Repeat("ä", 60) {
		t.Errorf("a long line is shown as %d octets: %q", len(text), text)
	}
}
