package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/cmd/blockd/internal/carried"
	"blockd/cmd/blockd/internal/config"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/records/firstseen"
)

// TestDomainsOfTheLastDrainAreKept: a domain that a milter has heard of after the SMTP filter had ended is
// known to the next process.
func TestDomainsOfTheLastDrainAreKept(t *testing.T) {
	c := config.Config{Index: config.Index{Path: filepath.Join(t.TempDir(), "a.bdx")}, FirstSeen: config.FirstSeen{Domains: true, Size: 64 << 10}}
	open := func() (*daemon, *firstseen.Set) {
		d := &daemon{config: c, log: slog.New(slog.DiscardHandler), metrics: carried.NewRegistry(), parts: []*part{{open: openFirstSeen}}}
		d.setup.rules.Store(&policy.Settings{})
		testkit.Must(t, d.openParts(t.Context()))
		return d, d.setup.rules.Load().FirstSeen.Domains
	}
	d, domains := open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Must(t, d.parts[0].run(ctx))
	domains.AddIfAbsent("late.example")
	d.close()
	d, domains = open()
	if !domains.Known("late.example") {
		t.Error("late.example is new again")
	}
	d.close()
}

// TestTroubleWithFoldingIsToldSeldom has a disk on which live entries cannot be folded, and
// a look at the lists each second for half an hour.
func TestTroubleWithFoldingIsToldSeldom(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "live")
	set := testkit.Value(live.Open(live.Settings{Folder: folder}))(t)
	defer set.Close()
	testkit.Value(set.Apply(live.Change{Entry: "bulk.example"}))(t)
	folded := filepath.Join(folder, "folded")
	testkit.Must(t, os.RemoveAll(folded))
	if err := os.WriteFile(folded, nil, 0o600); err != nil { // in the place of the folder
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		again := renew(set, slog.New(slog.NewTextHandler(&text, nil)))
		for range 30 * 60 {
			if again(t.Context()) {
				t.Fatal("folded")
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(text.String(), "live entries not folded"); n != 3 {
			t.Errorf("%d lines in half an hour, want 3:\n%.400s", n, &text)
		}
	})
}

// TestAnEmptyAnswer takes the place of a short list's copy if it comes twice, and never that of a long one's.
func TestAnEmptyAnswer(t *testing.T) {
	long := ""
	for i := range 100 {
		long += fmt.Sprintf("n%d.example\n", i)
	}
	for _, tt := range []struct {
		rule, copy string
		answers    []string
		taken      []bool
	}{
		{"twice", "old.example\n", []string{"", "# none\n"}, []bool{false, true}},
		{"not in a row", "old.example\n", []string{"", "new.example\n", ""}, []bool{false, true, false}},
		{"a bad one between", "old.example\n", []string{"", "<html>", "", ""}, []bool{false, false, false, true}},
		{"99 entries", long[len("n0.example\n"):], []string{"", ""}, []bool{false, true}},
		{"100 entries", long, []string{"", "", ""}, []bool{false, false, false}},
		{"empty as before", "# none\n", []string{""}, []bool{true}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			l := config.List{Name: "far", Path: testkit.File(t, "far.txt", tt.copy), Format: "plain"}
			check := checkCopy(config.Default(), l)
			for i, text := range tt.answers {
				if err := check(t.Context(), testkit.File(t, "new.txt", text)); (err == nil) != tt.taken[i] {
					t.Errorf("answer %d, %q: %v", i, text, err)
				}
			}
		})
	}
}
