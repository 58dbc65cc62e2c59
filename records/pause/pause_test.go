package pause

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

var noon = time.Date(2126, 11, 24, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, path string) *Set {
	t.Helper()
	return testkit.Value(Open(path))(t)
}

func one(list string, d time.Duration) Pause {
	return Pause{List: list, Since: noon, Until: noon.Add(d), By: "anna", Why: "it refuses the bank"}
}

// A pause outlasts the process, ends by itself, and is seen by another process that has the file open.
func TestPause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pauses")
	a, b := open(t, path), open(t, path)
	testkit.Equal(t, "pauses at first", len(a.Paused(noon)), 0)
	for _, p := range []Pause{one("bulk", time.Hour), one("other", 2*time.Hour)} {
		testkit.Must(t, a.Start(p))
	}
	testkit.Value(b.refresh(noon))(t)
	for name, s := range map[string]*Set{"own": a, "other process": b, "next process": open(t, path)} {
		for _, tt := range []struct {
			at   time.Duration
			want string
		}{{0, "bulk other"}, {time.Hour - 1, "bulk other"}, {time.Hour, "other"}, {2 * time.Hour, ""}} {
			at, names := noon.Add(tt.at), []string(nil)
			for _, p := range s.All(at) {
				names = append(names, p.List)
			}
			testkit.Got(strings.Join(names, " "), len(s.Paused(at)))(t, fmt.Sprintf("%s after %s", name, tt.at), tt.want, len(names))
		}
	}
	testkit.Got(a.Of("bulk", noon))(t, "the pause", "…, by anna: it refuses the bank", true)
	was, ok, err := b.End("bulk", noon)
	testkit.Got(was.List, ok, err)(t, "End", "bulk", true, nil)
	testkit.Got(b.End("bulk", noon))(t, "End again", testkit.Any, false, nil)
	if _, err := a.refresh(noon); err != nil || a.Paused(noon)["bulk"] || !a.Paused(noon)["other"] {
		t.Errorf("after the other's End: %v, %v", a.Paused(noon), err)
	}
	if ended, err := a.refresh(noon.Add(3 * time.Hour)); err != nil || len(ended) != 1 || a.Paused(noon) != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
}

func TestPausesThatAreNone(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "pauses"))
	long := one("bulk", time.Hour)
	long.Why = strings.Repeat("x", MaxText+1)
	odd := one("bulk", time.Hour)
	odd.By = "a\nb"
	for _, p := range []Pause{one("", time.Hour), one("bulk", 0), one("bulk", -time.Hour), one("bulk", Longest+1), long, odd} {
		testkit.Got(s.Start(p) != nil, len(s.Paused(noon)))(t, fmt.Sprintf("%v: an error, and pauses", p), true, 0)
	}
	testkit.Got(len((*Set)(nil).Paused(noon)), len((*Set)(nil).All(noon)))(t, "pauses of no Set", 0, 0)
}

// A file that is no file of pauses pauses nothing, is told of, and the next change writes it anew. One that breaks while
// it is in use leaves the pauses of before.
func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pauses")
	for _, text := range []string{"{", "{\n", "null x\n", `[{"list":"a"}]`, `[{"list":"a","until":"x"}]`, `[{"what":1}]` + "\n", strings.Repeat("[", 1<<16)} {
		testkit.Write(t, path, text)
		s, err := Open(path)
		if err == nil || s.Paused(noon) != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	s, _ := Open(path)
	testkit.Must(t, s.Start(one("bulk", time.Hour)))
	testkit.Equal(t, "problems after a change", len(s.Problems()), 0)
	testkit.Write(t, path, "[")
	if _, err := s.refresh(noon); err == nil || !s.Paused(noon)["bulk"] {
		t.Errorf("%v, and paused are %v", err, s.Paused(noon))
	}
}

// Where nothing can be written, nothing changes.
func TestFullDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "gone")
	s := open(t, filepath.Join(folder, "pauses"))
	testkit.Got(s.Start(one("bulk", time.Hour)) != nil, len(s.Paused(noon)))(t, "an error, and pauses", true, 0)
}

// Changes of several at once are all kept.
func TestManyChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pauses")
	var wg sync.WaitGroup
	for i := range 8 {
		s := open(t, path)
		wg.Go(func() {
			for k := range 4 {
				testkit.Should(t, s.Start(one(string(rune('a'+i))+string(rune('a'+k)), time.Hour)))
			}
		})
	}
	wg.Wait()
	testkit.Equal(t, "pauses", len(open(t, path).All(noon)), 32)
}

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pauses")
	synctest.Test(t, func(t *testing.T) {
		s, now := open(t, path), time.Now()
		defer testkit.Running(t, func(ctx context.Context) { s.Run(ctx, slog.New(slog.DiscardHandler)) })()
		other := open(t, path)
		testkit.Should(t, other.Start(Pause{List: "bulk", Since: now, Until: now.Add(time.Minute)}))
		time.Sleep(time.Second)
		testkit.Equal(t, "another's pause is taken up within a second", s.Paused(time.Now())["bulk"], true)
		time.Sleep(time.Minute)
		testkit.Equal(t, "a pause that is over is remembered", s.now.Load(), nil)
	})
}

func TestPausedDoesNotAllocate(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "pauses"))
	if n := testing.AllocsPerRun(100, func() { s.Paused(noon) }); n != 0 {
		t.Errorf("%v allocations without a pause", n)
	}
	testkit.Must(t, s.Start(one("bulk", time.Hour)))
	if n := testing.AllocsPerRun(100, func() { s.Paused(noon) }); n != 0 {
		t.Errorf("%v allocations with one", n)
	}
	_ = os.Remove(s.path)
}
