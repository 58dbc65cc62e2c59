package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"blockd/index/kept"
	"blockd/policy/hits"
	"blockd/records/rollup"
)

// How much a list's page has.
const (
	mostLoads   = 20
	mostOfWorth = 20
)

// ListPage is the answer of /v1/lists/{list}.
type ListPage struct {
	Worth   ListWorth    `json:"worth"`
	Files   []ListFile   `json:"files"`
	Held    ListHeldBack `json:"held"`
	Best    []EntryWorth `json:"best" doc:"entries with the most hits that no other list had"`
	Worst   []EntryWorth `json:"worst" doc:"entries with the most hits that an allow entry overruled"`
	Loads   []ListLoad   `json:"loads" doc:"contents that served, the newest first"`
	Shadow  ListDecided  `json:"shadow" doc:"decisions that it would have made, had it counted"`
	Decided ListDecided  `json:"decided" doc:"decisions that it made"`
	Review  bool         `json:"review" doc:"its loads wait to be adopted"`
	Undo    bool         `json:"undo" doc:"it can be taken back to an earlier content"`
}

// ListHeldBack is what is held back of a list.
type ListHeldBack struct {
	Count   int             `json:"count"`
	Entries []kept.HeldBack `json:"entries" doc:"the first of them"`
}

// ListLoad is a content of a list that served.
type ListLoad struct {
	Generation string    `json:"generation"`
	Time       time.Time `json:"time"`
	How        string    `json:"how"`
	By         string    `json:"by"`
	Why        string    `json:"why"`
	Entries    int       `json:"entries"`
	Added      *int      `json:"added" doc:"since the content before; null: not counted"`
	Removed    *int      `json:"removed"`
}

// ListDecided counts decisions of some time.
type ListDecided struct {
	Span      string `json:"span"`
	Decisions uint64 `json:"decisions"`
}

// listNamed is the row of a list.
func (s *Server) listNamed(name string) (t ListTable, row ListWorth, err error) {
	t = s.listTable(0)
	i := slices.IndexFunc(t.Worth, func(one ListWorth) bool { return one.List == name })
	if i < 0 {
		return t, row, faultf(http.StatusNotFound, "there is no list %q; /v1/lists has those that serve", name)
	}
	return t, t.Worth[i], nil
}

func (s *Server) listPage() method {
	return operate(s, operation{method: http.MethodGet, id: "list", summary: "All that is known of one list", right: privately, large: true, tagged: true, status: http.StatusNotFound}, func(_ call, q struct {
		List string `path:"list" doc:"the list's name"`
	}) (p ListPage, err error) {
		t, row, err := s.listNamed(q.List)
		if err != nil {
			return p, err
		}
		p = ListPage{Worth: row, Files: []ListFile{}, Held: ListHeldBack{Entries: []kept.HeldBack{}}, Loads: []ListLoad{},
			Shadow: s.decidedBy("shadow", row.List), Decided: s.decidedBy("list", row.List)}
		for _, f := range t.Lists {
			if f.List == row.List {
				p.Files = append(p.Files, f)
			}
		}
		all := slices.DeleteFunc(s.checker.Hits().Top(mostHits), func(e hits.Entry) bool { return e.List != row.List })
		p.Best, p.Worst = mostBy(all, func(e hits.Entry) uint64 { return e.Sole }), mostBy(all, func(e hits.Entry) uint64 { return e.Overridden })
		if u := s.settings.Undo; u != nil {
			p.Review, p.Undo = u.Review(row.List), slices.Contains(u.Lists(), row.List)
			n, first := u.HeldBack(row.List)
			p.Held.Count, p.Held.Entries = n, append(p.Held.Entries, first...)
			generations, err := u.Kept.Generations()
			if err != nil {
				s.log.Error("what lists held before cannot be read", "error", err)
			}
			p.Loads = loadsOf(generations, row.List)
		}
		return p, nil
	})
}

// mostHits is more than all entries that have counters.
const mostHits = 1 << 16

// mostBy are those of which count is highest, and not 0.
func mostBy(all []hits.Entry, count func(hits.Entry) uint64) []EntryWorth {
	all = slices.DeleteFunc(slices.Clone(all), func(e hits.Entry) bool { return count(e) == 0 })
	slices.SortStableFunc(all, func(a, b hits.Entry) int { return cmp.Compare(count(b), count(a)) })
	return newEntryWorth(all[:min(len(all), mostOfWorth)])
}

