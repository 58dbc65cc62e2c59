package reload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

// saves are the ways in which programs put a new text in the place of an old one.
// Each leaves the file whole; what is seen in between may be nothing, or a part.
var saves = []struct {
	name string
	save func(d *daemon, name, text string)
}{
	{"rename over", func(d *daemon, name, text string) {
		d.write(name+".tmp", text)
		d.rename(name+".tmp", name)
	}},
	{"truncate and write", func(d *daemon, name, text string) { d.write(name, text) }},
	{"in pieces", func(d *daemon, name, text string) {
		f, err := os.Create(d.path(name))
		d.must(err)
		defer f.Close()
		for i := 0; i < len(text); i += 7 {
			_, err := f.WriteString(text[i:min(i+7, len(text))])
			d.must(err)
		}
	}},
	{"over the old text, then cut", func(d *daemon, name, text string) {
		f, err := os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE, 0o644)
		d.must(err)
		defer f.Close()
		_, err = f.WriteString(text)
		d.must(err)
		d.must(f.Truncate(int64(len(text))))
	}},
	{"rename over, then chmod", func(d *daemon, name, text string) {
		d.must(os.WriteFile(d.path(name+".tmp"), []byte(text), 0o600))
		d.rename(name+".tmp", name)
		d.must(os.Chmod(d.path(name), 0o644))
	}},
	{"backup by rename", func(d *daemon, name, text string) {
		d.rename(name, name+"~")
		d.write(name, text)
	}},
	{"backup by link", func(d *daemon, name, text string) {
		os.Remove(d.path(name + "~"))
		d.must(os.Link(d.path(name), d.path(name+"~")))
		d.write(name+".tmp", text)
		d.rename(name+".tmp", name)
	}},
	{"remove and write", func(d *daemon, name, text string) {
		d.remove(name)
		d.write(name, text)
	}},
	{"the time put back", func(d *daemon, name, text string) {
		d.write(name+".tmp", text)
		d.must(os.Chtimes(d.path(name+".tmp"), time.Unix(1e9, 0), time.Unix(1e9, 0)))
		d.rename(name+".tmp", name)
	}},
}

// TestWritersOfEveryKind has three lists written without a pause: a file in every
// way at random, a file behind a symlink that is switched, and a folder as
// Kubernetes mounts it. No entry that all versions have is missing for an instant,
// and when the writers rest, their last word serves.
func TestWritersOfEveryKind(t *testing.T) {
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			t.Parallel()
			text := func(list string, i int) string {
				return fmt.Sprintf("always-%s.example\n%s%d.example\n", list, list, i)
			}
			d := newDaemon(t, map[string]string{"a.txt": text("a", 0), "b.txt": "", "c.txt": ""})
			d.remove("b.txt")
			d.remove("c.txt")
			link := func(i int) {
				d.write(fmt.Sprintf("b.%d", i%5), text("b", i))
				d.symlink(fmt.Sprintf("b.%d", i%5), "b.txt")
			}
			mount := func(i int) {
				folder := fmt.Sprintf("..%d", i)
				d.mkdir(folder)
				d.write(folder+"/c.txt", text("c", i))
				d.symlink(folder, "..data")
				d.remove(fmt.Sprintf("..%d", i-1))
			}
			link(0)
			mount(0)
			d.symlink("..data/c.txt", "c.txt")
			if events {
				d.settings.Poll = time.Hour // it must be the events
			}
			d.open()
			if events {
				d.start()
			} else {
				d.startWithoutEvents()
			}
			const versions = 60
			var writers sync.WaitGroup
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(1, 0))
				for i := 1; i <= versions; i++ {
					saves[rng.IntN(len(saves))].save(d, "a.txt", text("a", i))
				}
			})
			writers.Go(func() {
				for i := 1; i <= versions; i++ {
					link(i)
				}
			})
			writers.Go(func() {
				for i := 1; i <= versions; i++ {
					mount(i)
				}
			})
			whole := func() bool {
				ix := d.Live()
				return listed(t, ix, "x@always-a.example") && listed(t, ix, "x@always-b.example") && listed(t, ix, "x@always-c.example")
			}
			last := func() bool {
				if !whole() {
					t.Errorf("an entry is missing; log:\n%s", d.log)
				}
				return d.listed(fmt.Sprintf("x@a%d.example", versions)) && d.listed(fmt.Sprintf("x@b%d.example", versions)) &&
					d.listed(fmt.Sprintf("x@c%d.example", versions))
			}
			d.wait("the last word of all three", last)
			writers.Wait()
			d.wait("the last word when all rest", last)
			d.waitWell()
		})
	}
}

