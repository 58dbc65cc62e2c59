package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/internal/durable"
	"blockd/internal/testkit"
)

var noon = time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, path string) *Set {
	t.Helper()
	return testkit.Value(Open(Settings{Path: path, Idle: time.Hour, Max: 24 * time.Hour}))(t)
}

func begin(t *testing.T, s *Set, at time.Time, token string) string {
	t.Helper()
	secret, _, err := s.Begin(at, Session{Token: token})
	testkit.Must(t, err)
	return secret
}

func there(t *testing.T, s *Set, at time.Time, secret string) bool {
	t.Helper()
	_, ok, err := s.Find(at, secret)
	testkit.Must(t, err)
	return ok
}

// A session ends after an hour without a request, and after a day with requests.
func TestBoundsOfTime(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "sessions")} {
		s := open(t, path)
		idle, used := begin(t, s, noon, "a"), begin(t, s, noon, "b")
		at := noon
		for ; at.Before(noon.Add(24*time.Hour - time.Minute)); at = at.Add(30 * time.Minute) {
			found, ok, err := s.Find(at, used)
			testkit.MustGot(err, ok)(t, at, nil, true)
			testkit.Must(t, s.Use(at, found.ID))
			testkit.Equal(t, at.String()+": a session without a request is there", there(t, s, at, idle), at.Sub(noon) < time.Hour)
		}
		testkit.Got(there(t, s, at, used), len(s.All(at)))(t, "a session that is older than Max, and all", false, 0)
	}
}

// What one process changes of the file is true for the other, and for the next.
func TestProcessesShareTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	a, b := open(t, path), open(t, path)
	one, two := begin(t, a, noon, "a"), begin(t, b, noon, "b")
	for _, s := range []*Set{a, b, open(t, path)} {
		testkit.Got(there(t, s, noon, one), there(t, s, noon, two))(t, "sessions of both processes", true, true)
	}
	testkit.MustEqual(t, "ended", len(testkit.Value(b.End(noon, func(s Session) bool { return s.Token == "a" }))(t)), 1)
	testkit.Got(there(t, a, noon, one), there(t, a, noon, two))(t, "sessions, of which the other process has ended one", false, true)
	found, _, _ := a.Find(noon, two)
	testkit.Must(t, a.Use(noon.Add(50*time.Minute), found.ID))
	testkit.Equal(t, "a session that the other process uses", there(t, b, noon.Add(100*time.Minute), two), true)
	text := string(testkit.Read(t, path))
	testkit.Has(t, text, found.ID)
	testkit.Lacks(t, text, two)
	testkit.Equal(t, "mode", testkit.Value(os.Stat(path))(t).Mode(), 0o600)
	os.Remove(path)
	testkit.Got(there(t, a, noon, two), there(t, b, noon, two))(t, "sessions of a file that is gone", false, false)
}

// One holder ends only its own sessions by beginning more, and all together have a bound.
func TestBoundsOfNumber(t *testing.T) {
	s := open(t, "")
	other := begin(t, s, noon, "other")
	var own []string
	for i := range PerHolder + 5 {
		own = append(own, begin(t, s, noon.Add(time.Duration(i+1)*time.Second), "greedy"))
	}
	at := noon.Add(time.Minute)
	for i, secret := range own {
		testkit.Equal(t, fmt.Sprintf("session %d of one holder is there", i), there(t, s, at, secret), i >= 5)
	}
	for i := range Most {
		begin(t, s, at.Add(time.Second), fmt.Sprintf("holder %d", i))
	}
	testkit.Got(len(s.All(at)), there(t, s, at, other))(t, "all, and the oldest", Most, false)
}

// A file that cannot be written keeps nobody out, and lets nobody in again; one that is damaged vouches for nobody.
func TestFaultsOfTheFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	path := filepath.Join(folder, "sessions")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	s := open(t, path)
	kept := begin(t, s, noon, "kept")
	away := folder + ".away"
	testkit.Must(t, os.Rename(folder, away))
	testkit.Write(t, folder, "no folder")
	secret, _, err := s.Begin(noon, Session{Token: "a"})
	if err == nil {
		t.Error("there is no folder for it")
	}
	if _, ok, err := s.Find(noon, secret); !ok || err == nil { // which is told of once
		t.Errorf("a session that could not be written: %t, %v", ok, err)
	}
	testkit.Equal(t, "the session of a file that has gone", there(t, s, noon, kept), false)
	os.Remove(folder)
	testkit.Must(t, os.Rename(away, folder))
	testkit.Got(there(t, s, noon, kept), there(t, s, noon, secret))(t, "sessions of the file that is there again", true, true)
	testkit.Write(t, path, "{\n")
	if _, ok, err := s.Find(noon, kept); ok || err == nil {
		t.Errorf("a damaged file vouches for a session: %v", err)
	}
	testkit.Got(s.Find(noon, kept))(t, "behind a damaged file", "…", "…", nil)
	begin(t, s, noon, "b")
	testkit.Equal(t, "a session in the place of the damaged file", there(t, open(t, path), noon, secret), true)
}

