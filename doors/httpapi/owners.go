package httpapi

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
	"blockd/mail/addr"
)

// OwnerEntries is the answer to GET about one owner.
type OwnerEntries struct {
	Owner   string       `json:"owner"`
	Entries []*LiveEntry `json:"entries"` // the newest first
	Next    string       `json:"next,omitempty" doc:"the cursor of what comes after these; absent at the end"`
	Total   int          `json:"total" doc:"how many entries the owner has, found or not"`
}

// owns reports whether a caller may see and change what an owner has. A token without owners may all; that of a domain
// those of its mailboxes too.
func (c caller) owns(owner addr.Key) bool {
	if len(c.owners) == 0 {
		return true
	}
	_, domain, _ := cutLast(owner.Text)
	for _, o := range c.owners {
		if o == owner || o.Kind == addr.Domain && owner.Kind == addr.Address && o.Text == domain {
			return true
		}
	}
	return false
}

// cutLast cuts an address at its last "@".
func cutLast(text string) (local, domain string, ok bool) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return "", text, false
	}
	return text[:at], text[at+1:], true
}

// A token that is bound to a domain may name any mailbox of it, whether there is one or not. So all of a domain's
// mailboxes together have a share of the live entries, as far as such tokens add them.
const (
	domainShare = live.MaxEntries / 8

	// countAgain is how old a count may be where a domain is full: others may have removed some.
	countAgain = time.Minute
)

var errDomainFull = errors.New("the domain's mailboxes have as many entries as they may have together")

// domainCounts count the entries of mailboxes, by domain. A count is made when it is first needed, and then goes by
// what is added here.
type domainCounts struct {
	mu sync.Mutex
	of map[string]*domainCount
}

type domainCount struct {
	n    int
	made time.Time
}

// take takes n more entries off the share of a domain.
func (d *domainCounts) take(domain string, n int, all iter.Seq[*live.Entry], now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.of[domain]
	if c == nil || c.n+n > domainShare && now.Sub(c.made).Abs() > countAgain {
		c = &domainCount{made: now}
		for e := range all {
			if _, at, is := cutLast(e.Item.Owner.Text); is && at == domain {
				c.n++
			}
		}
		if d.of == nil {
			d.of = map[string]*domainCount{}
		}
		d.of[domain] = c
	}
	if c.n+n > domainShare {
		return fmt.Errorf("%w: %s has %d of %d", errDomainFull, domain, c.n, domainShare)
	}
	c.n += n
	return nil
}

// admits reports whether a caller whose token is bound to a domain may add n entries for a mailbox of it. If not,
// admits has answered.
func (d *domainCounts) admits(w http.ResponseWriter, c caller, owner addr.Key, n int, all iter.Seq[*live.Entry]) bool {
	_, domain, isMailbox := cutLast(owner.Text)
	for _, o := range c.owners {
		if !isMailbox || o.Kind != addr.Domain || o.Text != domain {
			continue
		}
		if err := d.take(domain, n, all, time.Now()); err != nil {
			fail(w, http.StatusConflict, err.Error()+"; remove some first")
			return false
		}
	}
	return true
}

// noOwner is the answer about owners that a caller may not know of: the same for all, whether they have entries or not.
const noOwner = "no such owner"

// ownerOf reads an owner as a path or a query names it, without the tag of a mailbox: a look-up has none either. If ok is false, it has
// answered.
func (s *Server) ownerOf(w http.ResponseWriter, r *http.Request, text string) (owner addr.Key, ok bool) {
	c := s.callerOf(r)
	owner, err := s.readOwner(text)
	switch {
	case err != nil && len(c.owners) == 0:
		fail(w, http.StatusBadRequest, "owner: "+err.Error())
	case err != nil || !c.owns(owner):
		fail(w, http.StatusNotFound, noOwner)
	default:
		return owner, true
	}
	return owner, false
}

func (s *Server) readOwner(text string) (addr.Key, error) {
	owner, err := addr.ParseOwner(text)
	if err != nil || owner.Kind != addr.Address {
		return owner, err
	}
	a, err := addr.Parse(owner.Text)
	if err != nil {
		return owner, err
	}
	if k, ok := s.settings.Mailbox(a).Key(); ok {
		return k, nil
	}
	return owner, nil
}

// ownerEntries answers GET /v1/owners/{owner}/entries.
func (s *Server) ownerEntries(w http.ResponseWriter, r *http.Request) {
	s.entriesOf(w, r, r.PathValue("owner"))
}

