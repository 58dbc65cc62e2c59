package mirror

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

var soak = flag.Bool("soak", false, "more changes, and a kill at every step")

// TestMain puts the folders of tests into memory where it can. Each copy syncs its 64 files: on a loaded disk that is
// all that these tests would wait for.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(killAt) == "" { // a process that is killed has the folder of the one that started it
		if folder, err := os.MkdirTemp("/dev/shm", "blockd"); err == nil {
			os.Setenv("TMPDIR", folder)
			defer os.RemoveAll(folder)
		}
	}
	m.Run()
}

// table is a source in memory: rows by their ids, and a log of the entries that have changed.
type table struct {
	name   string
	rows   map[string]Row
	log    []string
	behind int   // the log begins here
	fail   error // of the read, after all rows

	during func()                               // before each row of a full read
	given  func()                               // when all rows were given
	told   func(yield func(Change) error) error // in the place of the changes
}

func (s *table) Fingerprint(context.Context) (string, error) { return s.name, nil }
func (s *table) Wait(ctx context.Context) error              { return ctx.Err() }

func (s *table) All(_ context.Context, yield func(Row) error) (Mark, error) {
	mark := Mark(strconv.Itoa(len(s.log)))
	for _, row := range maps.Clone(s.rows) {
		if s.during != nil {
			s.during()
		}
		if err := yield(row); err != nil {
			return "", err
		}
	}
	if s.given != nil {
		s.given()
	}
	return mark, s.fail
}

func (s *table) Changes(_ context.Context, since Mark, yield func(Change) error) (Mark, error) {
	if s.told != nil {
		return "", s.told(yield)
	}
	from, err := strconv.Atoi(string(since))
	if err != nil || from < s.behind {
		return "", ErrTooOld
	}
	for _, entry := range s.log[from:] {
		c := Change{Entry: entry}
		for _, id := range slices.Sorted(maps.Keys(s.rows)) {
			if s.rows[id].Entry == entry {
				c.Rows = append(c.Rows, s.rows[id])
			}
		}
		if err := yield(c); err != nil {
			return "", err
		}
	}
	return Mark(strconv.Itoa(len(s.log))), s.fail
}

// edit changes a random row.
func (s *table) edit(rng *rand.Rand) {
	id := strconv.Itoa(rng.IntN(300))
	if old, there := s.rows[id]; there {
		s.log = append(s.log, old.Entry)
		delete(s.rows, id)
		if rng.IntN(2) == 0 {
			return
		}
	}
	entry := []string{"user%d@bulk.test", "=n%d.bulk.test", ".n%d.bulk.test", "n%d.bulk.test", "198.51.100.%d", "offers%d@", "b\u00fccher%d.test"}[rng.IntN(7)]
	row := Row{Entry: fmt.Sprintf(entry, rng.IntN(40)), ID: id, Action: []string{"", "block", "allow", "tempfail", "discard"}[rng.IntN(5)]}
	if rng.IntN(3) == 0 {
		row.Reason = fmt.Sprintf("reason\t%d\\", rng.IntN(9))
	}
	if rng.IntN(3) == 0 {
		row.Expires = int64(1 + rng.IntN(1000))
	}
	s.rows[id] = row
	s.log = append(s.log, row.Entry)
}

// lines is what a copy of the table holds, worked out by itself.
func (s *table) lines(t testing.TB) []string {
	t.Helper()
	m := &Mirror{}
	var all []string
	for _, row := range s.rows {
		if line, ok := m.line(nil, &row, &Report{}); ok {
			all = append(all, string(line))
		}
	}
	slices.Sort(all)
	return once(all)
}

// served is what the files of a copy say: as a list reads them, and in the same order as table.lines.
func served(t testing.TB, folder string) []string {
	t.Helper()
	paths := testkit.Value(filepath.Glob(filepath.Join(folder, currentName, "*.ent")))(t)
	testkit.MustEqual(t, "files", len(paths), files)
	var all []string
	for _, path := range paths {
		sum, err := lists.ReadFile(context.Background(), path, lists.Settings{}, func(it *lists.Item) error {
			if it.Kind != lists.Skip {
				line, ok := lists.AppendEntryLine(nil, it)
				testkit.Equal(t, fmt.Sprintf("%+v has a line", it), ok, true)
				all = append(all, string(line))
			}
			return nil
		})
		testkit.MustGot(err, sum.Format)(t, path, nil, "entries")
	}
	slices.Sort(all)
	return all
}

