package firstseen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/bloom/filter"
	"blockd/internal/testkit"
)

var settings = filter.SeenSettings{Octets: 4096, MaxAge: 30 * 24 * time.Hour}

func open(t *testing.T, path string) *Set {
	t.Helper()
	s, anew, err := Open(path, settings)
	if err != nil || anew != nil {
		t.Fatal(anew, err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestRunKeeps saves each minute and at the end, and the next process knows what came.
func TestRunKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domains.bds")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		stop := testkit.Running(t, func(ctx context.Context) { s.Run(ctx, slog.New(slog.DiscardHandler)) })
		testkit.Got(s.AddIfAbsent("a.example"), s.AddIfAbsent("a.example"))(t, "new, and new again", true, false)
		time.Sleep(SaveEvery + time.Second)
		saved := testkit.Value(read(path, settings, time.Now()))(t)
		testkit.Equal(t, "known on the disk after a minute", saved.Known("a.example"), true)
		s.AddIfAbsent("b.example")
		stop()
		s.Close()
		s = open(t, path)
		testkit.Got(s.Known("a.example"), s.Known("b.example"), s.Known("c.example"))(t, "known to the next process", true, true, false)
	})
}

// TestAgeIsPassedTime forgets after one to two times the age, in a process that runs.
func TestAgeIsPassedTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domains.bds")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		stop := testkit.Running(t, func(ctx context.Context) { s.Run(ctx, slog.New(slog.DiscardHandler)) })
		time.Sleep(20 * 24 * time.Hour)
		s.AddIfAbsent("a.example")
		s.AddIfAbsent("b.example")
		time.Sleep(29 * 24 * time.Hour)
		testkit.Equal(t, "known after 29 days", s.Known("a.example"), true)
		time.Sleep(12 * 24 * time.Hour)
		if !s.Known("a.example") { // it came 12 days ago
			t.Error("forgotten, and it had come again")
		}
		testkit.Equal(t, "known after 41 days, two turns later", s.seen.Known("b.example"), false)
		stop()
	})
}

// TestFullDisk is logged once in ten minutes, counted, and costs nothing else.
func TestFullDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(folder, "domains.bds"))
		testkit.Must(t, os.RemoveAll(folder)) // as good as a full disk
		var out bytes.Buffer
		stop := testkit.Running(t, func(ctx context.Context) { s.Run(ctx, slog.New(slog.NewTextHandler(&out, nil))) })
		s.AddIfAbsent("a.example")
		time.Sleep(5*SaveEvery + time.Second)
		testkit.Equal(t, "known", s.Known("a.example"), true)
		testkit.Must(t, os.Mkdir(folder, 0o700))
		stop()
		testkit.Equal(t, fmt.Sprintf("lines of the log:\n%s", &out), strings.Count(out.String(), "not kept"), 1)
		reg := prometheus.NewRegistry()
		s.Register(reg)
		for _, v := range testkit.Samples(t, reg, "blockd_first_seen_save_errors_total") {
			testkit.Equal(t, "errors counted", v, 5)
		}
		saved := testkit.Value(read(s.path, settings, time.Now()))(t)
		testkit.Equal(t, "known on the disk after it had room", saved.Known("a.example"), true)
	})
}

// TestAnew: a file that is no set is put aside, said, and an empty set serves.
func TestAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domains.bds")
	s := open(t, path)
	s.AddIfAbsent("a.example")
	testkit.Must(t, s.Save())
	s.Close()
	whole := testkit.Read(t, path)
	newer := bytes.Clone(whole)
	newer[8] = 2
	for _, c := range []struct{ name, content, want string }{
		{"torn", string(whole[:len(whole)-1]), "damaged"},
		{"foreign", "sender,why\n" + strings.Repeat("x", 100), "no set of seen keys"},
		{"empty", "", "no set of seen keys"},
		{"newer", string(newer), "newer version"},
	} {
		testkit.Write(t, path, c.content)
		s, anew, err := Open(path, settings)
		testkit.MustGot(err, anew)(t, c.name, nil, "…"+c.want+"…")
		testkit.Equal(t, fmt.Sprintf("%s: known", c.name), s.Known("a.example"), false)
		testkit.Equal(t, fmt.Sprintf("%s: put aside", c.name), string(testkit.Read(t, path+AsideSuffix)), c.content)
		s.AddIfAbsent("b.example")
		testkit.Should(t, s.Save())
		s.Close()
		open(t, path).Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "domains.bds")
	open(t, path)
	if _, _, err := Open(path, settings); !errors.Is(err, ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	testkit.Equal(t, "an error without a folder", failed(Open(filepath.Join(dir, "none", "domains.bds"), settings)), true)
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	testkit.Equal(t, "an error of a folder", failed(Open(filepath.Join(dir, "folder"), settings)), true)
	testkit.Equal(t, "an error with a half that is never full", failed(Open(filepath.Join(dir, "other.bds"), filter.SeenSettings{RotateAt: 2})), true)
}

func TestNoSet(t *testing.T) {
	var s *Set
	testkit.Got(s.Known("a.example"), s.AddIfAbsent("a.example"))(t, "of no set: known, and new", true, false)
	testkit.Should(t, s.Save())
	s.Close()
}

// TestYield holds that one of two processes has the set at a time, that the second knows what the first has saved, and
// that the first overwrites nothing.
func TestYield(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domains.bds")
	first := open(t, path)
	first.AddIfAbsent("a.example")
	testkit.Must(t, first.Yield())
	second := open(t, path)
	testkit.Equal(t, "the second knows what the first knew", second.Known("a.example"), true)
	testkit.IsError(t, "two have the set", first.Resume(), ErrLocked)
	second.AddIfAbsent("b.example")
	testkit.Must(t, second.Save())
	before := testkit.Read(t, path)
	first.AddIfAbsent("c.example")
	if err := first.Save(); err != nil || !bytes.Equal(before, testkit.Read(t, path)) {
		t.Errorf("the first has written: %v", err)
	}
	second.Close()
	testkit.Must(t, first.Resume())
	if err := first.Save(); err != nil || bytes.Equal(before, testkit.Read(t, path)) {
		t.Errorf("the first has not written: %v", err)
	}
}

// failed reports whether an Open has failed.
func failed(_ *Set, _, err error) bool { return err != nil }
