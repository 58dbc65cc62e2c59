package kept_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

// keeper is a store with the cache of builds that it takes contents from.
type keeper struct {
	*kept.Store
	t     *testing.T
	cache string
	now   time.Time
}

func newKeeper(t *testing.T) *keeper {
	dir := t.TempDir()
	return &keeper{&kept.Store{Folder: filepath.Join(dir, "kept"), Keep: 3, Bytes: 1 << 30}, t, filepath.Join(dir, "cache"), time.Now().Add(-time.Hour)}
}

// serve records a generation in which list bulk has these entries.
func (k *keeper) serve(entries ...string) kept.Content {
	k.t.Helper()
	os.RemoveAll(k.cache)
	path := filepath.Join(filepath.Dir(k.cache), "bulk.txt")
	testkit.Write(k.t, path, strings.Join(entries, "\n")+"\n")
	if err := index.ParseSegment(k.t.Context(), k.cache, index.Source{List: "bulk", Path: path, Settings: lists.Settings{Format: "plain"}}, 1); err != nil {
		k.t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(k.cache, strings.Repeat("[0-9a-f]", 32)+".*"))
	if err != nil || len(made) != 1 {
		k.t.Fatal(made, err)
	}
	name, _, _ := strings.Cut(filepath.Base(made[0]), ".")
	c := kept.Content{{Path: []byte(path), Segment: name, Entries: len(entries)}}
	k.now = k.now.Add(time.Minute)
	g := kept.Generation{ID: name, Time: k.now, How: "built", Lists: []kept.State{{Name: "bulk", Entries: len(entries), Files: c}}}
	if errs := k.Record(k.cache, g); len(errs) > 0 {
		k.t.Fatal(errs)
	}
	return c
}

func (k *keeper) tidy() {
	k.t.Helper()
	if notes, err := k.Tidy(k.t.Context()); err != nil || len(notes) > 0 {
		k.t.Fatal(notes, err)
	}
}

func (k *keeper) rollback(to kept.Content) error {
	_, err := k.Rollback(k.t.Context(), "bulk", to[0].Segment, kept.Who{}, k.now, func(kept.Point) error { return nil })
	return err
}

// free reports whether no list is pinned.
func (k *keeper) free() bool {
	all, err := k.Pins()
	return err == nil && len(all) == 0
}

// differs counts what differs between two contents.
func (k *keeper) differs(a, b kept.Content) (n int) {
	k.t.Helper()
	if err := k.Diff(k.t.Context(), a, b, func(kept.Entry) error { n++; return nil }); err != nil {
		k.t.Fatal(err)
	}
	return n
}

func names(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("x%d.example", i))
	}
	return all
}

// TestDamagedContentIsNeverServed: whichever form a content is kept in, and wherever it is damaged or cut, a rollback to it is
// refused and pins nothing, or it is the content all the same.
func TestDamagedContentIsNeverServed(t *testing.T) {
	for form, is := range map[string][]string{"whole": names(5, 200), "difference": names(5, 200), "packed": names(1000, 1200)} {
		k := newKeeper(t)
		was := k.serve(names(0, 200)...)
		now := k.serve(is...)
		if form != "whole" {
			k.tidy()
		}
		want := 5
		if form == "packed" {
			want = 400
		}
		files, err := filepath.Glob(filepath.Join(k.Folder, was[0].Segment+"*"))
		if err != nil || len(files) != 1 {
			t.Fatal(form, files, err)
		}
		good := testkit.Value(os.ReadFile(files[0]))(t)
		refused := 0
		try := func(what string, at int, text []byte) {
			t.Helper()
			others, _ := filepath.Glob(filepath.Join(k.Folder, was[0].Segment+"*"))
			for _, f := range others {
				os.Remove(f)
			}
			testkit.Must(t, os.WriteFile(files[0], text, 0o600))
			if err := k.rollback(was); err != nil {
				if refused++; !k.free() || !strings.Contains(err.Error(), was[0].Segment) {
					t.Fatalf("%s, %s at %d: %v; a list is pinned: %v", form, what, at, err, !k.free())
				}
				return
			}
			testkit.MustEqual(t, fmt.Sprintf("%s, %s at %d: entries differ", form, what, at), k.differs(was, now), want)
			testkit.Must(t, k.ChangePins(func([]kept.Pin) ([]kept.Pin, error) { return nil, nil }))
		}
		for i := 0; i < len(good); i += 1 + len(good)/40 {
			flipped := slices.Clone(good)
			flipped[i] ^= 4
			try("a flipped bit", i, flipped)
			try("cut", i, good[:i])
		}
		if refused < 40 {
			t.Errorf("%s: only %d were refused", form, refused)
		}
		try("whole again", 0, good)
	}
}

