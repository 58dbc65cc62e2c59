package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
)

// DefaultEntries is how many entries a page has unless "limit" says otherwise.
const DefaultEntries = 100

// EntryList is the answer to GET.
type EntryList struct {
	Owner   string       `json:"owner,omitempty" doc:"whose they are; absent: everybody's"`
	Entries []*LiveEntry `json:"entries"` // the newest first, unless sort says otherwise
	Next    string       `json:"next,omitempty" doc:"of a page: the cursor of what comes after these; absent at the end"`
	Total   int          `json:"total" doc:"how many entries are in force, found or not, with those of owners"`
}

// NewEntryList shows all entries of a set.
func NewEntryList(s *live.Set) EntryList {
	l := EntryList{Entries: []*LiveEntry{}}
	for e := range s.All() {
		l.Entries = append(l.Entries, NewLiveEntry(e))
	}
	l.Total = len(l.Entries)
	return l
}

// entryOrders are the values of "sort", by live.Order.
var entryOrders = [...]string{live.Newest: "newest", live.Oldest: "oldest", live.ByEntry: "entry", live.ByEnd: "expires"}

// parseEntryQuery reads the parameters of a page. Its errors begin with the name of one.
func parseEntryQuery(raw string) (q live.Query, err error) {
	values, err := parseQuery(raw)
	if err != nil {
		return q, err
	}
	v, err := onlyOnce(values, []string{"q", "sort", "cursor", "limit"})
	if err != nil {
		return q, err
	}
	q = live.Query{Text: v["q"], After: v["cursor"]}
	if len(q.Text) > maxQueryText {
		return q, fmt.Errorf("q: over %d octets", maxQueryText)
	}
	if err := oneOf("sort", v["sort"], append(entryOrders[:], "")...); err != nil {
		return q, err
	}
	q.Order = live.Order(max(0, slices.Index(entryOrders[:], v["sort"])))
	q.Limit, err = limitOf(v["limit"], DefaultEntries, live.MaxFound)
	return q, err
}

// entries answers GET with a page, or with all entries if the query is empty.
func (s *Server) entries(w http.ResponseWriter, r *http.Request) {
	if values, err := parseQuery(r.URL.RawQuery); err == nil && len(values["owner"]) == 1 {
		s.entriesOf(w, r, values["owner"][0])
		return
	}
	q, err := parseEntryQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	total, fresh := s.unlessKept(w, r)
	switch {
	case !fresh:
	case r.URL.RawQuery == "":
		s.allEntries(w, total)
	default:
		s.entryPage(w, r, q, total)
	}
}

// unlessKept tags the answer about live entries, and says how many there are. It is false if the caller has that answer:
// then it has been told so.
func (s *Server) unlessKept(w http.ResponseWriter, r *http.Request) (total int, fresh bool) {
	n, last := s.settings.Entries.InForce() // between two changes entries only end, so both say whether all is as it was
	h, tag := w.Header(), fmt.Sprintf(`"%d-%d"`, last, n)
	h["Etag"], h["Cache-Control"] = []string{tag}, revalidate
	if wants := r.Header["If-None-Match"]; len(wants) > 0 && hasTag(wants, tag) {
		w.WriteHeader(http.StatusNotModified)
		return n, false
	}
	return n, true
}

func (s *Server) entryPage(w http.ResponseWriter, r *http.Request, q live.Query, total int) {
	select { // each may pass over a million entries
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-r.Context().Done():
		return
	}
	found, err := s.settings.Entries.Search(r.Context(), q)
	switch {
	case errors.Is(err, live.ErrCursor):
		unkept(w)
		fail(w, http.StatusBadRequest, "cursor: "+err.Error())
	case err == nil: // else the client has gone
		l := EntryList{Entries: make([]*LiveEntry, len(found.Entries)), Next: found.Next, Total: total}
		for i, e := range found.Entries {
			l.Entries[i] = s.mark(NewLiveEntry(e))
		}
		send(w, http.StatusOK, typeJSON, l)
	}
}

// unkept takes the tag back: what follows is a fault.
func unkept(w http.ResponseWriter) {
	w.Header().Del("Etag")
	w.Header()["Cache-Control"] = noStore
}

// allEntries answers with an EntryList. A million entries have some 200 MB of JSON, so each is written as it
// is made, and a slow reader costs no more than a quick one.
func (s *Server) allEntries(w http.ResponseWriter, total int) {
	w.Header()["Content-Type"] = typeJSON
	out := bufio.NewWriterSize(w, exportBuffer)
	defer out.Flush()
	out.WriteString(`{"entries":[`)
	between, text := "", encoder(out)
	for e := range s.settings.Entries.All() {
		out.WriteString(between)
		if err := text.Encode(s.mark(NewLiveEntry(e))); err != nil {
			return // the client has gone
		}
		between = ","
	}
	fmt.Fprintf(out, "],\"total\":%d}\n", total)
}

func describeEntries(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "entries", Summary: "Live entries, the newest first",
		Description: "A page of them if there is a parameter, and without any all of them. What is added and removed while somebody turns pages moves no other entry: " +
			"a walk has each that is there from its beginning to its end once.",
		Parameters: append(entryParams(), limited("owner", "whose entries are wanted, as /v1/owners/{owner}/entries has them; without it everybody's", maxQueryText), limited("cursor", "`next` of an answer to the same question", maxQueryText),
			number("limit", "how many entries at most", 1, live.MaxFound, DefaultEntries)),
		Responses: d.tagged(EntryList{})}
	d.problems(op, http.StatusBadRequest)
	return op
}

// entryParams are those by which entries are chosen and sorted.
func entryParams() []*huma.Param {
	return []*huma.Param{
		limited("q", "a text that the entry, why or author has in it; upper and lower case are the same", maxQueryText),
		choice("sort", "newest (first), which it is if it is not said; oldest; entry: networks first, then addresses and names; expires: the first to end first", entryOrders[:]...),
	}
}
