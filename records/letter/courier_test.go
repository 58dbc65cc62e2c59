package letter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// office is a world in which a Courier sends letters.
type office struct {
	mu    sync.Mutex
	quiet bool
	hangs bool // the server does not answer
	fails error
	tries []time.Time
	sent  []Letter
	ids   []string
	path  string
	log   testkit.Log
	diary *Diary
}

// open runs a Courier until stop is called.
func (o *office) open(t *testing.T) (c *Courier, stop func()) {
	o.diary = NewDiary()
	c = &Courier{Every: 24 * time.Hour, Path: o.path, Diary: o.diary, Host: "mx1.here.example",
		Make: func(_ context.Context, since, until time.Time) (Letter, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			l := Letter{Since: since, Until: until, Loads: o.diary.Loads(nil, nil)}
			if !o.quiet {
				l.Mail.Refused = 1
			}
			return l, nil
		},
		Send: func(ctx context.Context, l *Letter, id string) error {
			if o.hangs {
				o.ids = append(o.ids, id)
				<-ctx.Done()
				return ctx.Err()
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.tries, o.ids = append(o.tries, time.Now()), append(o.ids, id)
			if o.fails == nil {
				o.sent = append(o.sent, *l)
			}
			return o.fails
		}}
	c.Register(o.log.Logger(), prometheus.NewRegistry())
	return c, testkit.Running(t, func(ctx context.Context) { c.Run(ctx) })
}

func (o *office) be(quiet bool, fails error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quiet, o.fails = quiet, fails
}

// record is what a Courier has done.
type record struct {
	tries []time.Time
	sent  []Letter
	ids   []string
}

// seen is what was done until now, once the Courier waits.
func (o *office) seen() record {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return record{slices.Clone(o.tries), slices.Clone(o.sent), slices.Clone(o.ids)}
}

// joined fails unless the letters are about one time without gaps, each part once, from a time to a time about an hour ago at most.
func (o *office) joined(t *testing.T, n int, from time.Time) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.sent) != n {
		t.Fatalf("%d letters, want %d\n%s", len(o.sent), n, o.log.String())
	}
	for _, l := range o.sent {
		if !l.Since.Equal(from) {
			t.Errorf("a letter since %v, the one before until %v", l.Since, from)
		}
		from = l.Until
	}
}

func inOffice(t *testing.T, f func(t *testing.T, o *office)) {
	path := filepath.Join(t.TempDir(), "report")
	synctest.Test(t, func(t *testing.T) { f(t, &office{path: path}) })
}

// There is a letter a day, over restarts, about times that join; and none where nothing has happened.
func TestLettersJoin(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		began := time.Now()
		_, stop := o.open(t)
		time.Sleep(3*24*time.Hour + time.Hour)
		o.joined(t, 3, began)
		stop()
		for range 48 { // restarts each hour
			_, stop = o.open(t)
			time.Sleep(time.Hour)
			stop()
		}
		o.joined(t, 5, began)
		time.Sleep(10 * 24 * time.Hour) // it is off
		_, stop = o.open(t)
		time.Sleep(time.Hour)
		o.joined(t, 6, began)
		o.be(true, nil)
		time.Sleep(5 * 24 * time.Hour)
		o.joined(t, 6, began)
		o.be(false, nil)
		time.Sleep(24 * time.Hour)
		stop()
		if l := o.seen().sent[6]; l.Until.Sub(l.Since) > 25*time.Hour {
			t.Errorf("after quiet days a letter from %v to %v", l.Since, l.Until)
		}
	})
}

// A letter that cannot be sent is tried again with rests that grow, by one id, and is then about the whole time.
func TestTriesAgain(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		began := time.Now()
		o.be(false, errors.New("smtp.upstream: connection refused"))
		c, stop := o.open(t)
		time.Sleep(4 * 24 * time.Hour)
		done := o.seen()
		testkit.Equal(t, "a fault", c.Fault() != nil, true)
		rest := time.Duration(0)
		for i := 1; i < len(done.tries); i++ {
			gap := done.tries[i].Sub(done.tries[i-1]).Round(time.Minute)
			if gap < rest || gap > longestRest+time.Minute || done.ids[i] != done.ids[0] {
				t.Errorf("try %d after %v, the one before after %v, id %s", i, gap, rest, done.ids[i])
			}
			rest = gap
		}
		testkit.AtMost(t, "tries in three days", len(done.tries), 25)
		testkit.Equal(t, "errors in the log", strings.Count(o.log.String(), "level=ERROR"), 1)
		stop()
		o.be(false, nil)
		c, stop = o.open(t)
		defer stop()
		time.Sleep(time.Hour)
		o.joined(t, 1, began)
		ids := o.seen().ids
		testkit.Equal(t, "id of the letter after a restart", ids[len(ids)-1], done.ids[0])
		testkit.Should(t, c.Fault())
		testkit.Lacks(t, o.log.String(), "was not waited for")
	})
}

