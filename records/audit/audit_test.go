package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

var noon = time.Date(2026, 1, 24, 12, 0, 0, 0, time.UTC)

func journal(t *testing.T) *Log {
	return New(Settings{Folder: filepath.Join(t.TempDir(), "audit"), Max: 1 << 20, Keep: 24 * time.Hour})
}

func add(t *testing.T, l *Log, lines ...Line) {
	t.Helper()
	testkit.Must(t, l.Add(lines...))
}

func verify(t *testing.T, l *Log, known string) Chain {
	t.Helper()
	return testkit.Value(Verify(context.Background(), l.settings.Folder, known))(t)
}

func search(t *testing.T, l *Log, q Query) Found {
	t.Helper()
	return testkit.Value(Search(context.Background(), l.settings.Folder, q))(t)
}

// What is added is found, the newest first, and is a chain, of which anybody can count the sums.
func TestAdd(t *testing.T) {
	l := journal(t)
	testkit.Got(verify(t, l, "").Lines, len(search(t, l, Query{}).Lines))(t, "before the first line", 0, 0)
	add(t, l, Line{Time: noon, By: "anna", Action: EntryAdd, Subject: "block <b@bank.example>", Why: "phishing\n\u202e\x00", Detail: "until 2027"})
	add(t, l, Line{By: "bert (desk)", Action: ListPause, Subject: "bulk"}, Line{By: "anna", Action: ListResume, Subject: strings.Repeat("ä", 2000)})
	found := search(t, l, Query{})
	testkit.MustGot(len(found.Lines), found.Next, found.Damaged)(t, "lines, next, damaged", 3, "", 0)
	first, last := found.Lines[2], found.Lines[0]
	if !first.Time.Equal(noon) || first.Why != "phishing\n\u202e\x00" || first.Previous != "" || last.Previous != found.Lines[1].Hash || len(last.Subject) != 1000 || last.Time.Before(noon) {
		t.Errorf("first %+v, last %+v", first, last)
	}
	if c := verify(t, l, first.Hash); c.Lines != 3 || c.Hash != last.Hash || !c.Has || c.Origin != "" || !c.First.Equal(noon) {
		t.Errorf("%+v", c)
	}
	testkit.Equal(t, "the journal has a hash that no line has", verify(t, l, strings.Repeat("0", 64)).Has, false)
	text := testkit.Value(os.ReadFile(l.file(1)))(t)
	line, _, _ := strings.Cut(string(text), "\n")
	part, _, _ := strings.Cut(line, `,"hash":"`)
	sum := sha256.Sum256([]byte(part))
	testkit.Equal(t, fmt.Sprintf("the sum of %q", part), hex.EncodeToString(sum[:]), first.Hash)
	testkit.Got(l.Problem(), (*Log)(nil).Add(Line{}), (*Log)(nil).Problem())(t, "problems", nil, nil, nil)
}

