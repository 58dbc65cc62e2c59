package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// somebody cuts the file off under its mapping: the process must live, the
// verdict be an error, and the same index go on with what is still there.
func TestFileCutOffWhileItServes(t *testing.T) {
	const n = 20_000
	path := filepath.Join(t.TempDir(), "x.bdx")
	d := draftOf(t, path, seeded(1), build.Hooks{}, rowsNamed(1), manyDomains(n))
	publish(t, d)
	ix := opened(t, path)
	pages := ix.file.Sections[format.SecPages]
	// At the end of a page: the kernel zeroes the rest of a page that is cut, and whoever has
	// just checked that one's sum finds nothing in it (docs/index-format.md: a served file
	// is not written to).
	cutAt := pages.Offset + pages.Length/2/format.PageSize*format.PageSize

	var wg sync.WaitGroup
	var good, failed atomic.Int64
	stop := make(chan struct{})
	for reader := range 4 {
		wg.Go(func() {
			for i := reader; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := addr.Key{Text: manyName(i % n), Kind: addr.Domain, Labels: 2}
				got, err := ix.lookup(nil, []addr.Key{key}, 0)
				switch {
				case err == nil && len(got) == 1 && got[0].Line == i%n+1:
					good.Add(1)
				case errors.Is(err, ErrRead) && len(got) == 0 && strings.Contains(err.Error(), path) &&
					strings.Contains(err.Error(), "offset"):
					failed.Add(1)
				default:
					t.Errorf("lookup(%s) = %v, %v", key.Text, got, err)
					return
				}
			}
		})
	}
	testkit.Eventually(t, "answers before the cut", func() bool { return good.Load() > 1000 })
	testkit.Must(t, os.Truncate(path, int64(cutAt)))
	testkit.Eventually(t, "errors after the cut", func() bool { return failed.Load() > 1000 })
	before := good.Load()
	testkit.Eventually(t, "answers after the cut", func() bool { return good.Load() > before+1000 })
	close(stop)
	wg.Wait()

	got := testkit.Value(ix.Lookup(nil, sender(t, "someone@clear.example.org"), testTime))(t)
	testkit.Equal(t, fmt.Sprintf("a clear sender needs the filter alone: %v", got), len(got), 0)
	testkit.IsError(t, "Verify", ix.Verify(t.Context()), ErrRead)
	testkit.Equal(t, "the goroutine was left with panics on faults", debug.SetPanicOnFault(false), false)
}

func TestFileUnlinkedWhileItServes(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), manyDomains(1000))
	testkit.Must(t, os.Remove(ix.mapping.name))
	for i := range 1000 {
		got := testkit.Value(ix.lookup(nil, []addr.Key{{Text: manyName(i), Kind: addr.Domain, Labels: 2}}, 0))(t)
		testkit.MustEqual(t, fmt.Sprintf("lookup = %v", got), len(got), 1)
	}
}

// A panic that is no fault of the mapping must not be taken for one.
func TestOtherPanicsGoOn(t *testing.T) {
	m := mapping{name: "x", data: make([]byte, 10)}
	for name, f := range map[string]func() error{
		"plain":           func() error { panic("other") },
		"nil dereference": func() error { var p *Match; return errors.New(p.Reason) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				testkit.Equal(t, "the panic goes on", recover() != nil, true)
			}()
			_ = m.guarded(f)
		})
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	testkit.Fails(Open(folder))(t, "Open of a folder", ErrCorrupt)
	testkit.Fails(Open(filepath.Join(folder, "none")))(t, "Open of nothing", os.ErrNotExist)
	fifo := filepath.Join(folder, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Skip("no FIFO here: ", err)
	}
	if _, err := Open(fifo); !errors.Is(err, ErrCorrupt) { // and does not hang
		t.Errorf("Open of a FIFO = %v", err)
	}
}

