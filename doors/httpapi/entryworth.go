package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"blockd/policy/hits"
)

// MaxEntryWorth is how many entries /v1/lists shows at most.
const MaxEntryWorth = 1000

// EntryWorth is what one entry was worth. The counts go on over restarts of the daemon.
type EntryWorth struct {
	List       string    `json:"list"`
	Entry      string    `json:"entry"`
	Line       int       `json:"line"` // at the last hit
	Hits       uint64    `json:"hits"`
	AtMostOver uint64    `json:"at_most_over"` // so many of the hits may be another entry's
	Sole       uint64    `json:"sole"`         // hits that no other list had
	Overridden uint64    `json:"overridden"`   // hits that an allow entry overruled
	LastHit    time.Time `json:"last_hit"`
}

// newEntryWorth shows the entries with the most hits, the most first.
func newEntryWorth(all []hits.Entry) []EntryWorth {
	rows := make([]EntryWorth, len(all))
	for i, e := range all {
		rows[i] = EntryWorth{List: e.List, Entry: e.Text, Line: e.Line, Hits: e.Hits, AtMostOver: e.Over, Sole: e.Sole,
			Overridden: e.Overridden, LastHit: e.Last.UTC()}
	}
	return rows
}

// wantedEntries is the parameter "entries" of /v1/lists: how many are asked for.
func wantedEntries(r *http.Request) (int, error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil || len(query["entries"]) == 0 {
		return 0, err
	}
	text := query["entries"][0]
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > MaxEntryWorth || len(query["entries"]) > 1 {
		return 0, fmt.Errorf("entries: want one of 0 to %d, have %q", MaxEntryWorth, query["entries"])
	}
	return n, nil
}