func newTable(seed uint64) (*table, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 46))
	s := &table{name: "one", rows: map[string]Row{}}
	for range 150 {
		s.edit(rng)
	}
	return s, rng
}

// bring brings a copy up to date as its user does.
func bring(ctx context.Context, m *Mirror, s *table) (*Report, error) {
	told, err := m.Follow(ctx, s)
	if errors.Is(err, ErrTooOld) {
		return m.Read(ctx, s)
	}
	return told, err
}

func mustOpen(t testing.TB, folder string) *Mirror {
	t.Helper()
	m := testkit.Value(Open(Options{Folder: folder}))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// TestCopyFollowsTheSource changes a table at random, and everything that may happen to a copy happens.
func TestCopyFollowsTheSource(t *testing.T) {
	t.Parallel()
	tables := uint64(1)
	if *soak {
		tables = 20
	}
	for seed := range tables {
		s, rng := newTable(seed)
		folder := filepath.Join(t.TempDir(), "copy")
		m := mustOpen(t, folder)
		for range 25 {
			for range rng.IntN(6) {
				s.edit(rng)
			}
			switch rng.IntN(10) {
			case 0:
				s.behind = len(s.log) // it has lost its log
			case 1:
				s.name += "x"
			case 2:
				m.Close()
				m = mustOpen(t, folder)
			}
			told := testkit.Value(bring(t.Context(), m, s))(t)
			want := s.lines(t)
			if got := served(t, folder); !slices.Equal(got, want) || told.Entries != int64(len(want)) {
				t.Fatalf("seed %d: %+v, %d lines, want %d\n%q\n%q", seed, told, len(got), len(want), got, want)
			}
		}
	}
}

// counts reports a step at which a test ends what is done: all of them, but of the 64 files the first, one in the
// middle and the last.
func counts(step string) bool {
	_, file, ofFile := strings.Cut(step, " ")
	return !ofFile || !strings.HasSuffix(file, ".ent") || slices.Contains([]string{"00.ent", "1d.ent", "3f.ent"}, file)
}

// The environment of the process that kills itself: the folder, the seed, and before which step.
const killAt = "BLOCKD_TEST_KILL_AT"

// rounds is how often the killed process brings its copy up to date.
const rounds = 4

// TestKilledAtAnyStep kills a process with SIGKILL before each step that it does on the disk. The copy is then one of
// those that it had been or was about to be, never another one and never an older one than it had told of.
func TestKilledAtAnyStep(t *testing.T) {
	if at := os.Getenv(killAt); at != "" {
		killedProcess(t, at)
		return
	}
	if testing.Short() {
		t.Skip("starts a process for each step")
	}
	t.Parallel()
	var want [rounds][]string
	for round, s := range roundsOf(7) {
		want[round] = s.lines(t)
	}
	stride := 3
	if *soak {
		stride = 1
	}
	for step := 0; ; step += stride {
		folder := filepath.Join(t.TempDir(), "copy")
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtAnyStep$")
		cmd.Env = append(os.Environ(), killAt+"="+strconv.Itoa(step)+" "+folder)
		out, err := cmd.Output()
		told := strings.Count(string(out), "round\n")
		if killed := err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL; !killed {
			if err != nil || told != rounds || step < 30 {
				t.Fatalf("step %d: %v, %d rounds\n%s", step, err, told, out)
			}
			return
		}
		m := mustOpen(t, folder)
		if _, any := m.State(); !any {
			if told > 0 {
				t.Fatalf("step %d: no copy after %d rounds", step, told)
			}
			continue
		}
		got := served(t, folder)
		if !slices.Equal(got, want[max(told-1, 0)]) && (told == rounds || !slices.Equal(got, want[told])) {
			t.Fatalf("step %d: after %d rounds the copy is none of those that it may be: %d lines", step, told, len(got))
		}
		if all, err := os.ReadDir(folder); err != nil || len(all) < 6 || len(all) > 7 { // current, its folder and perhaps the former one, files, state, journal, lock
			t.Errorf("step %d: %v, %v", step, all, err)
		}
		if _, err := os.Stat(filepath.Join(folder, stateName)); err != nil {
			t.Error(err)
		}
	}
}

// roundsOf are the states of the table, round by round: the same in every process. One of them is of another source.
func roundsOf(seed uint64) func(func(int, *table) bool) {
	return func(yield func(int, *table) bool) {
		s, rng := newTable(seed)
		for round := range rounds {
			if !yield(round, s) {
				return
			}
			for range 2 {
				s.edit(rng)
			}
			if round == 2 {
				s.name = "two"
			}
		}
	}
}

func killedProcess(t *testing.T, at string) {
	number, folder, _ := strings.Cut(at, " ")
	left := testkit.Value(strconv.Atoi(number))(t)
	m, err := open(Options{Folder: folder}, func(what string) error {
		if counts(what) {
			left--
		}
		if left < 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // it is on its way
		}
		return nil
	})
	testkit.Must(t, err)
	out := bufio.NewWriter(os.Stdout)
	for _, s := range roundsOf(7) {
		testkit.Value(bring(t.Context(), m, s))(t)
		fmt.Fprintln(out, "round")
		out.Flush()
	}
}

