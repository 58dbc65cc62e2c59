package shared_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/relay"
	"blockd/internal/testkit"
	"blockd/internal/testkit/toxiproxy"
)

// spoiled are ways in which a link fails while its connections stay open, or end in the midst of something.
var spoiled = map[string][]toxiproxy.Toxic{
	"slow":                       {{Type: "latency", Stream: "upstream", Attributes: map[string]int{"latency": 200, "jitter": 100}}, {Type: "latency", Stream: "downstream", Attributes: map[string]int{"latency": 200, "jitter": 100}}},
	"narrow":                     {{Type: "bandwidth", Stream: "downstream", Attributes: map[string]int{"rate": 1}}}, // KB a second
	"in pieces":                  {{Type: "slicer", Stream: "downstream", Attributes: map[string]int{"average_size": 5, "size_variation": 4, "delay": 100}}},
	"answers get lost":           {{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 0}}}, // changes are made, and nobody hears of it
	"questions get lost":         {{Type: "timeout", Stream: "upstream", Attributes: map[string]int{"timeout": 0}}},
	"hangs, then ends":           {{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 700}}},
	"ends slowly":                {{Type: "slow_close", Stream: "downstream", Attributes: map[string]int{"delay": 2000}}, {Type: "limit_data", Stream: "downstream", Attributes: map[string]int{"bytes": 300}}},
	"ends in an answer":          {{Type: "limit_data", Stream: "downstream", Attributes: map[string]int{"bytes": 120}}},
	"ends in a question":         {{Type: "limit_data", Stream: "upstream", Attributes: map[string]int{"bytes": 400}}},
	"is reset after some moment": {{Type: "reset_peer", Stream: "downstream", Attributes: map[string]int{"timeout": 150}}},
}

// through is a database by way of a link.
func (e engine) through(t *testing.T, l *toxiproxy.Link) shared.Engine {
	t.Helper()
	dsn := "redis://" + l.Address
	if e.kind == "postgres" {
		dsn = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", l.Address, url.PathEscape(e.database))
	}
	opened, err := openEngine(e.kind, dsn)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// However a link fails, a change is answered in some seconds, what was known acts, and once the link is well again all is as the database has it: with
// each change that was acknowledged, and no other loss told of.
func TestSpoiledLinks(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		proxy := toxiproxy.Start(t)
		for name, toxics := range spoiled {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // they wait for most of the time
				e := e
				if e.kind == "postgres" {
					e = ofPostgres(t)
				} else {
					e = ofRedis(t)
				}
				link := proxy.Link(t, strings.NewReplacer(" ", "-", ",", "").Replace(name), e.address)
				a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.through(t, link), func(o *shared.Options) { o.SumEvery = 2 * time.Second })
				b := fleet(t, e, 1, nil)[0]
				testkit.Eventually(t, "the engine answers", func() bool { return a.Status().Up })
				a.apply(t, block("known.example", "before"))
				mend := link.Spoil(t, toxics...)
				made := []string{"known.example"}
				for i := range 4 {
					entry := fmt.Sprintf("x%d.example", i)
					begun := time.Now()
					if _, err := a.set.Apply(block(entry, "while it is "+name)); err == nil {
						made = append(made, entry)
					}
					if took := time.Since(begun); took > 20*time.Second {
						t.Errorf("a change was answered after %s", took)
					}
					if a.has("known.example") == "" {
						t.Error("what was known does not act")
					}
					b.apply(t, block(fmt.Sprintf("y%d.example", i), "elsewhere"))
				}
				mend()
				testkit.Within(t, "all is as the database has it", 2*time.Minute, func() bool {
					rows := content(t, e)
					return a.Status().Up && a.same(rows) == "" && b.same(rows) == ""
				})
				for _, entry := range made {
					if a.has(entry) == "" || b.has(entry) == "" {
						t.Errorf("%s was acknowledged, and is not there", entry)
					}
				}
				if a.Status().Lost+b.Status().Lost != 0 {
					t.Errorf("lost: %+v", a.told(t))
				}
				t.Logf("%d of 4 changes were acknowledged", len(made)-1)
			})
		}
	})
}

// A relay that hangs with its connections open holds a change back until the next question finds that out, and then the database is asked.
func TestARelayThatHangs(t *testing.T) {
	e := ofRedis(t)
	first := fleet(t, e, 1, nil)[0]
	door := newDoor(t)
	door.node.Store(first)
	link := toxiproxy.Start(t).Link(t, "relay", strings.TrimPrefix(door.URL, "http://"))
	b := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, relay.New(e.open(t, nil), []string{"http://" + link.Address}, func() (string, error) { return "the-token-of-a-test", nil }, nil), func(o *shared.Options) { o.Poll = 2 * time.Second })
	first.apply(t, block("old.example", "before"))
	b.eventually(t, "old.example", "block before")
	mend := link.Spoil(t, toxiproxy.Toxic{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 0}})
	begun := time.Now()
	first.apply(t, block("new.example", "while it hangs"), live.Change{Entry: "old.example", Remove: true})
	b.eventually(t, "new.example", "block while it hangs")
	b.eventually(t, "old.example", "")
	t.Logf("known after %s", time.Since(begun).Round(time.Millisecond))
	mend()
	asked := door.asked.Load()
	first.apply(t, block("third.example", "again"))
	b.eventually(t, "third.example", "block again")
	testkit.Eventually(t, "the relay is asked again", func() bool { return door.asked.Load() > asked })
}