// No octet can change, no line go, come twice, or change its place, and no file go, without being told. The end alone can go.
func TestVerifyTells(t *testing.T) {
	l := journal(t)
	l.settings.Max = 16 << 10 // a new file after each three lines
	for i := range 8 {
		add(t, l, Line{Time: noon, By: "anna", Action: EntryAdd, Subject: fmt.Sprintf("block b%d@bank.example", i)})
	}
	files := testkit.Value(filesOf(l.settings.Folder))(t)
	testkit.AtLeast(t, fmt.Sprintf("files %v", files), len(files), 3)
	end := verify(t, l, "").Hash
	broken := func(what string) {
		t.Helper()
		c, err := Verify(context.Background(), l.settings.Folder, end)
		var b *Broken
		if !errors.As(err, &b) && c.Has {
			t.Errorf("%s: not told: %+v, %v", what, c, err)
		}
	}
	for _, n := range files[:2] {
		was := testkit.Value(os.ReadFile(l.file(n)))(t)
		put := func(text []byte) {
			t.Helper()
			testkit.Must(t, os.WriteFile(l.file(n), text, 0o600))
		}
		for i := range was {
			text := slices.Clone(was)
			text[i] ^= 1 << (i % 8)
			put(text)
			broken(fmt.Sprintf("file %d, octet %d", n, i))
		}
		lines := bytes.SplitAfter(was, []byte("\n"))
		lines = lines[:len(lines)-1]
		for i := range lines {
			put(bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil))
			if n == 1 && i == 0 {
				testkit.Equal(t, "the first line is gone, and the chain has an origin", verify(t, l, end).Origin != "", true)
			} else {
				broken(fmt.Sprintf("file %d without line %d", n, i))
			}
			put(bytes.Join(slices.Insert(slices.Clone(lines), i, lines[i]), nil))
			broken(fmt.Sprintf("file %d, line %d twice", n, i))
		}
		put(was)
	}
	testkit.Must(t, os.Rename(l.file(2), l.file(2)+".old"))
	broken("a file is missing")
	testkit.Must(t, os.Rename(l.file(2)+".old", l.file(2)))
	c := verify(t, l, end)
	testkit.Got(c.Has, c.Lines)(t, "as it was", true, 8)
	testkit.Must(t, os.Remove(l.file(files[len(files)-1])))
	testkit.Equal(t, "the end is cut off, and a hash of it is there", verify(t, l, end).Has, false)
}

// A crash at each octet of a write leaves what was acknowledged, and the next line goes on from there.
func TestTorn(t *testing.T) {
	l := journal(t)
	add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "one"})
	before := testkit.Value(os.Stat(l.file(1)))(t)
	add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "two"}, Line{By: "anna", Action: EntryAdd, Subject: "three"})
	whole := testkit.Value(os.ReadFile(l.file(1)))(t)
	for size := int(before.Size()); size <= len(whole); size++ {
		testkit.Must(t, os.WriteFile(l.file(1), whole[:size], 0o600))
		kept := int64(bytes.Count(whole[:size], []byte("\n")))
		if c := verify(t, l, ""); c.Lines != kept || c.Unfinished != (whole[size-1] != '\n') {
			t.Fatalf("cut at %d: %+v, want %d lines", size, c, kept)
		}
		testkit.MustEqual(t, fmt.Sprintf("lines found, cut at %d", size), len(search(t, l, Query{}).Lines), int(kept))
		next := New(l.settings) // the process was killed
		add(t, next, Line{By: "anna", Action: EntryAdd, Subject: "after"})
		c := verify(t, l, "")
		testkit.MustGot(c.Lines, c.Unfinished)(t, fmt.Sprintf("after a cut at %d", size), kept+1, false)
	}
}

// A damaged last line stays damaged: what follows does not hide it.
func TestDamagedEnd(t *testing.T) {
	for _, bad := range []string{"x\n", strings.Repeat("x", 3*maxLine), strings.Repeat("x", 3*maxLine) + "\n", "\n\n"} {
		l := journal(t)
		add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "one"})
		f := testkit.Value(os.OpenFile(l.file(1), os.O_APPEND|os.O_WRONLY, 0))(t)
		testkit.Value(f.WriteString(bad))(t)
		f.Close()
		add(t, New(l.settings), Line{By: "anna", Action: EntryAdd, Subject: "two"})
		_, err := Verify(context.Background(), l.settings.Folder, "")
		testkit.Has(t, fmt.Sprint(err), "00000001.jsonl:2: the chain is broken: ")
		testkit.Equal(t, fmt.Sprintf("%.10q: lines found", bad), len(search(t, l, Query{}).Lines), 2)
	}
}

// Several processes and goroutines write one chain.
func TestTogether(t *testing.T) {
	l := journal(t)
	l.settings.Max = 160 << 10
	const writers, each = 6, 40
	var all sync.WaitGroup
	for w := range writers {
		log := l
		if w%2 == 0 {
			log = New(l.settings) // as another process has
		}
		all.Go(func() {
			for i := range each {
				testkit.Should(t, log.Add(Line{By: fmt.Sprint(w), Action: EntryAdd, Subject: fmt.Sprint(i)}))
			}
		})
	}
	all.Wait()
	testkit.Equal(t, "lines", verify(t, l, "").Lines, writers*each)
	for w := range writers {
		for i, line := range search(t, l, Query{By: fmt.Sprint(w)}).Lines {
			testkit.MustEqual(t, fmt.Sprintf("writer %d, line %d", w, i), line.Subject, fmt.Sprint(each-1-i))
		}
	}
}