// A try that is cut off is made again by the next process, which says that the letter may come twice, with one id; a third says
// nothing.
func TestCutOff(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		began := time.Now()
		o.hangs = true
		_, stop := o.open(t)
		time.Sleep(25 * time.Hour)
		stop()
		o.hangs = false
		for range 2 {
			_, stop = o.open(t)
			time.Sleep(time.Hour)
			stop()
		}
		o.joined(t, 1, began)
		ids := o.seen().ids
		testkit.Got(len(ids), testkit.At(ids, 0))(t, "ids", 2, testkit.At(ids, 1))
		testkit.Equal(t, "lines that it may come twice", strings.Count(o.log.String(), "was not waited for"), 1)
	})
}

// Where it cannot be noted that a letter was sent, none is: each start would send it again.
func TestFullDisk(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		_, stop := o.open(t)
		defer stop()
		time.Sleep(time.Hour)
		testkit.Must(t, os.Remove(o.path))
		testkit.Must(t, os.MkdirAll(filepath.Join(o.path, "in the way"), 0o755))
		time.Sleep(48 * time.Hour)
		testkit.Equal(t, "tries to send", len(o.seen().tries), 0)
		testkit.Must(t, os.RemoveAll(o.path))
		time.Sleep(24 * time.Hour)
		testkit.AtLeast(t, "letters after the disk has room again", len(o.seen().sent), 1)
	})
}

// A period that begins in the future, because the clock was set back, begins now; and a damaged file costs its period.
func TestClockAndDamage(t *testing.T) {
	for name, text := range map[string]string{
		"future":  `{"report_version":1,"since":"2099-01-01T00:00:00Z"}`,
		"damaged": `{"report_version":1,`,
		"other":   `{"report_version":2,"since":"1999-01-01T00:00:00Z"}`,
	} {
		inOffice(t, func(t *testing.T, o *office) {
			testkit.Write(t, o.path, text)
			began := time.Now()
			_, stop := o.open(t)
			time.Sleep(25 * time.Hour)
			stop()
			o.joined(t, 1, began)
			testkit.Got(o.log.String())(t, name, "…a period…")
		})
	}
}

// How lists are loaded is kept over restarts, each load is in one letter, and what is loaded while a letter is made is in the next.
func TestDiary(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		_, stop := o.open(t)
		o.diary.Served(map[string]Content{"ads": {100, 1}})
		time.Sleep(time.Hour)
		o.diary.Served(map[string]Content{"ads": {110, 2}, "new": {5, 1}})
		o.diary.Refused("ads", "shrunk")
		time.Sleep(time.Hour)
		stop()
		_, stop = o.open(t)
		o.diary.Served(map[string]Content{"ads": {110, 2}, "new": {5, 1}})
		time.Sleep(time.Hour)
		o.diary.Served(map[string]Content{"ads": {120, 3}, "new": {5, 1}})
		time.Sleep(24 * time.Hour)
		o.diary.Served(map[string]Content{"ads": {130, 4}, "new": {5, 1}})
		time.Sleep(24 * time.Hour)
		stop()
		sent := o.seen().sent
		testkit.AtLeast(t, "letters", len(sent), 2)
		want := []Load{{List: "ads", Loads: 2, Before: 100, Entries: 120, Refused: 1, Why: "shrunk"}, {List: "new", Loads: 1, Entries: 5, New: true}}
		testkit.EqualSlices(t, "loads", sent[0].Loads, want[:])
		testkit.EqualSlices(t, "loads of the second letter", sent[1].Loads, []Load{{List: "ads", Loads: 1, Before: 120, Entries: 130}})
	})
	d := NewDiary()
	d.Served(map[string]Content{"ads": {1, 1}})
	d.Served(map[string]Content{"ads": {2, 2}})
	before := d.State()
	d.Served(map[string]Content{"ads": {3, 3}})
	d.Refused("ads", "torn")
	d.Told(before)
	if got := d.Loads(nil, map[string]int{"ads": 4}); len(got) != 1 || got[0] != (Load{List: "ads", Loads: 1, Before: 2, Entries: 3, Refused: 1, Why: "torn", Held: 4}) {
		t.Errorf("after a letter: %+v", got)
	}
}

// A person who is forgotten is in no note, at once, in the file as in memory; the period goes on.
func TestForget(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		began := time.Now()
		c, stop := o.open(t)
		o.diary.Refused("bad", "it would lift refusals: bob@there.example -> anna@here.example")
		o.diary.Refused("worse", "it has 3 entries")
		time.Sleep(time.Minute) // it is written
		o.diary.Refused("new", "bob@there.example once more")
		names := func(text string) bool { return strings.Contains(text, "bob@") }
		testkit.Got(c.Forget(names))(t, "Forget", 2, nil)
		if text := string(testkit.Read(t, o.path)); strings.Contains(text, "bob@") || !strings.Contains(text, "it has 3 entries") {
			t.Errorf("the file: %s", text)
		}
		time.Sleep(24 * time.Hour)
		o.joined(t, 1, began)
		for _, l := range o.sent[0].Loads {
			testkit.Lacks(t, l.Why, "bob@")
			testkit.Equal(t, "the letter", l.Refused, 1)
		}
		stop()
		testkit.Got(ForgetIn(o.path, names))(t, "when nothing is left", 0, nil)
		testkit.Got(ForgetIn(o.path+"-none", names))(t, "without a file", 0, nil)
	})
}