// TestDiskFailsAtAnyStep: the copy stays as it was, or is as it was to be, and the next attempt succeeds.
func TestDiskFailsAtAnyStep(t *testing.T) {
	t.Parallel()
	for step := 0; ; step++ {
		s, rng := newTable(9)
		folder := filepath.Join(t.TempDir(), "copy")
		left := 1 << 30
		m, err := open(Options{Folder: folder}, func(what string) error {
			if counts(what) {
				left--
			}
			if left == 0 {
				left = -1
				return syscall.ENOSPC
			}
			return nil
		})
		testkit.Must(t, err)
		testkit.Value(bring(t.Context(), m, s))(t)
		before := served(t, folder)
		s.edit(rng)
		s.edit(rng)
		if left = step + 1; step%2 == 1 {
			s.name = "two" // a full read
		}
		_, err = bring(t.Context(), m, s)
		failed, _ := errors.AsType[*Error](err)
		got := served(t, folder)
		switch {
		case err != nil && (failed == nil || failed.Class != ClassDisk || !errors.Is(err, syscall.ENOSPC)):
			t.Fatalf("step %d: %v", step, err)
		case !slices.Equal(got, before) && !slices.Equal(got, s.lines(t)):
			t.Fatalf("step %d: %d lines", step, len(got))
		}
		tried := left > 0
		if _, err := bring(t.Context(), m, s); err != nil || !slices.Equal(served(t, folder), s.lines(t)) {
			t.Fatalf("step %d: again: %v", step, err)
		}
		m.Close()
		if tried { // there are not so many steps
			testkit.AtLeast(t, "steps", step, 10)
			return
		}
	}
}

// TestFailedReadsChangeNothing: without the source's own end mark there is no deletion.
func TestFailedReadsChangeNothing(t *testing.T) {
	s, rng := newTable(3)
	folder := filepath.Join(t.TempDir(), "copy")
	m := mustOpen(t, folder)
	testkit.Value(bring(t.Context(), m, s))(t)
	before := served(t, folder)
	link, _ := os.Readlink(filepath.Join(folder, currentName))
	for range 20 {
		s.edit(rng)
	}
	cut := errors.New("the connection was cut")
	for _, tt := range []struct {
		name  string
		fault error
		read  func(context.Context, Origin) (*Report, error)
		want  Class
	}{
		{"full read", cut, m.Read, ClassQuery},
		{"changes", cut, m.Follow, ClassQuery},
		{"full read in time", context.DeadlineExceeded, m.Read, ClassTimeout},
		{"password", &Error{ClassAuth, cut}, m.Read, ClassAuth},
	} {
		s.fail = tt.fault
		_, err := tt.read(t.Context(), s)
		if failed, ok := errors.AsType[*Error](err); !ok || failed.Class != tt.want || !errors.Is(err, tt.fault) && tt.want != ClassAuth {
			t.Errorf("%s: %v, want the class %s", tt.name, err, tt.want)
		}
		if now, _ := os.Readlink(filepath.Join(folder, currentName)); now != link || !slices.Equal(served(t, folder), before) {
			t.Errorf("%s changed the copy", tt.name)
		}
	}
}

