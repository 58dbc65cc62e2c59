package live

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

// childIn is the variable that makes a test of this file a process that adds and
// removes without end in that folder, and prints what was acknowledged.
const childIn = "BLOCKD_TEST_LIVE_CHILD"

// child changes entries after a plan that both sides know by its seed. It prints a
// line before each change and one when it has been acknowledged.
func child(folder string, seed uint64, writers int) error {
	set, err := Open(Settings{Folder: folder, compactFrom: 8})
	if err != nil {
		return err
	}
	go func() { // as Run would, only always
		for {
			if err := set.Tidy(); err != nil {
				fmt.Println("tidy", err)
			}
		}
	}()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n, c := range plan(seed, w) {
				if _, err := set.Apply(c...); err != nil {
					fmt.Println("failed", n, err)
					continue
				}
				fmt.Println("done", w, n)
			}
		})
	}
	all.Wait()
	return nil
}

// plan is what a writer of a child does: batches of changes of few entries, which are its own.
func plan(seed uint64, writer int) func(func(int, []Change) bool) {
	return func(yield func(int, []Change) bool) {
		rng := rand.New(rand.NewPCG(seed, uint64(writer)<<8))
		for n := 0; ; n++ {
			batch := make([]Change, 1+rng.IntN(5))
			for i := range batch {
				batch[i] = Change{Entry: fmt.Sprintf("x%d@w%d.example", rng.IntN(20), writer), Remove: rng.IntN(3) == 0,
					Why: fmt.Sprintf("%d %s", n, strings.Repeat("w", rng.IntN(300)))}
			}
			if !yield(n, batch) {
				return
			}
		}
	}
}

// model is what a plan has come to after its first n batches: entry to reason.
func model(seed uint64, writer, n int) map[string]string {
	all := map[string]string{}
	for i, batch := range plan(seed, writer) {
		if i == n {
			return all
		}
		for _, c := range batch {
			if c.Remove {
				delete(all, c.Entry)
			} else {
				all[c.Entry] = c.Why
			}
		}
	}
	return nil
}

func reasons(s *Set) map[string]string {
	all := map[string]string{}
	for _, e := range held(s) {
		all[e.Text] = e.Why
	}
	return all
}

// A process that the system kills, at any moment of its writing and of folding its journal, has
// lost nothing that it had acknowledged, and has brought nothing back; the batch under way is
// there as a whole or not at all.
func TestKilledAtTwoHundredPoints(t *testing.T) { killed(t, 200, 1) }

// The same with eight writers, whose changes share syncs.
func TestKilledWithEightWriters(t *testing.T) { killed(t, 60, 8) }

func killed(t *testing.T, kills, writers int) {
	race.Skip(t)
	if folder := os.Getenv(childIn); folder != "" {
		var seed uint64
		fmt.Sscan(os.Getenv(childIn+"_SEED"), &seed)
		t.Fatal(child(folder, seed, writers))
	}
	lost, torn, folded, between := 0, 0, 0, 0
	for seed := range uint64(kills) {
		folder := filepath.Join(t.TempDir(), "live")
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), childIn+"="+folder, fmt.Sprintf("%s_SEED=%d", childIn, seed))
		out := testkit.Value(cmd.StdoutPipe())(t)
		testkit.Must(t, cmd.Start())
		// It dies some lines of output after it has begun, and then some microseconds
		// later: within a write, a sync, a rename, or between them.
		rng := rand.New(rand.NewPCG(seed, 1))
		after, all, acknowledged := writers*(1+rng.IntN(60)), 0, make([]int, writers)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var w, n int
			if _, err := fmt.Sscanf(lines.Text(), "done %d %d", &w, &n); err != nil {
				t.Errorf("kill %d: %s", seed, lines.Text())
				continue
			}
			acknowledged[w] = n + 1
			if all++; all == after {
				wait := time.After(time.Duration(rng.IntN(3000)) * time.Microsecond)
				<-wait
				cmd.Process.Signal(unix.SIGKILL)
			}
		}
		cmd.Wait()
		before, err := os.Stat(journalPath(folder))
		if err != nil {
			t.Fatalf("kill %d: %v", seed, err)
		}
		set, err := Open(Settings{Folder: folder})
		if err != nil {
			t.Fatalf("kill %d: %v", seed, err)
		}
		if set.damaged > 0 {
			t.Errorf("kill %d: damaged: %v", seed, set.Problems())
		}
		if set.journal.size < before.Size() {
			torn++
		}
		if base := set.view.Load().base; base != nil {
			folded++
			if text, err := os.ReadFile(journalPath(folder)); err == nil && !strings.Contains(string(text), fmt.Sprintf(`{"n":%d,"op":"after"}`, base.last)) {
				between++
			}
		}
		got := reasons(set)
		for w := range writers {
			own := map[string]string{}
			for text, why := range got {
				if strings.HasSuffix(text, fmt.Sprintf("@w%d.example", w)) {
					own[text] = why
				}
			}
			if !slices.ContainsFunc(states(seed, w, acknowledged[w]), func(want map[string]string) bool { return maps.Equal(own, want) }) {
				t.Errorf("kill %d, writer %d, %d batches acknowledged:\n%v\nwant\n%v", seed, w, acknowledged[w], own, model(seed, w, acknowledged[w]))
				lost++
			}
		}
		set.Close()
	}
	t.Logf("%d kills, %d writers: %d with a torn end, %d with a snapshot, %d of them before its journal; %d lost something or brought something back", kills, writers, torn, folded, between, lost)
}

