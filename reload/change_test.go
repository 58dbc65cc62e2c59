package reload

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

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
			d.mkdir("v1")
			d.mkdir("v2")
			d.write("v1/list", "old.example\n")
			d.write("v2/list", "new.example\n")
			d.remove("a.txt")
			d.symlink("v1/list", "a.txt")
		}, func(d *daemon) { d.symlink("v2/list", "a.txt") }},
		{"file behind a symlink", func(d *daemon) {
			d.mkdir("far")
			d.write("far/list", "old.example\n")
			d.symlink("far/list", "a.txt")
		}, func(d *daemon) { d.write("far/list", "new.example\n") }},
		{"mounted ConfigMap", func(d *daemon) {
			d.mkdir("..1")
			d.mkdir("..2")
			d.write("..1/a.txt", "old.example\n")
			d.write("..2/a.txt", "new.example\n")
			d.symlink("..1", "..data")
			d.symlink("..data/a.txt", "a.txt")
		}, func(d *daemon) {
			d.symlink("..2", "..data")
			d.remove("..1")
		}},
		{"folder is a symlink that is swapped", func(d *daemon) {
			d.mkdir("v1")
			d.mkdir("v2")
			d.write("v1/a.txt", "old.example\n")
			d.write("v2/a.txt", "new.example\n")
			d.symlink("v1", "current")
			d.settings.Lists[0].Path = d.path("current/a.txt")
		}, func(d *daemon) { d.symlink("v2", "current") }},
		{"folder removed and made again", func(d *daemon) {
			d.mkdir("lists")
			d.write("lists/a.txt", "old.example\n")
			d.settings.Lists[0].Path = d.path("lists/a.txt")
		}, func(d *daemon) {
			d.remove("lists")
			d.mkdir("lists")
			d.write("lists/a.txt", "new.example\n")
		}},
		{"file added to and removed from a glob", func(d *daemon) {
			d.mkdir("lists")
			d.write("lists/1.txt", "old.example\n")
			d.write("lists/2.txt", "stays.example\n")
			d.settings.Lists[0].Path = d.path("lists/*.txt")
		}, func(d *daemon) {
			d.write("lists/3.txt", "new.example\n")
			d.write("lists/.4.txt", "hidden.example\n")
			d.remove("lists/1.txt")
		}},
		{"folder added to a glob", func(d *daemon) {
			d.mkdir("lists/x")
			d.write("lists/x/1.txt", "old.example\n")
			d.write("lists/readme", "no folder")
			d.settings.Lists[0].Path = d.path("lists/*/1.txt")
		}, func(d *daemon) {
			d.mkdir("lists/y")
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
				if !d.listed("x@old.example") || d.listed("x@new.example") {
					t.Fatalf("not as set up; log:\n%s", d.log)
				}
				if events {
					d.start()
					d.looks(1) // the first: from here on the folders are watched
				} else {
					d.startWithoutEvents()
				}
				tt.do(d)
				d.waitListed("x@new.example")
				d.waitUnlisted("x@old.example")
				if !d.listed("x@always.example") || d.listed("x@hidden.example") {
					t.Error("other entries changed too")
				}
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