// TestStrangersRows: what is no entry is told of by its id, and costs itself alone, unless nearly all is such.
func TestStrangersRows(t *testing.T) {
	s := &table{name: "one", rows: map[string]Row{}}
	bad := map[string]Row{
		"nul":    {Entry: "a\x00b@bulk.test"},
		"octets": {Entry: "gr\xfcn@bulk.test"},
		"long":   {Entry: strings.Repeat("x", 1<<20) + "@bulk.test"},
		"empty":  {},
		"two":    {Entry: "a@bulk.test b@bulk.test"},
		"free":   {Entry: "!a@bulk.test"},
		"action": {Entry: "a@bulk.test", Action: "REJECT"},
		"past":   {Entry: "a@bulk.test", Expires: -1},
		"star":   {Entry: "*"},
		"bounce": {Entry: "<>"},
	}
	for id, row := range bad {
		row.ID = id
		s.rows[id] = row
	}
	s.rows["good"] = Row{Entry: "Promo@Bulk.test", ID: strings.Repeat("i", 100), Reason: "line\nend\x00 \xff"}
	folder := filepath.Join(t.TempDir(), "copy")
	m := mustOpen(t, folder)
	told, err := m.Read(t.Context(), s)
	if err != nil || told.Rows != 11 || told.Refused != 10 || told.Entries != 1 || len(told.First) != 10 {
		t.Fatalf("%+v, %v", told, err)
	}
	for _, r := range told.First {
		if _, known := bad[r.ID]; !known || r.Class == "" || r.Message == "" {
			t.Errorf("%+v", r)
		}
	}
	if got := served(t, folder); len(got) != 1 || got[0] != "promo@bulk.test\tb\tx\t\t"+strings.Repeat("i", 64)+"\tline end  ?\n" {
		t.Errorf("%q", got)
	}
	for i := range 100 {
		s.rows[fmt.Sprint(i)] = Row{Entry: "this table has texts", ID: fmt.Sprint(i)}
	}
	_, err = m.Read(t.Context(), s)
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Class != ClassEncoding {
		t.Errorf("%v, want class ClassEncoding", err)
	}
}

// A source of list files gives items that package lists has read: all that a line says goes into the copy.
func TestRowsOfFiles(t *testing.T) {
	read := func(format, text string) (rows []Row) {
		_, err := lists.Read(t.Context(), strings.NewReader(text), int64(len(text)), "list", lists.Settings{Format: format, Patterns: true}, func(it *lists.Item) error {
			if it.Kind != lists.Skip {
				kept := *it
				rows = append(rows, Row{Item: &kept, ID: fmt.Sprintf("list:%d", it.Line)})
			}
			return nil
		})
		testkit.Must(t, err)
		return rows
	}
	var got []string
	for _, row := range slices.Concat(
		read("plain", "Ann@Bulk.test\n!bob@bulk.test\n.below.test # why\n=only.test\nwhole.test\n192.0.2.0/24\n/^x/\nno entry\n"),
		read("entries", lists.EntriesHead+"\nann@bulk.test\tp\tx\t1893456000\tfrom:7\twhy\n"),
	) {
		line, no := Say(row, lists.Settings{})
		if no != nil {
			line = fmt.Sprintf("%s %s", no.ID, no.Class)
		}
		got = append(got, line)
	}
	want := []string{
		"ann@bulk.test\tb\tx\t\tlist:1\t", "bob@bulk.test\ta\tx\t\tlist:2\t", "below.test\tb\ts\t\tlist:3\t", "only.test\tb\tx\t\tlist:4\t",
		"whole.test\tb\tt\t\tlist:5\t", "192.0.2.0/24\tb\tt\t\tlist:6\t", "list:7 unsupported", "list:8 syntax",
		"ann@bulk.test\tp\tx\t1893456000\tfrom:7\twhy",
	}
	testkit.EqualSlices(t, "lines", got, want)
}