// entriesOf answers with a page of an owner's entries.
func (s *Server) entriesOf(w http.ResponseWriter, r *http.Request, name string) {
	owner, ok := s.ownerOf(w, r, name)
	if !ok {
		return
	}
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		delete(values, "owner")
		v, err = onlyOnce(values, []string{"q", "cursor", "limit"})
	}
	limit, after := 0, ^uint64(0)
	if err == nil {
		limit, err = limitOf(v["limit"], DefaultEntries, live.MaxFound)
	}
	if err == nil && v["cursor"] != "" {
		if after, err = strconv.ParseUint(v["cursor"], 10, 64); err != nil {
			err = errors.New("cursor: no answer had it")
		}
	}
	if err == nil && len(v["q"]) > maxQueryText {
		err = fmt.Errorf("q: over %d octets", maxQueryText)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	all, tag := s.settings.Entries.Of(owner)
	h := w.Header()
	h["Etag"], h["Cache-Control"] = []string{`"` + tag + `"`}, revalidate
	if wants := r.Header["If-None-Match"]; len(wants) > 0 && hasTag(wants, `"`+tag+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	l := OwnerEntries{Owner: owner.Text, Entries: []*LiveEntry{}, Total: len(all)}
	matches := live.Matching(v["q"])
	for _, e := range all {
		switch {
		case e.Number >= after || !matches(e):
		case len(l.Entries) == limit:
			l.Next = strconv.FormatUint(l.Entries[limit-1].Number, 10)
		default:
			l.Entries = append(l.Entries, s.mark(NewLiveEntry(e)))
		}
		if l.Next != "" {
			break
		}
	}
	send(w, http.StatusOK, typeJSON, l)
}

// addOwnerEntries answers POST /v1/owners/{owner}/entries.
func (s *Server) addOwnerEntries(w http.ResponseWriter, r *http.Request) {
	if owner, ok := s.ownerOf(w, r, r.PathValue("owner")); ok {
		s.add(w, r, &owner)
	}
}

// removeOwnerEntries answers DELETE /v1/owners/{owner}/entries.
func (s *Server) removeOwnerEntries(w http.ResponseWriter, r *http.Request) {
	if owner, ok := s.ownerOf(w, r, r.PathValue("owner")); ok {
		s.remove(w, r, &owner)
	}
}

// ifMatch is the tag that a change of an owner's entries wants; "" = any. ok is false if it is none.
func ifMatch(r *http.Request) (tag string, ok bool) {
	text := r.Header.Get("If-Match")
	if text == "" || text == "*" {
		return "", true
	}
	bare, quoted := strings.CutPrefix(text, `"`)
	bare, closed := strings.CutSuffix(bare, `"`)
	return bare, quoted && closed && bare != "" && !strings.Contains(bare, `"`)
}

const onlyReports = "this token has the scope report: it may say how a node is by POST to /v1/fleet, and nothing else"

// bound refuses a caller whose token is for a node's reports or bound to owners, wherever that has not been thought of.
func (s *Server) bound(m *method, w http.ResponseWriter, r *http.Request) bool {
	if m.open || isConsole(r) || m.owners && len(r.Header["Authorization"]) == 0 && len(r.Header["Cookie"]) == 0 { // a browser sends the cookie with the page itself
		return false
	}
	c := s.callerOf(r)
	if c.scope < Read && !m.reports {
		fail(w, http.StatusForbidden, onlyReports)
		return true
	}
	if len(c.owners) > 0 && !m.owners {
		fail(w, http.StatusForbidden, "this token is bound to an owner: it may ask /v1/owners/OWNER/entries and /junk, and /v1/check with a recipient of its own")
		return true
	}
	return false
}

// mayCheck reports whether a caller whose token is bound asks about a recipient of its own. If not, it has answered.
func (s *Server) mayCheck(w http.ResponseWriter, r *http.Request, recipient string) bool {
	if len(r.Header["Authorization"]) == 0 && len(r.Header["Cookie"]) == 0 {
		return true
	}
	c := s.callerOf(r)
	if c.scope < Read { // package fastpath comes here by itself
		fail(w, http.StatusForbidden, onlyReports)
		return false
	}
	if len(c.owners) == 0 {
		return true
	}
	if owner, err := s.readOwner(recipient); err == nil && owner.Kind == addr.Address && c.owns(owner) {
		return true
	}
	fail(w, http.StatusForbidden, "this token is bound to an owner: want recipient=, an address of its own")
	return false
}

func ownerParam() *huma.Param {
	return &huma.Param{Name: "owner", In: "path", Required: true, Description: "a mailbox, or a domain whose entries are those of all its mailboxes",
		Example: "anna@here.example", Schema: &huma.Schema{Type: huma.TypeString}}
}

func matchParam() *huma.Param {
	return &huma.Param{Name: "If-Match", In: "header", Description: "the ETag of GET: nothing is changed if the entries are no longer those", Schema: &huma.Schema{Type: huma.TypeString}}
}

func describeOwnerEntries(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "ownerEntries", Summary: "An owner's live entries, the newest first",
		Parameters: []*huma.Param{ownerParam(), limited("q", "a text that the entry, why or author has in it; upper and lower case are the same", maxQueryText),
			limited("cursor", "`next` of an answer", maxQueryText), number("limit", "how many entries at most", 1, live.MaxFound, DefaultEntries)},
		Responses: d.tagged(OwnerEntries{})}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound)
	return op
}

func describeAddOwnerEntries(d *document) *huma.Operation {
	op := describeAdd(d)
	op.OperationID, op.Summary = "addOwnerEntries", "Add entries of an owner, which act at once for its mail"
	op.Parameters = []*huma.Param{ownerParam(), matchParam()}
	d.problems(op, http.StatusNotFound, http.StatusPreconditionFailed)
	return op
}

func describeRemoveOwnerEntries(d *document) *huma.Operation {
	op := describeRemove(d)
	op.OperationID, op.Summary = "removeOwnerEntries", "Remove entries of an owner"
	op.Parameters = append([]*huma.Param{ownerParam(), matchParam()}, op.Parameters...)
	d.problems(op, http.StatusConflict, http.StatusNotFound, http.StatusPreconditionFailed)
	return op
}