// TestTwoDaemonsOfOneIndex share the path of an index, as they should not: both
// serve the last word in the end, and the file is whole.
func TestTwoDaemonsOfOneIndex(t *testing.T) {
	one := newDaemon(t, map[string]string{"a.txt": "v0.example\n"}).open()
	other := &daemon{t: t, dir: one.dir, settings: one.settings}
	other.open()
	one.start()
	other.start()
	const versions = 15
	for i := 1; i <= versions; i++ {
		one.write("a.tmp", fmt.Sprintf("always.example\nv%d.example\n", i))
		one.rename("a.tmp", "a.txt")
		if i%3 == 0 {
			one.waitListed(fmt.Sprintf("x@v%d.example", i))
		}
	}
	for _, d := range []*daemon{one, other} {
		d.waitListed(fmt.Sprintf("x@v%d.example", versions))
		d.waitWell()
	}
	ix := testkit.Value(index.Open(one.settings.Path))(t)
	testkit.Should(t, ix.Verify(t.Context()))
	testkit.Equal(t, "drafts are left", len(testkit.Value(filepath.Glob(one.settings.Path+".tmp*"))(t)), 0)
}

// TestFolderThatVanishesAndReturns is seen from the nearest folder above it that
// is there: no poll comes to help.
func TestFolderThatVanishesAndReturns(t *testing.T) {
	d := newDaemon(t, nil)
	d.write("x/y/a.txt", "old.example\n")
	d.settings.Lists = []List{{Name: "a", Path: d.path("x/y/a.txt"), Settings: lists.Settings{Format: "plain"}}}
	d.settings.Poll = time.Hour
	d.open().watching()
	for i := range 3 {
		d.remove("x")
		d.waitProblem("list a", "missing")
		if !d.listed("x@old.example") && i == 0 {
			t.Error("entries went with the folder")
		}
		d.mkdir("x/y")
		d.cured("x/y/a.txt", fmt.Sprintf("new%d.example\n", i), fmt.Sprintf("x@new%d.example", i))
	}
}

// TestFirstListInAFolderThatIsNotThereYet is how the copy of a remote list comes.
func TestFirstListInAFolderThatIsNotThereYet(t *testing.T) {
	d := newDaemon(t, nil)
	d.settings.Lists = []List{{Name: "a", Path: d.path("copies/of/a.txt"), Settings: lists.Settings{Format: "plain"}}}
	d.settings.Poll = time.Hour
	d.open()
	d.start()
	if d.Status().Ready {
		t.Error("ready without the list")
	}
	d.looks(1)
	d.mkdir("copies/of")
	d.served("copies/of/a.txt", "new.example\n", "x@new.example")
	d.wait("readiness", func() bool { return d.Status().Ready })
}

// TestLostEventsAreAnEvent: when the system has dropped some, something happened.
func TestLostEventsAreAnEvent(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	w := newWatch(d.Reloader.log)
	if w.events == nil {
		t.Skip("no file events here")
	}
	defer w.close()
	w.events.Errors <- fsnotify.ErrEventOverflow
	select {
	case <-w.changed:
	case <-time.After(deadline):
		t.Error("nothing is looked at")
	}
	if d.count("level=WARN") > 0 {
		t.Errorf("log:\n%s", d.log)
	}
}

// TestFileOfTheFuture: a clock that was wrong must not have a list read anew at
// every poll for the rest of the year.
func TestFileOfTheFuture(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	for _, tt := range []struct {
		ago    time.Duration
		unsure bool
	}{{0, true}, {time.Second, true}, {time.Hour, false}, {-time.Second, true}, {-365 * testDay, false}} {
		var c fileCache
		c.read(t.Context(), time.Now().Add(tt.ago), d.sources())
		testkit.Equal(t, fmt.Sprintf("a file of %s ago: unsure", tt.ago), c.unsure, tt.unsure)
	}
}