func TestTooManyRows(t *testing.T) {
	s, _ := newTable(5)
	m, err := Open(Options{Folder: filepath.Join(t.TempDir(), "copy"), MaxRows: int64(len(s.rows)) - 1})
	testkit.Must(t, err)
	defer m.Close()
	_, err = m.Read(t.Context(), s)
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Class != ClassRows {
		t.Errorf("%v, want class ClassRows", err)
	}
	if _, any := m.State(); any {
		t.Error("there is a copy")
	}
}

// While a table is read it changes: what was given may have gone since, and what has come may be missing.
func TestWhatChangesDuringARead(t *testing.T) {
	s, rng := newTable(8)
	folder := filepath.Join(t.TempDir(), "copy")
	m := mustOpen(t, folder)
	for range 5 {
		s.during = func() { s.edit(rng) }
		testkit.Value(m.Read(t.Context(), s))(t)
		if got, want := served(t, folder), s.lines(t); !slices.Equal(got, want) {
			t.Fatalf("the copy has %d lines, want %d", len(got), len(want))
		}
	}
}

// TestManyChangesAreAFullRead: changes wait in memory, which is bounded.
func TestManyChangesAreAFullRead(t *testing.T) {
	s, _ := newTable(6)
	m := mustOpen(t, filepath.Join(t.TempDir(), "copy"))
	testkit.Value(m.Read(t.Context(), s))(t)
	for i := range 60_000 {
		id := fmt.Sprintf("many%d", i)
		s.rows[id] = Row{Entry: fmt.Sprintf("a.long.local-part.%d@a.long.domain.of.bulk.test", i), ID: id}
		s.log = append(s.log, s.rows[id].Entry)
	}
	s.told = func(yield func(Change) error) error {
		for i := range 60_000 {
			row := s.rows[fmt.Sprintf("many%d", i)]
			if err := yield(Change{Entry: row.Entry, Rows: []Row{row}}); err != nil {
				return err
			}
		}
		return nil
	}
	testkit.Fails(m.Follow(t.Context(), s))(t, "many changes", ErrTooOld)
}

func TestOneProcessKeepsACopy(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "copy")
	mustOpen(t, folder)
	testkit.Fails(Open(Options{Folder: folder}))(t, "a second process", ErrLocked)
}

// TestUnchangedFilesStay: a change touches the file of its key alone, and a full read of the same rows none.
func TestUnchangedFilesStay(t *testing.T) {
	s, _ := newTable(4)
	folder := filepath.Join(t.TempDir(), "copy")
	m := mustOpen(t, folder)
	testkit.Value(m.Read(t.Context(), s))(t)
	inodes := func() (all []uint64) {
		for n := range files {
			info := testkit.Value(os.Stat(filepath.Join(folder, currentName, fileName(n))))(t)
			all = append(all, info.Sys().(*syscall.Stat_t).Ino)
		}
		return all
	}
	before := inodes()
	s.rows["new"] = Row{Entry: "new@bulk.test", ID: "new"}
	s.log = append(s.log, "new@bulk.test")
	told, err := m.Follow(t.Context(), s)
	testkit.MustGot(err, told.Changed)(t, "changed", nil, true)
	others := 0
	for n, inode := range inodes() {
		if inode != before[n] {
			others++
		}
	}
	testkit.Equal(t, "files were written for one change", others, 1)
	before = inodes()
	if told, err = m.Read(t.Context(), s); err != nil || told.Changed || !slices.Equal(inodes(), before) {
		t.Errorf("a full read of the same rows: %+v, %v", told, err)
	}
}