// What cannot be ended in the file has ended all the same while the process runs.
func TestEndedWithoutAFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	path := filepath.Join(folder, "sessions")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	s := open(t, path)
	secret := begin(t, s, noon, "a")
	content := testkit.Read(t, path)
	os.Remove(path + ".lock")
	if err := os.Mkdir(path+".lock", 0o700); err != nil { // nobody can lock it
		t.Fatal(err)
	}
	ended, err := s.End(noon, func(Session) bool { return true })
	if err == nil || len(ended) != 1 {
		t.Fatal(ended, err)
	}
	testkit.Write(t, path, string(slices.Concat(content, content)[:len(content)])) // a new time
	testkit.Equal(t, "a session that was ended", there(t, s, noon, secret), false)
}

// Many sessions of few holders do not end the one of another, however long it was not used.
func TestFewHoldersEndTheirOwn(t *testing.T) {
	s := open(t, "")
	other := begin(t, s, noon, "other")
	for i := range Most + 100 {
		begin(t, s, noon.Add(time.Duration(1+i)*time.Millisecond), fmt.Sprintf("holder %d", i%60))
	}
	at := noon.Add(time.Minute)
	testkit.Got(len(s.All(at)), there(t, s, at, other))(t, "all, and the oldest", Most, true)
}

// A request does not wait for another process that changes the file, and counts all the same.
func TestUseWhileAnotherProcessWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	s := open(t, path)
	secret := begin(t, s, noon, "a")
	lock := testkit.Value(durable.Lock(path+".lock", os.ErrExist))(t)
	later := noon.Add(50 * time.Minute)
	testkit.Should(t, s.Use(later, idOf(secret)))
	lock.Close()
	testkit.Equal(t, "behind a request that came meanwhile", there(t, s, noon.Add(100*time.Minute), secret), true)
	testkit.Must(t, s.Use(noon.Add(100*time.Minute), idOf(secret)))
	testkit.Equal(t, "behind the next one, in the file", there(t, open(t, path), noon.Add(159*time.Minute), secret), true)
}

// What was ended while there is no room for another file has ended after a restart too; other sessions have not.
func TestEndedOnAFullDisk(t *testing.T) {
	folder := t.TempDir()
	s := open(t, filepath.Join(folder, "short"))
	gone, kept := begin(t, s, noon, "gone"), begin(t, s, noon, "kept")
	path := filepath.Join(folder, strings.Repeat("x", 250)) // beside it there is no room for the name of a draft
	testkit.Write(t, path, testkit.Read(t, filepath.Join(folder, "short")))
	s, next := open(t, path), open(t, path)
	if ended, err := s.End(noon, func(of Session) bool { return of.Token == "gone" }); err == nil || len(ended) != 1 {
		t.Fatal(ended, err)
	}
	for name, set := range map[string]*Set{"the process": s, "another one": next, "the next one": open(t, path)} {
		testkit.Got(there(t, set, noon, gone), there(t, set, noon, kept))(t, name+": the session that was ended, and the other one", false, true)
	}
	testkit.Must(t, os.Rename(path, filepath.Join(folder, "short")))
	s = open(t, filepath.Join(folder, "short"))
	begin(t, s, noon, "new")
	testkit.Lacks(t, string(testkit.Read(t, filepath.Join(folder, "short"))), struck)
}

// When the process has no file descriptor left, the sessions in memory and in the file stay as they are.
func TestNoDescriptorIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	s := open(t, path)
	secret := begin(t, s, noon, "a")
	other := begin(t, open(t, path), noon, "b") // by another process
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err) // to lower it is allowed to anybody
	}
	_, ok, err := s.Find(noon, secret)
	_, again, told := s.Find(noon, secret)
	_, _, unsaved := s.Begin(noon, Session{Token: "c"})
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if !ok || !again || err == nil || told != nil || unsaved == nil {
		t.Errorf("without a descriptor: there %t with %v, then %t with %v; one that begins: %v", ok, err, again, told, unsaved)
	}
	testkit.Got(there(t, s, noon, secret), there(t, s, noon, other), there(t, open(t, path), noon, other))(t, "sessions", true, true, true)
}

func TestNoSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	id := idOf("x")
	for _, bad := range []string{"[]\n", `{"id":"x","token":"t"}` + "\n", fmt.Sprintf(`{"id":%q}`, id), fmt.Sprintf(`{"id":%q,"token":"t","person":{}}`, id),
		strings.Repeat("x", maxLine+1), strings.Repeat(fmt.Sprintf(`{"id":%q,"token":"t"}`+"\n", id), Most+1)} {
		testkit.Write(t, path, bad)
		if s, err := Open(Settings{Path: path, Idle: time.Hour, Max: time.Hour}); err == nil || len(s.All(noon)) != 0 {
			t.Errorf("%.80q was read", bad)
		}
	}
}
