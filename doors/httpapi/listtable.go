package httpapi

import (
	"cmp"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/lists"
	"blockd/policy/hits"
	"blockd/reload"
)

// ListTable is the answer of /v1/lists: the files in service, and the worth of their
// lists.
type ListTable struct {
	Lists       []ListFile   `json:"lists"`
	Worth       []ListWorth  `json:"worth"`
	Entries     []EntryWorth `json:"entries"` // with the most hits, as many as were asked for
	Filters     []KeptFilter `json:"filters"` // of [[filter]], in its order; empty where no daemon was asked
	Problems    []string     `json:"problems"`
	Remarks     []string     `json:"remarks"` // what operators should know although everything serves
	Ready       bool         `json:"ready"`
	Lacks       string       `json:"lacks"`                 // "13 of 14 lists filter" where some list has never loaded; else empty
	Since       time.Time    `json:"since,omitzero"`        // of the swap
	LastAttempt time.Time    `json:"last_attempt,omitzero"` // to take up changed lists
	Generation  string       `json:"generation"`
}

// KeptFilter is how a [[filter]] is.
type KeptFilter struct {
	Name       string     `json:"name"`
	To         string     `json:"to"`         // a path, or the URL of a Redis without user and password, with the key
	Written    *time.Time `json:"written"`    // null: not yet
	Generation string     `json:"generation"` // that it has
	Keys       int        `json:"keys"`
	Patterns   int        `json:"patterns"` // that it lacks, for a filter has keys only
	Bytes      int64      `json:"bytes"`
	Error      string     `json:"error"` // why the last try failed; "": it did not
}

// ListSource is how the source of a list is. A copy serves whatever becomes of the source; a list that is asked does not.
type ListSource struct {
	Kind       string    `json:"kind"`        // such as "postgres"
	Mode       string    `json:"mode"`        // "copy", or "ask": the list stays in its source
	State      string    `json:"state"`       // "ok", "away", or "refused": what it holds is not taken
	Class      string    `json:"class"`       // why it is not ok, in a word such as "unreachable"; "": it is
	Since      time.Time `json:"since"`       // of the state
	LagSeconds *float64  `json:"lag_seconds"` // since the copy was known to have all that the source holds; null: never
	Rows       int64     `json:"rows"`        // entries of the copy, or keys of the filter; 0 for a filter of another program
	Missed     int64     `json:"missed"`      // entries that had changed, as only a full read has found
	Error      string    `json:"error"`       // one line; "": it is ok
}

// ListFile is one file of a list, as it is in service.
type ListFile struct {
	List     string     `json:"list"`
	File     string     `json:"file"`
	Format   string     `json:"format"`
	Action   string     `json:"action"`
	Mode     string     `json:"mode"`
	Verdict  string     `json:"verdict"` // "refused": the generation serves without it
	Why      string     `json:"why"`
	Lines    int        `json:"lines"`
	Entries  int        `json:"entries"`
	Errors   int        `json:"errors"`
	Networks int        `json:"networks"` // of the entries: for client addresses
	Bytes    int64      `json:"bytes"`
	Hash     string     `json:"hash"`     // XXH3-128 of the file
	Stale    bool       `json:"stale"`    // the list serves, and is older than its max_age
	State    ListState  `json:"state"`    // of the file as it is now
	Modified *time.Time `json:"modified"` // when what serves was written, or confirmed by its server; null: unknown

	Classes []ListClass `json:"classes"` // of the errors: how many lines were refused for which reason
	Refused []ListLine  `json:"refused"` // the first of these lines
}

// ListClass is how many lines of a file were refused for one reason.
type ListClass struct {
	Class string `json:"class"` // a word of lint: "syntax", "public-suffix", ...
	Lines int    `json:"lines"`
}

// ListLine is one refused line.
type ListLine struct {
	Line    int    `json:"line"`
	Class   string `json:"class"`
	Message string `json:"message"`
}