// loadsOf are the generations in which a list has changed.
func loadsOf(all []kept.Generation, list string) []ListLoad {
	loads := []ListLoad{}
	for i, g := range slices.Backward(all) {
		for _, state := range g.Lists {
			if state.Name != list || state.Added != nil && *state.Added == 0 && state.Removed != nil && *state.Removed == 0 && i > 0 {
				continue
			}
			loads = append(loads, ListLoad{g.ID, g.Time, g.How, g.By, g.Why, state.Entries, state.Added, state.Removed})
		}
		if len(loads) == mostLoads {
			break
		}
	}
	return loads
}

// decidedBy counts the decisions of a list in the last week.
func (s *Server) decidedBy(by, list string) ListDecided {
	d := ListDecided{Span: "7d"}
	if s.settings.Rollup == nil {
		return d
	}
	series, _ := s.settings.Rollup.Series(rollup.Query{By: by, Span: d.Span, List: list}, time.Now()) // a query that there is
	for _, row := range series.Rows {
		for _, n := range row.Counts {
			d.Decisions += n
		}
	}
	return d
}

// Replay is what a list would have done to past mail, as it is now and beside all others.
type Replay struct {
	List          string      `json:"list"`
	Mode          string      `json:"mode" doc:"of the list now; one in shadow is judged as if it counted"`
	Since         time.Time   `json:"since" doc:"of the oldest decision that was looked at"`
	Decisions     int         `json:"decisions"`
	Accepted      int         `json:"accepted" doc:"of these: that were accepted then"`
	Refused       int         `json:"refused" doc:"of the accepted: that it would refuse, tag or set aside now"`
	RefusedThen   int         `json:"refused_then" doc:"of all: that it has refused"`
	AlreadyListed int         `json:"already_listed" doc:"of the accepted: on the list, and refused by another one by now"`
	Exempt        int         `json:"exempt" doc:"of the accepted: on the list, and every sender may write to the recipient"`
	Allowed       int         `json:"allowed" doc:"of the accepted: on the list, and an allow entry goes before it"`
	NotCounted    int         `json:"not_counted" doc:"of the accepted: on the list, which does not count for the recipient, or is paused"`
	Unchecked     int         `json:"unchecked" doc:"of the accepted: could not be looked up"`
	Senders       int         `json:"senders" doc:"distinct, of the refused"`
	Damaged       int         `json:"damaged" doc:"lines of the history that were left out"`
	Complete      bool        `json:"complete" doc:"false: it took too long, and older decisions were not looked at"`
	BySender      []ReplayRow `json:"by_sender" doc:"the most first"`
	ByDomain      []ReplayRow `json:"by_domain"`
	ByEntry       []ReplayRow `json:"by_entry"`
}

// ReplayRow is a sender, a domain or an entry.
type ReplayRow struct {
	Name  string    `json:"name"`
	Mails int       `json:"mails"`
	Last  time.Time `json:"last"`
}

func (s *Server) replay() method {
	return operate(s, operation{method: http.MethodGet, id: "replay", summary: "What would a list have refused of past mail?", right: privately, tagged: true,
		about:  "The list as it serves now, beside all others, is held against mail that was accepted, the newest first. It takes up to some twenty seconds; what it could not look at by then is not counted, and complete is false. Proofs and header fields are not known of past mail.",
		faults: []faultKind{{ErrNotReplayed, http.StatusConflict}}, also: []int{http.StatusNotFound}, status: http.StatusServiceUnavailable, lost: historyLost, because: historyGone,
	}, func(c call, q struct {
		List string `path:"list" doc:"the list's name"`
		Span string `query:"span" doc:"how far back; 7d if it is not said" enum:"1h,24h,7d,30d"`
	}) (a Replay, err error) {
		_, row, err := s.listNamed(q.List)
		if err != nil {
			return a, err
		}
		select {
		case s.replays <- struct{}{}:
			defer func() { <-s.replays }()
		default:
			return a, fault{http.StatusTooManyRequests, "another replay is under way; try again in some seconds", 5}
		}
		if a, err = s.settings.Replay(c.Context(), row.List, time.Now().Add(-timeSpans[cmp.Or(q.Span, "7d")])); c.Context().Err() != nil {
			return a, errAnswered // nobody listens
		}
		a.List, a.Mode = row.List, row.Mode
		return a, s.searchFault(err)
	})
}

// ErrNotReplayed is wrapped by the error of a list that cannot be held against past mail.
var ErrNotReplayed = errors.New("cannot be held against past mail")