// Nothing grows without bound, and what goes first is oldest.
func TestKept(t *testing.T) {
	l := journal(t)
	l.settings.Max = 64 << 10
	for i := range 1000 {
		add(t, l, Line{By: "anna", Action: EntryAdd, Subject: fmt.Sprint(i), Why: strings.Repeat("w", 200)})
	}
	files := testkit.Value(filesOf(l.settings.Folder))(t)
	var total int64
	for _, n := range files {
		info := testkit.Value(os.Stat(l.file(n)))(t)
		total += info.Size()
	}
	testkit.AtMost(t, "octets on the disk", total, l.settings.Max)
	testkit.AtLeast(t, "octets on the disk", total, l.settings.Max/2)
	if c := verify(t, l, ""); c.Origin == "" || c.Lines < 50 {
		t.Errorf("%+v", c)
	}
	testkit.Equal(t, "the newest", search(t, l, Query{}).Lines[0].Subject, "999")
}

// What is older than Keep goes, an eighth of that later at the most.
func TestKeptForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := journal(t)
		for i := range 100 {
			add(t, l, Line{By: "anna", Action: EntryAdd, Subject: fmt.Sprint(i)})
			files := testkit.Value(filesOf(l.settings.Folder))(t)
			for _, n := range files { // the clock of the file system is another one
				if found := search(t, l, Query{Text: fmt.Sprint(i)}); n == files[len(files)-1] && len(found.Lines) > 0 {
					testkit.Must(t, os.Chtimes(l.file(n), time.Now(), time.Now()))
				}
			}
			time.Sleep(time.Hour)
		}
		found := search(t, l, Query{}).Lines
		if age := time.Since(found[len(found)-1].Time); age < l.settings.Keep || age > l.settings.Keep*5/4+time.Hour {
			t.Errorf("the oldest of %d lines is %s old", len(found), age)
		}
	})
}

// A journal that cannot be written says so, and goes on when it can.
func TestUnwritable(t *testing.T) {
	l := journal(t)
	add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "one"})
	testkit.Must(t, os.Rename(l.settings.Folder, l.settings.Folder+".away"))
	testkit.Must(t, os.WriteFile(l.settings.Folder, nil, 0o600))
	if err := l.Add(Line{By: "anna"}); !errors.Is(err, ErrUnwritable) || l.Problem() == nil {
		t.Errorf("%v, problem %v", err, l.Problem())
	}
	testkit.Must(t, os.Remove(l.settings.Folder))
	testkit.Must(t, os.Rename(l.settings.Folder+".away", l.settings.Folder))
	add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "two"})
	testkit.Got(verify(t, l, "").Lines, l.Problem())(t, "lines, and the problem", 2, nil)
}