// ListWorth is what one list, of however many files, adds to the others.
type ListWorth struct {
	List     string        `json:"list"`
	Action   string        `json:"action"`
	Mode     string        `json:"mode"`
	Files    int           `json:"files"`
	Entries  int           `json:"entries"`
	Errors   int           `json:"errors"`   // lines that were refused
	Held     int           `json:"held"`     // entries that are held back: they would refuse senders who wrote lately, or correspondents
	Keys     uint64        `json:"keys"`     // distinct
	Unique   uint64        `json:"unique"`   // of the keys: those that no other list has
	Overlaps []ListOverlap `json:"overlaps"` // the largest first

	// Since the start of the daemon; null where no daemon was asked.
	Hits       *uint64    `json:"hits"`
	Sole       *uint64    `json:"sole"`       // of the hits: those that no other list had
	Overridden *uint64    `json:"overridden"` // of the hits: those that an allow entry overruled
	LastHit    *time.Time `json:"last_hit"`

	Modified *time.Time `json:"modified"` // of its oldest file
	Stale    bool       `json:"stale"`
	State    ListState  `json:"state"`
	Problems []string   `json:"problems"` // of those above: this list's
	Accept   string     `json:"accept,omitempty" doc:"the command that takes the list as it is, where the gate refuses it compared with what it had"`

	Pinned  *PinnedList `json:"pinned"`  // null: it follows its file
	Percent float64     `json:"percent"` // of senders that its blocks count for; 100: all

	// Where the list comes from, by the configuration, its files and the catalogue; "" and 0: not known.
	Title          string `json:"title"`
	Homepage       string `json:"homepage"`   // http, https or mailto
	Complaints     string `json:"complaints"` // where to complain: the same
	Licence        string `json:"licence"`
	Restricted     bool   `json:"restricted"`      // the licence is known not to let everybody pass the list on
	Dated          string `json:"dated"`           // the list's own date, in its own words
	ExpiresSeconds int64  `json:"expires_seconds"` // after which the list wants to be fetched anew

	Pause  *ListPause  `json:"pause"`  // null: it counts, as far as its mode lets it
	Source *ListSource `json:"source"` // null: the list has none, or no daemon was asked
}

// ListOverlap is how many keys a list shares with another one.
type ListOverlap struct {
	List string `json:"list"`
	Keys uint64 `json:"keys"`
}

// ListState is how a list is, in one word.
type ListState string

// The states, the worst last. A list that is refused or missing may have what it
// held before in service.
const (
	ListOK      ListState = "ok"
	ListHeld    ListState = "held"    // entries of it are held back
	ListWaits   ListState = "waits"   // serves nothing until its first load is adopted
	ListPartial ListState = "partial" // serves without lines that were refused
	ListStale   ListState = "stale"   // older than its max_age
	ListRefused ListState = "refused"
	ListMissing ListState = "missing"

	// Of lists that stay in their sources: these answer, or do not.
	ListAsked   ListState = "asked"
	ListUnasked ListState = "unasked"
)