// Generation g lists ten names, each at line g: an answer that mixes two
// generations shows.
func TestSwapUnderReaders(t *testing.T) {
	swaps, files := 1200, make([]string, 20)
	if testing.Short() {
		swaps = 50
	}
	folder := t.TempDir()
	for g := range files {
		files[g] = filepath.Join(folder, fmt.Sprintf("swap%d.bdx", g))
		var entries []listed
		for i := range 10 {
			entries = append(entries, listed{key: domainKey(t, fmt.Sprintf("d%d.test", i)), scope: lists.Tree, line: g + 1, reason: fmt.Sprint(g + 1)})
		}
		publish(t, testkit.Value(tryDraft(t, files[g], Options{}, build.Hooks{}, rowsNamed(1), entries))(t)) // kept by nobody
	}
	generation := func(g int) *Index { return opened(t, files[g%len(files)]) }
	var senders [10]addr.Addr
	for i := range senders {
		senders[i] = sender(t, fmt.Sprintf("x@mx.d%d.test", i))
	}
	before := nameless(t)
	var live atomic.Pointer[Index]
	live.Store(generation(0))

	var wg sync.WaitGroup
	stop := make(chan struct{})
	running := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	var answers atomic.Int64
	for reader := range 8 {
		wg.Go(func() {
			var b Batch
			for running() {
				ix := live.Load()
				line := 0
				ix.LookupBatch(&b, senders[:], testTime)
				for i, a := range senders {
					got, err := b.Matches(i)
					if reader%2 == 0 {
						got, err = ix.Lookup(nil, a, testTime)
					}
					if err != nil || len(got) != 1 || got[0].Reason != fmt.Sprint(got[0].Line) || line > 0 && got[0].Line != line {
						t.Errorf("generation %d: %v, %v", line, got, err)
						return
					}
					line = got[0].Line
				}
				answers.Add(1)
			}
		})
	}
	wg.Go(func() {
		for running() {
			runtime.GC()
		}
	})
	for g := 1; g <= swaps && !t.Failed(); g++ {
		live.Store(generation(g))
		seen := answers.Load()
		if g%2 == 0 { // under its readers; the others are answered from the mapping
			testkit.Must(t, live.Load().Promote(t.Context()))
		}
		if g%10 < 2 { // the others may go before anybody has asked them
			testkit.Eventually(t, "answers of a generation", func() bool { return answers.Load() > seen || t.Failed() })
		}
	}
	close(stop)
	wg.Wait()

	// The filters' copies have no name, and the system shows neighbours as one: what
	// tells them is their size, 2 MiB each, 1,232 MiB when the six hundred that were
	// promoted stay. Go's heap and the stacks of new threads grow by some tens.
	const others = 400 << 20
	current, left := live.Load(), ""
	defer func() {
		if t.Failed() {
			t.Log("left: ", left)
		}
	}()
	testkit.Eventually(t, "old generations to go", func() bool {
		runtime.GC()
		files, open, grown := len(linesWith(t, "/proc/self/maps", folder)), len(openFiles(t, folder)), nameless(t)-before
		left = fmt.Sprintf("%d mappings of files, %d open files, %d MiB without a name", files, open, grown>>20)
		return files <= 1 && open == 0 && grown <= others
	})
	testkit.Value(current.Lookup(nil, senders[0], testTime))(t)
}

// allocations is how often a call of f allocates: the least of some measurements.
// Those count what the whole process does, and what the runtime does for itself comes
// and goes, where what f does is in each of them.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(100, f)
	for range 4 {
		if least > 0 {
			least = min(least, testing.AllocsPerRun(100, f))
		}
	}
	return least
}

func linesWith(t *testing.T, path, text string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skip("mappings cannot be counted on this system: ", err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// nameless is the size of what this process has mapped to write in and no file is
// behind.
func nameless(t *testing.T) (octets int) {
	t.Helper()
	for _, line := range linesWith(t, "/proc/self/maps", " rw-p 00000000 00:00 0") {
		var from, to int
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err == nil && !strings.Contains(line, "[") {
			octets += to - from
		}
	}
	return octets
}

func openFiles(t *testing.T, text string) (names []string) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("open files cannot be counted on this system: ", err)
	}
	for _, f := range files {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(name, text) && !strings.HasSuffix(name, ".lock") {
			names = append(names, name)
		}
	}
	return names
}
