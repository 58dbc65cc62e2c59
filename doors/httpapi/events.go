package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/policy/verdict"
	"blockd/records/history"
)

// The bounds of the live stream. A person reads some lines a second. A browser that gets
// more only falls behind.
const (
	maxWatchers  = 32
	maxWaiting   = 256             // events that one watcher may be behind; then it is dropped
	perSecond    = 50              // decisions shown of a second
	clearSecond  = 10              // of these, on senders of no list
	trafficEvery = 2 * time.Second // also the time until a gone watcher is noticed
	watcherWrite = 10 * time.Second
	trafficSpan  = 60 // minutes that are counted
)

// Events shows decisions to watchers, as they are made, and counts the verdicts of
// the last hour by minute. It is safe for concurrent use.
type Events struct {
	mu       sync.Mutex
	watchers map[chan []byte]string     // by whom; "": not known
	minutes  [trafficSpan]TrafficMinute // by minute modulo trafficSpan
	second   int64                      // of shown and clear
	shown    int
	clear    int
}

// TrafficMinute is how many decisions of each verdict a minute brought.
type TrafficMinute struct {
	At      int64  `json:"at"` // its beginning, Unix time
	Blocked uint64 `json:"blocked"`
	Allowed uint64 `json:"allowed"`
	Clear   uint64 `json:"clear"`
	Unknown uint64 `json:"unknown"`
}

// NewEvents returns Events without a watcher.
func NewEvents() *Events { return &Events{watchers: map[chan []byte]string{}} }

// Add counts a decision and shows it to the watchers, unless there are more than
// they could read. It never waits: a watcher that is too far behind is dropped.
func (e *Events) Add(r history.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := r.Outcome == history.Listed // an answer to a program, of which the history has a sample, and no mail
	if !told {
		e.count(r.Time, verdict.Kind(r.Verdict))
	}
	if len(e.watchers) == 0 || !e.admits(r.Time, told || r.Ref != "") {
		return
	}
	r.Time = r.Time.UTC().Truncate(time.Millisecond) // as the history has it
	text := event("decision", r)
	for w := range e.watchers {
		select {
		case w <- text:
		default:
			e.drop(w)
		}
	}
}

func (e *Events) count(now time.Time, kind verdict.Kind) {
	at := now.Unix() / 60
	m := &e.minutes[at%trafficSpan]
	if m.At != at*60 {
		*m = TrafficMinute{At: at * 60}
	}
	switch kind {
	case verdict.Blocked:
		m.Blocked++
	case verdict.Allowed:
		m.Allowed++
	case verdict.Clear:
		m.Clear++
	default:
		m.Unknown++
	}
}

// admits takes a decision off the number that a second may show. Mail of no list leaves
// room for the decisions that a person may look for.
func (e *Events) admits(now time.Time, listed bool) bool {
	if second := now.Unix(); second != e.second {
		e.second, e.shown, e.clear = second, 0, 0
	}
	if e.shown >= perSecond || !listed && e.clear >= clearSecond {
		return false
	}
	e.shown++
	if !listed {
		e.clear++
	}
	return true
}

// traffic is the last hour, the oldest minute first, without those that had nothing.
func (e *Events) traffic(now time.Time) []TrafficMinute {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := now.Unix() / 60
	hour := []TrafficMinute{}
	for at := last - trafficSpan + 1; at <= last; at++ {
		if m := e.minutes[at%trafficSpan]; m.At == at*60 {
			hour = append(hour, m)
		}
	}
	return hour
}

// watchAs returns a channel of events for somebody by name, which is closed when its reader is too far behind. Where all places are
// taken, one of whoever has the most becomes his; it is nil if there is none.
func (e *Events) watchAs(who string) chan []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.watchers) >= maxWatchers && !e.yield(who) {
		return nil
	}
	w := make(chan []byte, maxWaiting)
	e.watchers[w] = who
	return w
}

// yield drops a watcher of whoever has the most, if he has more then than the one who comes.
func (e *Events) yield(to string) bool {
	places, most := map[string]int{}, 0
	for _, who := range e.watchers {
		if places[who]++; who != "" {
			most = max(most, places[who])
		}
	}
	for w, who := range e.watchers {
		if who != "" && places[who] == most && most > places[to]+1 {
			e.drop(w)
			return true
		}
	}
	return false
}

func (e *Events) leave(w chan []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(w)
}

func (e *Events) drop(w chan []byte) {
	if _, there := e.watchers[w]; there {
		delete(e.watchers, w)
		close(w)
	}
}

// event is one of the stream, in the form of the WHATWG's HTML, "Server-sent events".
// JSON has no line end in it, whatever a sender has.
func event(name string, v any) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: ", name)
	json.NewEncoder(&b).Encode(v) // own types and a Buffer: it cannot fail
	b.WriteByte('\n')
	return b.Bytes()
}

// events streams decisions until the client goes, is too slow, or its token is revoked.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.Header()["Content-Type"] = typeEvents
		return
	}
	waiting := s.settings.Events.watchAs(s.callerOf(r).who(r))
	if waiting == nil {
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d others watch already", maxWatchers))
		return
	}
	defer s.settings.Events.leave(waiting)
	control := http.NewResponseController(w)
	w.Header()["Content-Type"] = typeEvents
	w.Header().Set("X-Accel-Buffering", "no") // for nginx between
	tick := time.NewTicker(trafficEvery)
	defer tick.Stop()
	text := event("traffic", s.settings.Events.traffic(time.Now()))
	for {
		control.SetWriteDeadline(time.Now().Add(watcherWrite))
		if _, err := w.Write(text); err != nil {
			return
		}
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		control.SetReadDeadline(time.Now().Add(streamIdle)) // nothing more is read; after the first flush, which waits for an announced body
		open := true
		select {
		case text, open = <-waiting:
		case <-tick.C: // also finds out that the client has gone
			if s.gone(r) {
				return
			}
			text = event("traffic", s.settings.Events.traffic(time.Now()))
		case <-r.Context().Done():
			open = false
		}
		if !open {
			return
		}
	}
}

func describeEvents(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "watchEvents", Summary: "Decisions as they are made",
		Description: "Server-sent events: `decision`, with what /v1/decisions has of one, and at the beginning and every two seconds " +
			"`traffic`, an array of TrafficMinute of the last hour. At most 50 decisions of a second are sent, and who cannot keep up is dropped: " +
			"the whole is in /v1/decisions.",
		Responses: map[string]*huma.Response{"200": {Description: "OK; the schema is that of an event's data", Content: map[string]*huma.MediaType{
			typeEvents[0]: {Schema: &huma.Schema{AnyOf: []*huma.Schema{d.schemaOf(history.Record{}), d.schemaOf([]TrafficMinute{})}}}}}}}
	d.problems(op, http.StatusServiceUnavailable)
	return op
}

// typeEvents is the type of the stream.
var typeEvents = []string{"text/event-stream"}