func (s *Server) lists(w http.ResponseWriter, r *http.Request) {
	n, err := wantedEntries(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if n > 0 && !s.private(w, r) { // they show who writes here
		return
	}
	t := s.listTable(n)
	if !s.mayKnow(r) {
		t.hideMail(s.status().Pins)
		t.hideWho()
	}
	sendTagged(w, r, t)
}

// listTable is all that is known of the lists, with so many entries.
func (s *Server) listTable(n int) ListTable {
	status := s.status()
	counts := s.checker.Hits().Lists()
	t := NewListTable(status, counts)
	if s.settings.Entries != nil {
		t.countLive(s.settings.Entries.Len(), counts)
	}
	t.Entries = newEntryWorth(s.checker.Hits().Top(n))
	if s.settings.Filters != nil {
		t.Filters = append(t.Filters, s.settings.Filters()...)
	}
	if s.settings.Sources != nil {
		t.addSources(s.settings.Sources(status), counts)
	}
	t.SetPins(status.Pins)
	for i := range t.Worth {
		if t.Worth[i].State == ListWaits {
			t.Worth[i].counted(counts)
		}
	}
	now := time.Now()
	for i := range t.Worth {
		t.Worth[i].Pause = newListPause(s.settings.Pauses, t.Worth[i].List, now)
		t.Worth[i].Percent = s.checker.Percent(t.Worth[i].List)
		t.Worth[i].SetAbout(s.checker.About(t.Worth[i].List))
	}
	return t
}

// SetPins notes which lists do not follow their files, and gives a row to each that waits for its first adoption, and so has
// no file in service.
func (t *ListTable) SetPins(pins []kept.Pin) {
	for _, p := range pins {
		if p.Waits && !slices.ContainsFunc(t.Worth, func(w ListWorth) bool { return w.List == p.List }) {
			w := newListWorth(p.List, false)
			w.State = ListWaits
			t.Worth = append(t.Worth, *w)
		}
	}
	for i := range t.Worth {
		t.Worth[i].Pinned = newPinned(pins, t.Worth[i].List)
	}
}

// hideMail leaves out what proposals would do with mail: it says who writes here.
func (t *ListTable) hideMail(pins []kept.Pin) {
	for _, p := range pins {
		for i := range t.Worth {
			if w := t.Worth[i].Pinned; t.Worth[i].List == p.List && w != nil && w.Proposal != nil && p.Proposal != nil {
				w.Proposal.Weighed, w.Proposal.Findings = nil, append([]string{}, p.Proposal.Findings...)
			}
		}
	}
}

// hideWho leaves out who has paused or pinned lists, and why.
func (t *ListTable) hideWho() {
	for i := range t.Worth {
		if w := &t.Worth[i]; w.Pinned != nil {
			w.Pinned.By, w.Pinned.Why = "", ""
		}
		if w := &t.Worth[i]; w.Pause != nil {
			w.Pause.By, w.Pause.Why = "", ""
		}
	}
}

// counted gives the list its hits.
func (w *ListWorth) counted(counts []hits.List) {
	w.Hits, w.Sole, w.Overridden = new(uint64), new(uint64), new(uint64)
	w.count(counts)
}

// countLive puts the number of live entries into the rows of their list, which count what was folded into the index. A list whose first entry
// was not folded yet gets a row.
func (t *ListTable) countLive(n int, counts []hits.List) {
	for i := range t.Lists {
		if t.Lists[i].List == live.ListName {
			t.Lists[i].Entries = n
		}
	}
	i := slices.IndexFunc(t.Worth, func(w ListWorth) bool { return w.List == live.ListName })
	if i < 0 && n > 0 { // none was folded yet
		i = len(t.Worth)
		t.Worth = append(t.Worth, *newListWorth(live.ListName, true))
		t.Worth[i].Action, t.Worth[i].Mode = lists.Block.String(), index.Enforce.String()
		t.Worth[i].count(counts)
	}
	if i >= 0 {
		t.Worth[i].Entries = n
	}
}

// addSources puts sources into the rows of their lists. A list that was never read gets a row, as does one that is asked.
func (t *ListTable) addSources(all map[string]ListSource, counts []hits.List) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		source := all[name]
		i := slices.IndexFunc(t.Worth, func(w ListWorth) bool { return w.List == name })
		if i < 0 {
			i = len(t.Worth)
			t.Worth = append(t.Worth, *newListWorth(name, true))
			t.Worth[i].State = ListMissing
			t.Worth[i].count(counts)
		}
		if source.Mode == "ask" {
			t.Worth[i].State = ListUnasked
			if source.State == "ok" {
				t.Worth[i].State = ListAsked
			}
		}
		t.Worth[i].Source = &source
	}
}

// NewListTable makes the table of a status. counts are those of a daemon; a
// list without hits may be missing in them. nil: hits are not known.
func NewListTable(status reload.Status, counts []hits.List) ListTable {
	t := ListTable{Lists: make([]ListFile, len(status.Files)), Worth: []ListWorth{}, Entries: []EntryWorth{}, Filters: []KeptFilter{}, Problems: status.Problems, Remarks: status.Remarks, Ready: status.Ready, Lacks: status.Lacks(),
		Since: status.Since.UTC(), LastAttempt: status.LastAttempt.UTC(), Generation: status.Generation}
	if t.Problems == nil {
		t.Problems = []string{}
	}
	if t.Remarks == nil {
		t.Remarks = []string{}
	}
	byList, order := map[string]*ListWorth{}, []*ListWorth(nil)
	of := func(list string) *ListWorth {
		if byList[list] == nil {
			byList[list] = newListWorth(list, counts != nil)
			order = append(order, byList[list])
		}
		return byList[list]
	}
	for i, f := range status.Files {
		t.Lists[i] = newListFile(f, status)
		of(f.Source.List).add(&t.Lists[i])
	}
	for _, r := range status.Refusals {
		w := of(r.List) // of a pattern without a file there is none yet
		w.State = worse(w.State, refusalState(r.Class))
		w.Problems, w.Accept = append(w.Problems, r.Text), cmp.Or(w.Accept, r.Command)
	}
	for list, n := range status.Held {
		if w := byList[list]; w != nil {
			w.Held, w.State = n, worse(w.State, ListHeld)
		}
	}
	for _, l := range status.Worth {
		if w := byList[l.List]; w != nil {
			w.Keys, w.Unique = l.Keys, l.Unique
		}
	}
	for _, o := range status.Overlaps {
		byList[o.A].overlap(o.B, o.Keys)
		byList[o.B].overlap(o.A, o.Keys)
	}
	for _, h := range counts {
		if w, last := byList[h.Name], h.Last.UTC(); w != nil {
			*w.Hits, *w.Sole, *w.Overridden, w.LastHit = h.Hits, h.Sole, h.Overridden, &last
		}
	}
	for _, w := range order {
		slices.SortStableFunc(w.Overlaps, func(a, b ListOverlap) int { return cmp.Compare(b.Keys, a.Keys) })
		t.Worth = append(t.Worth, *w)
	}
	return t
}