// Search finds what a slow look through all lines finds, page by page, also while lines are added.
func TestSearch(t *testing.T) {
	race.Skip(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	l := journal(t)
	l.settings.Max = 4 << 20
	l.settings.Keep = 1e6 * time.Hour
	var all []Line
	actions := []string{EntryAdd, EntryRemove, ListPause, RequestGrant}
	for i := range 2000 {
		line := Line{Time: noon.Add(time.Duration(i) * time.Minute), By: []string{"anna", "Bert", "root (desk)"}[rnd.IntN(3)], Action: actions[rnd.IntN(4)],
			Subject: fmt.Sprintf("s%d", rnd.IntN(50)), Why: strings.Repeat("w", rnd.IntN(600))}
		all = append(all, line)
	}
	for at := 0; at < len(all); at += 100 {
		add(t, l, all[at:at+100]...)
	}
	for range 60 {
		q := Query{Limit: 1 + rnd.IntN(300)}
		if rnd.IntN(2) == 0 {
			q.By = []string{"ANNA", "bert", "desk"}[rnd.IntN(3)]
		}
		if rnd.IntN(2) == 0 {
			q.Action = []string{"entry", "list.pause", "request", "nothing"}[rnd.IntN(4)]
		}
		if rnd.IntN(3) == 0 {
			q.Text = fmt.Sprintf("S%d", rnd.IntN(50))
		}
		if rnd.IntN(3) == 0 {
			q.Since, q.Until = noon.Add(500*time.Minute), noon.Add(1500*time.Minute)
		}
		var want, have []string
		for _, line := range slices.Backward(all) {
			kind, _, _ := strings.Cut(line.Action, ".")
			if strings.Contains(strings.ToLower(line.By), strings.ToLower(q.By)) && (q.Action == "" || q.Action == line.Action || q.Action == kind) &&
				(q.Text == "" || strings.Contains(line.Subject, strings.ToLower(q.Text))) &&
				(q.Since.IsZero() || !line.Time.Before(q.Since) && line.Time.Before(q.Until)) {
				want = append(want, line.Time.String()+line.Subject)
			}
		}
		for {
			found := search(t, l, q)
			for _, line := range found.Lines {
				have = append(have, line.Time.String()+line.Subject)
			}
			if len(found.Lines) > q.Limit || found.Next != "" && len(found.Lines) < q.Limit || found.Damaged != 0 {
				t.Fatalf("%+v: a page of %d, next %q", q, len(found.Lines), found.Next)
			}
			if q.Cursor = found.Next; q.Cursor == "" {
				break
			}
			add(t, l, Line{Time: noon.AddDate(9, 0, 0), By: "later", Action: "later", Subject: "later"})
		}
		if !slices.Equal(have, want) && len(slices.DeleteFunc(slices.Clone(have), func(s string) bool { return strings.HasSuffix(s, "later") })) != len(want) {
			t.Fatalf("%+v: %d lines, want %d", q, len(have), len(want))
		}
	}
	for _, cursor := range []string{"x", "1", "1-", "-1", "0-1", "1--1", "99999999999999999999-1"} {
		testkit.Fails(Search(context.Background(), l.settings.Folder, Query{Cursor: cursor}))(t, fmt.Sprintf("cursor %q", cursor), ErrCursor)
	}
	testkit.AtLeast(t, "lines found by a cursor behind the end", len(search(t, l, Query{Cursor: "77-5"}).Lines), 1)
}

// Whatever stands in the files, they can be searched, gone on with, and looked through.
func FuzzFiles(f *testing.F) {
	line, _ := Line{Time: noon, By: "anna", Action: EntryAdd, Subject: "one"}.append(nil, "")
	f.Add(line)
	f.Add(append(slices.Clone(line), line...))
	f.Add([]byte("\n{}\n{\"hash\":\"\"}"))
	f.Add(line[:40])
	f.Fuzz(func(t *testing.T, text []byte) {
		l := New(Settings{Folder: t.TempDir(), Max: 1 << 20, Keep: time.Hour})
		testkit.Must(t, os.WriteFile(l.file(1), text, 0o600))
		ctx := context.Background()
		before, wrong := Verify(ctx, l.settings.Folder, "")
		found, err := Search(ctx, l.settings.Folder, Query{})
		if err != nil || wrong == nil && int64(len(found.Lines)) != min(before.Lines, MaxFound) {
			t.Fatalf("verified %+v, %v; found %d, %v", before, wrong, len(found.Lines), err)
		}
		testkit.Must(t, l.Add(Line{By: "anna"}))
		after, still := Verify(ctx, l.settings.Folder, "")
		if (wrong == nil) != (still == nil) || wrong == nil && after.Lines != before.Lines+1 {
			t.Fatalf("before %+v, %v; after %+v, %v", before, wrong, after, still)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	l := New(Settings{Folder: b.TempDir(), Max: 1 << 30, Keep: time.Hour})
	for b.Loop() {
		testkit.Must(b, l.Add(Line{By: "anna", Action: EntryAdd, Subject: "block b@bank.example", Why: "phishing"}))
	}
}