// states are those that a process may leave which has acknowledged n batches: without the next batch, or with all of it.
func states(seed uint64, writer, n int) []map[string]string {
	return []map[string]string{model(seed, writer, n), model(seed, writer, n+1)}
}

// Where the disk is full a change is refused as a whole and the ones before stay;
// when there is room again it goes on, without a restart.
func TestFullDisk(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	// A limit of file sizes fails a write in the middle, as a full disk does.
	folder := filepath.Join(t.TempDir(), "live")
	set := open(t, Settings{Folder: folder})
	var limit unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
	whole := limit
	limit.Cur = 4000
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	want, refused := map[string]string{}, 0
	for n := range 100 {
		c := Change{Entry: fmt.Sprintf("x%d@bulk.example", n), Why: strings.Repeat("w", n)}
		two := Change{Entry: fmt.Sprintf("y%d@bulk.example", n)}
		_, err := set.Apply(two, c)
		if err != nil {
			refused++
			if len(set.Problems()) == 0 {
				t.Error("a disk that is full is no problem")
			}
			testkit.Equal(t, "a part of what was refused stays", testkit.Value(os.Stat(journalPath(folder)))(t).Size(), set.journal.size)
			continue
		}
		want[c.Entry], want[two.Entry] = c.Why, ""
	}
	if got := reasons(set); !maps.Equal(got, want) || refused == 0 {
		t.Fatalf("%d refused; in force\n%v\nwant\n%v", refused, got, want)
	}
	seen, err := Read(folder)
	if err != nil || !maps.Equal(reasons(seen), want) || seen.damaged > 0 {
		t.Fatalf("in the file: %v, %v", err, reasons(seen))
	}
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &whole))
	apply(t, set, Change{Entry: "room@again.example"})
	if p := set.Problems(); len(p) > 0 {
		t.Errorf("problems remain: %v", p)
	}
	t.Logf("%d refused changes of 100", refused)
}