// TestDamagedCopyIsReadAnew damages what a copy has on the disk.
func TestDamagedCopyIsReadAnew(t *testing.T) {
	for _, damage := range []func(folder string) error{
		func(folder string) error { return os.Remove(filepath.Join(folder, currentName, stateName)) },
		func(folder string) error { return os.Remove(filepath.Join(folder, currentName, "07.ent")) },
		func(folder string) error {
			for n := range files {
				if err := os.WriteFile(filepath.Join(folder, currentName, fileName(n)), []byte("x\n"), 0o640); err != nil {
					return err
				}
			}
			return nil
		},
		func(folder string) error {
			return os.WriteFile(filepath.Join(folder, currentName, journalName), []byte("no journal, and long enough for a block's head"), 0o640)
		},
	} {
		s, rng := newTable(8)
		folder := filepath.Join(t.TempDir(), "copy")
		m := mustOpen(t, folder)
		testkit.Value(bring(t.Context(), m, s))(t)
		m.Close()
		testkit.Must(t, damage(folder))
		s.edit(rng)
		m = mustOpen(t, folder)
		testkit.Value(bring(t.Context(), m, s))(t)
		testkit.EqualSlices(t, "served", served(t, folder), s.lines(t))
	}
}

// FuzzJournal: whatever a journal holds, it is read up to what is no whole batch.
func FuzzJournal(f *testing.F) {
	good := testkit.File(f, "journal", "")
	file := testkit.Value(os.OpenFile(good, os.O_RDWR, 0))(f)
	j := journal{f: file}
	j.append(encode([]string{"a@bulk.test\tx"}, map[string][]string{"a@bulk.test\tx": {"a@bulk.test\tb\tx\t\t\t\n"}}, "7"))
	file.Close()
	f.Add(testkit.Read(f, good))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := testkit.Value(os.Open(testkit.File(t, "journal", string(text))))(t)
		defer file.Close()
		j := journal{f: file}
		p := pending{}
		if err := j.replay(func(text []byte, _ Mark) { p.replay(text) }); err != nil || j.size > int64(len(text)) {
			t.Fatalf("%d octets of %d, %v", j.size, len(text), err)
		}
	})
}

// TestEditedList: a list that is edited to say something else of the same rows is read whole once, and nothing of it counts as missed.
func TestEditedList(t *testing.T) {
	no := false
	folder := filepath.Join(t.TempDir(), "copy")
	s := &table{name: "a", rows: map[string]Row{"1": {Entry: "bulk.test"}, "2": {Entry: "x@bulk.test"}}}
	for _, settings := range []lists.Settings{{}, {Action: lists.Allow}, {Action: lists.Allow, Subdomains: &no}, {Subdomains: &no}} {
		m := testkit.Value(Open(Options{Folder: folder, Settings: settings}))(t)
		testkit.Fails(m.Follow(t.Context(), s))(t, fmt.Sprintf("%+v: Follow", settings), ErrTooOld)
		if told, err := m.Reconcile(t.Context(), s); err != nil || !told.Changed || told.Missed != 0 {
			t.Fatalf("%+v: %+v, %v", settings, told, err)
		}
		want := map[lists.Action]string{lists.Block: "b", lists.Allow: "a"}[settings.Action]
		for _, line := range served(t, folder) {
			fields := strings.Split(line, "\t")
			if exact := fields[2] == "x"; fields[1] != want || !exact && settings.Subdomains != nil {
				t.Errorf("%+v: %q", settings, line)
			}
		}
		told := testkit.Value(m.Follow(t.Context(), s))(t)
		testkit.Equal(t, fmt.Sprintf("%+v: followed", settings), told.Changed, false)
		m.Close()
	}
}