func newListFile(f index.ListInfo, status reload.Status) ListFile {
	row := ListFile{List: f.Source.List, File: f.Source.Path, Format: f.Summary.Format,
		Action: f.Source.Settings.Action.String(), Mode: f.Source.Mode.String(),
		Verdict: string(f.Summary.Verdict), Why: f.Summary.Why, Lines: f.Summary.Lines, Entries: f.Summary.Entries,
		Errors: f.Summary.Errors, Networks: f.NetworkEntries, Bytes: f.Summary.Size, Hash: hex.EncodeToString(f.Summary.Hash[:]),
		Stale: slices.Contains(status.Stale, f.Source.List), Classes: []ListClass{}, Refused: []ListLine{}}
	for _, c := range f.Summary.Dropped.Classes {
		row.Classes = append(row.Classes, ListClass{string(c.Class), c.Lines})
	}
	for _, l := range f.Summary.Dropped.First {
		row.Refused = append(row.Refused, ListLine{l.Line, string(l.Class), l.Message})
	}
	row.State = fileState(&row, status.Refusals)
	if at := status.Dates[[2]string{row.List, row.File}]; !at.IsZero() {
		at = at.UTC()
		row.Modified = &at
	}
	return row
}

// newListWorth is a list without any file. counted: its hits are.
func newListWorth(list string, counted bool) *ListWorth {
	w := &ListWorth{List: list, Percent: 100, Overlaps: []ListOverlap{}, State: ListOK, Problems: []string{}}
	if counted {
		w.Hits, w.Sole, w.Overridden = new(uint64), new(uint64), new(uint64)
	}
	return w
}

// SetAbout notes where the list comes from.
func (w *ListWorth) SetAbout(a lists.About) {
	w.Title, w.Homepage, w.Complaints, w.Licence, w.Restricted = a.Title, a.Homepage, a.Complaints, a.Licence, a.Forbids()
	w.Dated, w.ExpiresSeconds = a.Modified, int64(a.Expires/time.Second)
}

// count takes the list's own of counts.
func (w *ListWorth) count(counts []hits.List) {
	for _, h := range counts {
		if h.Name == w.List {
			last := h.Last.UTC()
			*w.Hits, *w.Sole, *w.Overridden, w.LastHit = h.Hits, h.Sole, h.Overridden, &last
		}
	}
}

// add adds one of the list's files. All of them are read by the same settings.
func (w *ListWorth) add(f *ListFile) {
	w.Action, w.Mode, w.Stale = f.Action, f.Mode, f.Stale
	w.Files++
	if f.Verdict != string(lists.Refused) { // what was read before is in no index
		w.Entries += f.Entries
		w.Errors += f.Errors
	}
	if w.Modified == nil || f.Modified != nil && f.Modified.Before(*w.Modified) {
		w.Modified = f.Modified
	}
	w.State = worse(w.State, f.State)
}

// overlap notes keys that the list, if it is in the table, has in common with another one.
func (w *ListWorth) overlap(other string, keys uint64) {
	if w != nil {
		w.Overlaps = append(w.Overlaps, ListOverlap{other, keys})
	}
}

// fileState is how the file of a row is now. A problem of a whole list belongs to
// no single file.
func fileState(f *ListFile, refusals []reload.Refusal) ListState {
	state := ListOK
	if f.Errors > 0 {
		state = ListPartial
	}
	if f.Stale {
		state = ListStale
	}
	if f.Verdict == string(lists.Refused) {
		class, _, _ := strings.Cut(f.Why, ":")
		state = worse(state, refusalState(lists.Class(class)))
	}
	for _, r := range refusals {
		if r.List == f.List && r.File == f.File {
			state = worse(state, refusalState(r.Class))
		}
	}
	return state
}

func refusalState(c lists.Class) ListState {
	if c == lists.Missing {
		return ListMissing
	}
	return ListRefused
}

// worse returns the one of two states that an operator should know first.
func worse(a, b ListState) ListState {
	order := [...]ListState{ListOK, ListHeld, ListPartial, ListStale, ListRefused, ListMissing}
	if slices.Index(order[:], b) > slices.Index(order[:], a) {
		return b
	}
	return a
}
