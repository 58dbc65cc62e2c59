package reload

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"blockd/index"
)

// TestFailedBuildsRest holds that a build which fails each time is tried again after rests that grow, and at once when a file
// changes.
func TestFailedBuildsRest(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "one@a.example\n"}).open()
	var mu sync.Mutex
	var tried []time.Time
	d.Reloader.settings.Build = func(context.Context, string, []index.Source, index.Options, bool) (*index.Draft, error) {
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, time.Now())
		return nil, errors.New("no space left on device")
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tried)
	}
	d.start()
	d.write("a.txt", "two@a.example\n")
	d.wait("four builds", func() bool { return count() >= 4 })
	mu.Lock()
	for i := 2; i < 4; i++ { // the first may be tried twice, for two events
		if rest, least := tried[i].Sub(tried[i-1]), testPoll<<(i-2); rest < least {
			t.Errorf("build %d comes %v after the one before, want %v at least", i+1, rest, least)
		}
	}
	mu.Unlock()
	before := count()
	d.write("a.txt", "three@a.example\n")
	d.wait("a build of the changed file", func() bool { return count() > before })
	d.waitProblem("no space left")
}