// What others have put into the folder of a copy, or behind a link in it, stays.
func TestFilesOfOthersStay(t *testing.T) {
	folder, other := filepath.Join(t.TempDir(), "copy"), t.TempDir()
	testkit.Must(t, os.Mkdir(folder, 0o750))
	testkit.Must(t, os.Symlink(other, filepath.Join(folder, filesName)))
	var stay []string
	for _, name := range []string{"g-notes", "g-12", "current.txt", "files/passwd", "files/00-list", "files/zz-0000000001", "files/00-1"} {
		path := filepath.Join(folder, name)
		testkit.Write(t, path, "of others")
		stay = append(stay, path)
	}
	gone := filepath.Join(folder, "files/00-0000000009")
	testkit.Write(t, gone, "of a generation that is not in force")
	m := mustOpen(t, folder)
	s, rng := newTable(1)
	for range 3 {
		s.edit(rng)
		testkit.Value(bring(t.Context(), m, s))(t)
	}
	if got := served(t, folder); !slices.Equal(got, s.lines(t)) {
		t.Errorf("%d lines", len(got))
	}
	for _, path := range stay {
		testkit.Equal(t, path, string(testkit.Value(os.ReadFile(path))(t)), "of others")
	}
	testkit.Fails(os.Lstat(gone))(t, gone, fs.ErrNotExist)
}

// One copy sorts at a time. The others are read meanwhile, take changes, and end with their context.
func TestOneSortsAtATime(t *testing.T) {
	turn, folder := make(chan struct{}, 1), filepath.Join(t.TempDir(), "copy")
	m := testkit.Value(Open(Options{Folder: folder, turn: turn}))(t)
	defer m.Close()
	s, rng := newTable(1)
	testkit.Value(m.Read(t.Context(), s))(t)
	testkit.MustEqual(t, "those that have the turn", len(turn), 0)
	turn <- struct{}{} // another copy's
	s.edit(rng)
	testkit.Value(m.Follow(t.Context(), s))(t)
	before := served(t, folder)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	read := make(chan struct{})
	s.given = func() { close(read) }
	go func() {
		_, err := m.Read(ctx, s)
		ended <- err
	}()
	<-read
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !slices.Equal(served(t, folder), before) {
		t.Errorf("ended without its turn: %v", err)
	}
	s.given = nil
	<-turn
	testkit.Value(m.Read(t.Context(), s))(t)
	testkit.Equal(t, "those that have the turn", len(turn), 0)
}

// endless gives rows until it is released.
type endless struct {
	rows    int
	full    chan<- struct{}
	release <-chan struct{}
}

func (endless) Fingerprint(context.Context) (string, error) { return "endless", nil }

func (e endless) All(ctx context.Context, yield func(Row) error) (Mark, error) {
	for i := range e.rows {
		if err := yield(Row{Entry: fmt.Sprintf("n%d.%s.example", i, strings.Repeat("x", 60))}); err != nil {
			return "", err
		}
	}
	e.full <- struct{}{}
	<-e.release
	return "0", ctx.Err()
}

func (endless) Changes(context.Context, Mark, func(Change) error) (Mark, error) { return "", ErrTooOld }
func (endless) Wait(ctx context.Context) error                                  { <-ctx.Done(); return ctx.Err() }

// TestManyReads: lists that are read at the same time hold a few files each, and not one for each of their parts.
func TestManyReads(t *testing.T) {
	open := func() int {
		t.Helper()
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system does not tell which files are open")
		}
		return len(all)
	}
	const lists, rows = 10, 40_000 // of 1 MiB are 3.5 MiB on the disk
	full, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	dir, before := t.TempDir(), open()
	for i := range lists {
		m := testkit.Value(Open(Options{Folder: filepath.Join(dir, fmt.Sprint(i))}))(t)
		defer m.Close()
		go func() {
			told, err := m.Read(t.Context(), endless{rows, full, release})
			if err == nil && told.Entries != rows {
				err = fmt.Errorf("%d entries", told.Entries)
			}
			ended <- err
		}()
	}
	for range lists {
		<-full
	}
	testkit.AtMost(t, fmt.Sprintf("files that %d lists hold", lists), open()-before, 3*lists+5)
	close(release)
	for range lists {
		testkit.Should(t, <-ended)
	}
	testkit.Eventually(t, "all files to be closed", func() bool { return open()-before <= 2*lists+5 })
}