// TestHandover lets one Set after the other take over, as processes do, while others add entries: by the one that has them,
// and by themselves where for a moment none has. What was acknowledged before a turn covers after it, with the index that is
// made of the entries meanwhile: with the successor, and with the predecessor that follows.
func TestHandover(t *testing.T) {
	const rounds, added = 40, 8 // and so many entries in each
	settings := Settings{Folder: t.TempDir(), compactFrom: 40}
	first := open(t, settings)
	var holder atomic.Pointer[Set]
	holder.Store(first)
	var mu sync.Mutex
	var acknowledged []string
	work := make(chan string, rounds*added)
	var adders sync.WaitGroup
	for range 4 {
		adders.Go(func() {
			for entry := range work {
				if err := addSomehow(settings, &holder, entry); err != nil {
					t.Errorf("%s: %v", entry, err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, entry)
				mu.Unlock()
			}
		})
	}
	base := indexes.Source(t, "l", "bulk.example\n")
	ix := indexes.Build(t, base)
	random := rand.New(rand.NewPCG(1, 2))
	covers := func(what string, set *Set, known []string) {
		for _, entry := range known {
			if covering(t, set, ix, entry) == "" {
				t.Fatalf("%s: %s is lost", what, entry)
			}
		}
	}
	var former []*Set
	for round := range rounds {
		for n := range added {
			work <- fmt.Sprintf("a%d-%d@example.com", round, n)
		}
		if random.IntN(3) > 0 {
			if _, err := holder.Load().Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if random.IntN(3) > 0 {
			ix = indexes.Build(t, base, folded(settings.Folder))
			for _, set := range append(former, holder.Load()) {
				set.Served(ix)
			}
		}
		if random.IntN(3) == 0 {
			testkit.Must(t, holder.Load().Tidy())
		}
		next, err := OpenFollowing(settings)
		testkit.Must(t, err)
		next.Served(ix)
		mu.Lock()
		known := append([]string(nil), acknowledged...)
		mu.Unlock()
		testkit.Must(t, holder.Load().Yield())
		for err = next.Resume(); errors.Is(err, ErrLocked); err = next.Resume() { // somebody adds by itself
		}
		testkit.Must(t, err)
		former = append(former, holder.Swap(next))
		covers(fmt.Sprintf("the successor of round %d", round), next, known)
		if len(former) > 3 {
			former = former[1:]
		}
		for _, set := range former {
			testkit.Must(t, set.Follow())
			covers(fmt.Sprintf("a predecessor in round %d", round), set, known)
		}
	}
	close(work)
	adders.Wait()
	covers("the last", holder.Load(), acknowledged)
	read := testkit.Value(Read(settings.Folder))(t)
	testkit.Equal(t, "entries that are there", read.Len(), len(acknowledged))
}

// addSomehow adds an entry as blockd add does: by itself, or where somebody has the entries by that one.
func addSomehow(settings Settings, holder *atomic.Pointer[Set], entry string) error {
	for {
		alone, err := Open(settings)
		if err == nil {
			_, err = alone.Apply(Change{Entry: entry})
			return errors.Join(err, alone.Close())
		}
		if !errors.Is(err, ErrLocked) {
			return err
		}
		if _, err := holder.Load().Apply(Change{Entry: entry}); !errors.Is(err, ErrYielded) {
			return err
		}
	}
}

// TestYield lets two Sets, as of two processes, take turns at one folder: whoever has it changes entries, by chance, and
// the other follows. Both must always have what a map of the changes has.
func TestYield(t *testing.T) {
	folder := t.TempDir()
	sets := [2]*Set{openAt(t, folder), nil}
	testkit.Must(t, sets[0].Yield())
	sets[1] = openAt(t, folder)
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]lists.Action{}
	for round := range 40 {
		owner, other := sets[(round+1)%2], sets[round%2]
		for range random.IntN(20) {
			entry := fmt.Sprintf("s%d@example.com", random.IntN(30))
			c := Change{Entry: entry, Action: lists.Action(random.IntN(2)), Remove: random.IntN(3) == 0}
			apply(t, owner, c)
			if delete(want, entry); !c.Remove {
				want[entry] = c.Action
			}
			if _, err := other.Apply(c); !errors.Is(err, ErrYielded) {
				t.Fatalf("a change where the entries are not: %v", err)
			}
		}
		if random.IntN(4) == 0 {
			mustFold(t, owner)
		}
		if random.IntN(2) == 0 {
			testkit.Must(t, other.Follow())
			holdsAll(t, other, want)
		}
		if err := other.Resume(); !errors.Is(err, ErrLocked) {
			t.Fatalf("two have the entries: %v", err)
		}
		testkit.Must(t, owner.Yield())
		testkit.Must(t, other.Resume())
		holdsAll(t, other, want)
	}
}

// TestFollowDamaged holds that a journal which cannot be read costs no entry.
func TestFollowDamaged(t *testing.T) {
	folder := t.TempDir()
	s := openAt(t, folder)
	apply(t, s, Change{Entry: "a@example.com"})
	testkit.Must(t, s.Yield())
	testkit.Must(t, os.WriteFile(journalPath(folder), []byte("something else\nand more\n"), 0o600))
	testkit.IsError(t, "Follow", s.Follow(), errNoJournal)
	holdsAll(t, s, map[string]lists.Action{"a@example.com": lists.Block})
}

func openAt(t *testing.T, folder string) *Set {
	return open(t, Settings{Folder: folder, compactFrom: 8})
}

// holdsAll asks s for each address, listed in want or not, and for their number.
func holdsAll(t *testing.T, s *Set, want map[string]lists.Action) {
	t.Helper()
	testkit.MustEqual(t, "entries", s.Len(), len(want))
	ix := indexes.Build(t, indexes.Source(t, "l", "other@example.org\n"))
	for i := range 30 {
		text, says := fmt.Sprintf("s%d@example.com", i), ""
		if action, listed := want[text]; listed {
			says = action.String() + " " + text
		}
		testkit.MustEqual(t, text, covering(t, s, ix, text), says)
	}
}