// TestRefusalOfWhatIsGone: a refusal is remembered for the content that was
// refused. A file that was bad for as long as the build took is built again.
func TestRefusalOfWhatIsGone(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	d.write("a.txt", "new.example\n")
	v := d.view(t.Context(), time.Now())
	d.decidedOn = nil
	if d.decideOn(v, nil); d.decidedOn == nil {
		t.Error("the refusal of a file that rests is not remembered")
	}
	d.write("a.txt", "one two\n")
	d.write("a.tmp", "new.example\n")
	d.rename("a.tmp", "a.txt")
	d.decidedOn = nil
	if d.decideOn(v, nil); d.decidedOn != nil {
		t.Error("the refusal of a file that has moved meanwhile is remembered")
	}
}

// TestPermissionThatGoesAndComesBack runs as a user who is not let in everywhere.
func TestPermissionThatGoesAndComesBack(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	d := newDaemon(t, nil)
	d.write("x/a.txt", "old.example\n")
	d.settings.Lists = []List{{Name: "a", Path: d.path("x/a.txt"), Settings: lists.Settings{Format: "plain"}}}
	d.open().watching()
	for i, path := range []string{"x/a.txt", "x"} {
		mode := os.FileMode(0o644)
		if path == "x" {
			mode = 0o755
		}
		d.must(os.Chmod(d.path(path), 0))
		d.waitProblem("list a", "permission")
		d.must(os.Chmod(d.path(path), mode))
		d.waitWell()
		d.cured("x/a.txt", fmt.Sprintf("new%d.example\n", i), fmt.Sprintf("x@new%d.example", i))
	}
}

// asNobody runs the test of t in a process of its own, without root's rights.
func asNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	dir := testkit.Value(os.MkdirTemp("", "nobody-"))(t)
	defer os.RemoveAll(dir)
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test"), program, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, nobody, nobody)
	}
	testkit.Must(t, err)
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "GOCOVERDIR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as nobody nothing was tested:\n%s", out)
	}
}

// TestChangesAreServed makes one change after the other, each in the way that
// some program makes it. Every one runs with events and with the poll alone.
func TestChangesAreServed(t *testing.T) {
	tests := []struct {
		name  string
		setup func(*daemon) // before Open; nil: nothing
		do    func(*daemon) // must list new.example and take old.example off
	}{
		{"of equal length", nil, func(d *daemon) { d.write("a.txt", "new.example\n") }},
		{"packed from now on", nil, func(d *daemon) { d.write("a.txt", packed(d.t, "new.example\n")) }},
		{"symlink to another file", func(d *daemon) {
			d.write("v1/list", "old.example\n")
			d.write("v2/list", "new.example\n")
			d.remove("a.txt")
			d.symlink("v1/list", "a.txt")
		}, func(d *daemon) { d.symlink("v2/list", "a.txt") }},
		{"file behind a symlink", func(d *daemon) {
			d.write("far/list", "old.example\n")
			d.symlink("far/list", "a.txt")
		}, func(d *daemon) { d.write("far/list", "new.example\n") }},
		{"mounted ConfigMap", func(d *daemon) {
			d.write("..1/a.txt", "old.example\n")
			d.write("..2/a.txt", "new.example\n")
			d.symlink("..1", "..data")
			d.symlink("..data/a.txt", "a.txt")
		}, func(d *daemon) {
			d.symlink("..2", "..data")
			d.remove("..1")
		}},
		{"folder is a symlink that is swapped", func(d *daemon) {
			d.write("v1/a.txt", "old.example\n")
			d.write("v2/a.txt", "new.example\n")
			d.symlink("v1", "current")
			d.settings.Lists[0].Path = d.path("current/a.txt")
		}, func(d *daemon) { d.symlink("v2", "current") }},
		{"folder removed and made again", func(d *daemon) {
			d.write("lists/a.txt", "old.example\n")
			d.settings.Lists[0].Path = d.path("lists/a.txt")
		}, func(d *daemon) {
			d.remove("lists")
			d.write("lists/a.txt", "new.example\n")
		}},
		{"file added to and removed from a glob", func(d *daemon) {
			d.write("lists/1.txt", "old.example\n")
			d.write("lists/2.txt", "stays.example\n")
			d.settings.Lists[0].Path = d.path("lists/*.txt")
		}, func(d *daemon) {
			d.write("lists/3.txt", "new.example\n")
			d.write("lists/.4.txt", "hidden.example\n")
			d.remove("lists/1.txt")
		}},
		{"folder added to a glob", func(d *daemon) {
			d.write("lists/x/1.txt", "old.example\n")
			d.write("lists/readme", "no folder")
			d.settings.Lists[0].Path = d.path("lists/*/1.txt")
		}, func(d *daemon) {
			d.write("lists/y/1.txt", "new.example\n")
			d.remove("lists/x")
		}},
	}
	for _, tt := range tests {
		for _, events := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, events %v", tt.name, events), func(t *testing.T) {
				t.Parallel()
				d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
				if tt.setup != nil {
					tt.setup(d)
				}
				if events {
					d.settings.Poll = time.Hour // it must be the events
				}
				d.open()
				d.serves("not as set up", "x@old.example", "!x@new.example")
				if events {
					d.start()
					d.looks(1) // the first: from here on the folders are watched
				} else {
					d.startWithoutEvents()
				}
				tt.do(d)
				d.waitListed("x@new.example")
				d.waitUnlisted("x@old.example")
				d.serves("other entries changed too", "x@always.example", "!x@hidden.example")
				d.waitWell()
				d.wantMetric("blockd_reload_last_attempt_success", "1")
				testkit.Equal(t, "status is of another generation", d.Status().Generation, d.Live().Generation())
			})
		}
	}
}

