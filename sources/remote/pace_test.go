package remote

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

func TestPauses(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	s := func(every time.Duration) *source { return &source{Source: Source{Every: every}} }
	tests := []struct {
		name        string
		pause       func(random float64) time.Duration
		least, most time.Duration
	}{
		{"an hour, a tenth up or down", s(hour).pause, 54 * minute, 66 * minute},
		{"never below a minute", s(minute).pause, minute, 66 * time.Second},
		{"after one failure", retrying(s(hour), 1, 0), minute, 2 * minute},
		{"after two", retrying(s(hour), 2, 0), 2 * minute, 4 * minute},
		{"after five", retrying(s(hour), 5, 0), 16 * minute, 32 * minute},
		{"no longer than the schedule", retrying(s(hour), 6, 0), 30 * minute, hour},
		{"not after a million either", retrying(s(hour), 1_000_000, 0), 30 * minute, hour},
		{"a month's schedule", retrying(s(mostEvery), 100, 0), mostEvery / 2, mostEvery},
		{"a minute's schedule", retrying(s(minute), 9, 0), minute, minute},
		{"as long as the server asks", retrying(s(hour), 1, 2*hour), 2 * hour, 2 * hour},
		{"no shorter because the server asks", retrying(s(hour), 5, minute), 16 * minute, 32 * minute},
		{"no longer than a day", retrying(s(hour), 1, 1000*hour), 24 * hour, 24 * hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Equal(t, "least", tt.pause(0), tt.least)
			testkit.Equal(t, "most", tt.pause(1).Round(time.Second), tt.most)
			for range 1000 {
				if got := tt.pause(rand.Float64()); got < tt.least || got > tt.most+time.Second {
					t.Errorf("%s is not between %s and %s", got, tt.least, tt.most)
				}
			}
		})
	}
}

func retrying(s *source, failures int, after time.Duration) func(float64) time.Duration {
	return func(random float64) time.Duration { return s.retry(failures, after, random) }
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"120":                           2 * time.Minute,
		"0":                             0,
		"-5":                            0,
		"1.5":                           0,
		"soon":                          0,
		"99999999999999999999":          0,
		"2147483647":                    2147483647 * time.Second,
		"Sun, 01 Mar 2026 12:30:00 GMT": 30 * time.Minute,
		"Sun, 01 Mar 2026 11:30:00 GMT": 0,
	} {
		testkit.Equal(t, fmt.Sprintf("parseRetryAfter(%q)", value), parseRetryAfter(value, now), want)
	}
}

// clock is a list server that notes when it was asked.
type clock struct {
	start time.Time
	asked []time.Duration
}

func (c *clock) note() int {
	c.asked = append(c.asked, time.Since(c.start))
	return len(c.asked)
}

// gap is the pause before the nth request, from 1.
func (c *clock) gap(n int) time.Duration { return c.asked[n] - c.asked[n-1] }

// runs lets handler serve x for that long.
func runs(t *testing.T, x *fixture, long time.Duration, handler http.HandlerFunc) {
	t.Helper()
	stop := x.serving(handler)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	testkit.Equal(t, "Run()", x.Run(ctx), nil)
	stop()
	synctest.Wait()
}

func TestRunAsksBySchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
		c := &clock{start: time.Now()}
		runs(t, x, 100*time.Hour, func(w http.ResponseWriter, r *http.Request) {
			c.note()
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(list))
		})
		if c.asked[0] != 0 || len(c.asked) < 91 || len(c.asked) > 112 {
			t.Errorf("asked %d times in 100 hours, first after %s", len(c.asked), c.asked[0])
		}
		different := map[time.Duration]bool{}
		for n := 1; n < len(c.asked); n++ {
			if g := c.gap(n); g < 54*time.Minute || g > 66*time.Minute {
				t.Errorf("a pause of %s", g)
			}
			different[c.gap(n)] = true
		}
		testkit.AtLeast(t, "different pauses", len(different), 50)
		x.counted(1, float64(len(c.asked)-1), 0, 0)
		testkit.Equal(t, x.log.String(), strings.Count(x.log.String(), "\n"), 1)
	})
}

func TestRunBacksOffAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
		x.write("old.example\n")
		c := &clock{start: time.Now()}
		runs(t, x, 5*time.Hour, func(w http.ResponseWriter, r *http.Request) {
			switch n := c.note(); {
			case n <= 7:
				w.WriteHeader(503)
			default:
				io.WriteString(w, "old.example\n") // the server is back with what we have
			}
		})
		for n, most := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			most *= time.Minute
			if g := c.gap(n + 1); g < most/2 || g > most {
				t.Errorf("pause %d: %s, want %s to %s", n+1, g, most/2, most)
			}
		}
		testkit.AtLeast(t, "after a success", c.gap(8), 54*time.Minute)
		x.holds("old.example\n")
		log := x.log.String()
		if strings.Count(log, "list not fetched") != 7 || strings.Count(log, "list server answers again") != 1 || strings.Count(log, "\n") != 8 {
			t.Errorf("log:\n%s", log)
		}
		if !strings.Contains(log, `msg="list not fetched" list=spam url=http://127.0.0.1/spam.txt class=status error="the server answers 503 Service Unavailable" failures=1 next=1m`) {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestRunWaitsAsLongAsTheServerAsks(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
			c := &clock{start: time.Now()}
			runs(t, x, 200*time.Hour, func(w http.ResponseWriter, r *http.Request) {
				switch c.note() {
				case 1:
					w.Header().Set("Retry-After", "18000")
					w.WriteHeader(status)
				case 2:
					w.Header().Set("Retry-After", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
					w.WriteHeader(status)
				default:
					io.WriteString(w, list)
				}
			})
			testkit.Got(c.gap(1), c.gap(2))(t, "pauses", 5*time.Hour, mostRetryAfter)
		})
	}
}

func TestRunAfterARestart(t *testing.T) {
	tests := []struct {
		name   string
		change func(x *fixture)
		sleep  time.Duration
		most   time.Duration // until the first request
	}{
		{"a fresh copy is left alone", nil, 20 * time.Minute, 46 * time.Minute},
		{"an old one is asked about at once", nil, 3 * time.Hour, 0},
		{"a missing one is fetched at once", func(x *fixture) { os.Remove(x.path) }, time.Minute, 0},
		{"an edited one too", func(x *fixture) { x.write("mine.example\n") }, time.Minute, 0},
		{"a copy without a receipt too", func(x *fixture) { os.Remove(receiptPath(x.path)) }, time.Minute, 0},
		{"a clock that was set back", nil, -3 * time.Hour, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Source{URL: "http://127.0.0.1/spam.txt"}
				x := newFixture(t, s)
				x.raw(answers(good))
				x.fetch()
				if tt.sleep > 0 {
					<-time.After(tt.sleep)
				} else {
					text, _ := os.ReadFile(receiptPath(x.path))
					text = []byte(strings.ReplaceAll(string(text), "2000-", "2001-"))
					testkit.Write(t, receiptPath(x.path), text)
				}
				if tt.change != nil {
					tt.change(x)
				}
				y := x.again(s)
				c := &clock{start: time.Now()}
				runs(t, y, 2*time.Hour, func(w http.ResponseWriter, r *http.Request) {
					c.note()
					io.WriteString(w, list)
				})
				if first := c.asked[0]; first > tt.most || tt.most > 0 && first < tt.most-12*time.Minute {
					t.Errorf("first asked after %s, want about %s", first, tt.most)
				}
				y.holds(list)
			})
		})
	}
}

func TestTheLastSuccessIsKnownAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Source{URL: "http://127.0.0.1/spam.txt"}
		x := newFixture(t, s)
		x.raw(answers(good))
		x.fetch()
		fetched := time.Now().Unix()
		<-time.After(10 * time.Minute)
		y := x.again(s)
		runs(t, y, time.Minute, func(http.ResponseWriter, *http.Request) { t.Error("a fresh copy was asked about") })
		if got := y.metric(`blockd_fetch_last_success_timestamp_seconds{list="spam"}`); int64(got) != fetched {
			t.Errorf("last success = %v, want %d", got, fetched)
		}
	})
}

func TestNowAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt"})
		c := &clock{start: time.Now()}
		go func() {
			<-time.After(10 * time.Minute)
			x.Now()
		}()
		runs(t, x, time.Hour-7*time.Minute, func(w http.ResponseWriter, r *http.Request) {
			c.note()
			io.WriteString(w, list)
		})
		testkit.MustEqual(t, fmt.Sprintf("asked after %v", c.asked), len(c.asked), 2)
		testkit.Equal(t, fmt.Sprintf("asked after %v", c.asked), c.asked[1], 10*time.Minute)
	})
}