// TestFullDiskRefusesARollback: while nothing can be written, neither a rollback nor an adoption is done, and what served before is
// still kept; a journal that cannot be written refuses both as well.
func TestFullDiskRefusesARollback(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	k := newKeeper(t)
	was, _ := k.serve(names(0, 200)...), k.serve(names(5, 200)...)
	k.tidy()
	full := func(use func() error) (err error) {
		var before unix.Rlimit
		testkit.Must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
		limit := before
		limit.Cur = 8
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
		err = use()
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
		return err
	}
	if err := full(func() error { return k.rollback(was) }); err == nil || !k.free() || !k.Has(was) {
		t.Errorf("a full disk: %v; pinned: %v; kept: %v", err, !k.free(), k.Has(was))
	}
	errJournal := errors.New("no room for the line")
	if _, err := k.Rollback(t.Context(), "bulk", "", kept.Who{}, k.now, func(kept.Point) error { return errJournal }); !errors.Is(err, errJournal) || !k.free() {
		t.Errorf("a full journal: %v; pinned: %v", err, !k.free())
	}
	if err := k.rollback(was); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	adopt := func(line error) error {
		_, err := k.Adopt(context.WithoutCancel(t.Context()), "bulk", "", false, kept.Who{}, k.now, func(string) error { return line })
		return err
	}
	if err := full(func() error { return adopt(nil) }); err == nil || k.free() {
		t.Errorf("a full disk: %v; adopted: %v", err, k.free())
	}
	if err := adopt(errJournal); !errors.Is(err, errJournal) || k.free() {
		t.Errorf("a full journal: %v; adopted: %v", err, k.free())
	}
	if err := adopt(nil); err != nil || !k.free() {
		t.Errorf("with room again: %v; adopted: %v", err, k.free())
	}
}

// TestBoundsLeaveWhatIsPinned: beyond keep and keep_bytes the oldest contents go, and never what a list is pinned to or serves,
// even where the list is gone from the configuration.
func TestBoundsLeaveWhatIsPinned(t *testing.T) {
	k := newKeeper(t)
	var all []kept.Content
	for i := range 3 {
		all = append(all, k.serve(names(i, 200)...))
		k.tidy()
	}
	testkit.Must(t, k.rollback(all[0]))
	has := func(when string, want ...int) {
		t.Helper()
		var got []int
		for i, c := range all {
			if k.Has(c) {
				got = append(got, i)
			}
		}
		testkit.EqualSlices(t, fmt.Sprintf("%s: contents: are kept", when), got, want)
	}
	for i := 3; i < 6; i++ {
		all = append(all, k.serve(names(i, 200)...))
		k.tidy()
	}
	has("keep = 3", 0, 3, 4, 5)
	k.Bytes = 1
	k.tidy()
	has("no room", 0, 5)
	if errs := k.Record(k.cache, kept.Generation{ID: "without", Time: k.now}); len(errs) > 0 {
		t.Fatal(errs)
	}
	k.Keep = 1
	k.tidy()
	if !k.Has(all[0]) {
		t.Error("what a list is pinned to goes with the list")
	}
}

const childIn = "BLOCKD_TEST_KEPT_CHILD"

// TestKilledBetweenSteps: a process that is killed while it takes a list back, lets it follow its file again and packs, leaves pins
// that can be read, of a content that can be served.
func TestKilledBetweenSteps(t *testing.T) {
	race.Skip(t)
	if where := os.Getenv(childIn); where != "" {
		s := &kept.Store{Folder: where, Keep: 3, Bytes: 1 << 30}
		tell := func(kept.Point) error { fmt.Println("step"); return nil }
		for {
			testkit.Value(s.Rollback(t.Context(), "bulk", os.Getenv(childIn+"_TO"), kept.Who{}, time.Now(), tell))(t)
			fmt.Println("step")
			if _, err := s.Adopt(t.Context(), "bulk", "", false, kept.Who{}, time.Now(), func(string) error { fmt.Println("step"); return nil }); err != nil {
				t.Fatal(err)
			}
			fmt.Println("step")
			testkit.Value(s.Tidy(t.Context()))(t)
			fmt.Println("step")
		}
	}
	k := newKeeper(t)
	was, now := k.serve(names(0, 200)...), k.serve(names(5, 200)...)
	k.tidy()
	pinned := 0
	for kill := range 25 {
		if !k.free() { // a child begins with a rollback
			pinned++
			testkit.Value(k.Adopt(t.Context(), "bulk", "", false, kept.Who{}, k.now, func(string) error { return nil }))(t)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), childIn+"="+k.Folder, childIn+"_TO="+was[0].Segment)
		out := testkit.Value(cmd.StdoutPipe())(t)
		testkit.Must(t, cmd.Start())
		steps, lines := 0, bufio.NewScanner(out)
		for steps <= kill && lines.Scan() {
			testkit.Equal(t, "the child", lines.Text(), "step")
			steps++
		}
		cmd.Process.Kill()
		cmd.Wait()
		all, err := k.Pins()
		if err != nil || len(all) > 1 || len(all) == 1 && !all[0].Content.Equal(was) || steps <= kill {
			t.Fatalf("killed after step %d: pins %+v, %v", steps, all, err)
		}
		testkit.MustEqual(t, fmt.Sprintf("killed after step %d: generations", steps), len(testkit.Value(k.Generations())(t)), 2)
		testkit.MustEqual(t, fmt.Sprintf("killed after step %d: entries differ", steps), k.differs(was, now), 5)
	}
	t.Logf("%d of 25 kills left the list pinned", pinned)
}