// TestNowReadsEverything changes a file so that nothing but its content tells.
func TestNowReadsEverything(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Quiet, d.settings.Poll = time.Hour, time.Hour
	long := time.Now().Add(-time.Hour)
	d.must(os.Chtimes(d.path("a.txt"), long, long))
	d.open()
	d.start()
	d.write("a.txt", "new.example\n")
	d.must(os.Chtimes(d.path("a.txt"), long, long))
	if d.moved() {
		t.Skip("the file system tells more than size, time and mode")
	}
	d.Now()
	d.Now() // and never blocks
	d.waitListed("x@new.example")
}

// TestSameContentIsNotBuilt touches and rewrites: the generation stays.
func TestSameContentIsNotBuilt(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	d.start()
	generation := d.Status().Generation
	d.write("a.txt", "old.example\n")
	d.looks(1)
	d.write("copy", "old.example\n")
	d.rename("copy", "a.txt")
	d.looks(1)
	d.Now()
	d.looks(1)
	testkit.Equal(t, "generation: after rewriting the same", d.Status().Generation, generation)
	d.wantMetric(`blockd_reloads_total{result="swapped"}`, "1")
}

// TestNoisyFolder writes beside the list without a pause: the list is read all
// the same, within the bound of pace.
func TestNoisyFolder(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Poll = time.Hour
	d.open().watching()
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				os.WriteFile(d.path("noise"), nil, 0o644)
			}
		}
	})
	defer noise.Wait()
	defer close(stop)
	d.served("a.txt", "new.example\n", "x@new.example")
}

func TestSwapIsOneLogLine(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"}).open()
	first := d.Status().Generation
	d.start()
	d.served("a.txt", "new.example\nmore.example\n", "x@new.example")
	d.wait("the log line", func() bool { return d.count("lists swapped in") == 2 })
	for _, want := range []string{"previous=" + first, "generation=" + d.Status().Generation, `entries="[a 1->2 b 1->1]"`, "seconds="} {
		if d.count("lists swapped in") != 2 || !strings.Contains(d.log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, d.log)
		}
	}
	d.wantMetric(`blockd_list_entries{list="a"}`, "2")
	d.wantMetric(`blockd_list_entries{list="b"}`, "1")
	d.wantMetric("blockd_index_keys", "3")
	if info, err := os.Stat(d.settings.Path); err != nil || d.metric("blockd_index_bytes") == "0" || info.Size() == 0 {
		t.Errorf("index file: %v, %v", info, err)
	}
}

// TestModeAndSettingsReachTheIndex holds what List says against the list table.
func TestModeAndSettingsReachTheIndex(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	exact := false
	d.settings.Lists[0].Mode = index.Shadow
	d.settings.Lists[0].Settings = lists.Settings{Format: "plain", Action: lists.Allow, Subdomains: &exact}
	d.open()
	source := d.Status().Files[0].Source
	if source.Mode != index.Shadow || source.Settings.Action != lists.Allow || d.listed("x@sub.old.example") {
		t.Errorf("source %+v", source)
	}
}
