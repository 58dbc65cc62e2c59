package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/index/live"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/records/audit"
)

// maxChanges is how many entries one request may add or remove.
const maxChanges = 1000

// LiveEntry is a live entry as /v1/entries shows it. Sent back unchanged, it
// undoes its removal.
type LiveEntry struct {
	Owner   string     `json:"owner,omitempty" doc:"whose entry it is; absent: everybody's"`
	Entry   string     `json:"entry"` // as a plain list has it
	Action  string     `json:"action"`
	Why     string     `json:"why"`
	Author  string     `json:"author"`
	Expires *time.Time `json:"expires"` // null: never
	Force   bool       `json:"force,omitempty"`
	Require []string   `json:"require,omitempty" doc:"an exception that counts only with one of these proofs: spf, dkim"`

	// Of an answer alone.
	Number uint64     `json:"number,omitempty"` // the line of list "live" that verdicts name
	Kind   string     `json:"kind,omitempty"`
	Scope  string     `json:"scope,omitempty"`
	Added  *time.Time `json:"added,omitempty"`
	Rev    uint64     `json:"rev,omitempty" doc:"the revision of the entry, for if_rev: the same on all machines that share it"`

	alone bool // no machine shares it
	Local bool `json:"local,omitempty" doc:"the entry acts on this machine alone, which shares others"`
}

// NewLiveEntry returns what is shown of an entry; nil for nil.
func NewLiveEntry(e *live.Entry) *LiveEntry {
	if e == nil {
		return nil
	}
	l := &LiveEntry{Owner: e.Item.Owner.Text, Entry: e.Text, Action: e.Item.Action.String(), Why: e.Why, Author: e.Author, Force: e.Forced,
		Number: e.Number, Kind: e.Item.Kind.String(), Scope: e.Item.Scope.String(), Added: &e.Added, Rev: e.Revision(), alone: e.Rev == 0}
	if !e.Expires.IsZero() {
		l.Expires = &e.Expires
	}
	if e.NeedsProof {
		l.Require = []string{"spf", "dkim"}
	}
	return l
}

// EntryChange is the question of POST /v1/entries: a LiveEntry, perhaps with a life
// in place of its end.
type EntryChange struct {
	LiveEntry
	For   string  `json:"for,omitempty"` // "30d", "12h"
	IfRev *uint64 `json:"if_rev,omitempty" doc:"the revision that the entry must have now, 0: there must be none; else nothing is changed, and 409 has what there is"`
}

// ChangeResult is the result of one change. Was undoes the change: sent back, it
// makes the entry what it was before. If it is null, a removal undoes the change.
type ChangeResult struct {
	Result string     `json:"result"` // "added", "replaced", "unchanged", "removed" or "absent"
	Entry  *LiveEntry `json:"entry"`  // in force now; null: none
	Was    *LiveEntry `json:"was"`
}

// ChangeResults is the answer to POST and DELETE.
type ChangeResults struct {
	Results  []ChangeResult `json:"results"`
	Replicas *int           `json:"replicas,omitempty" doc:"of entries that are shared by a Redis: how many replicas have the change; 0 may be lost in a failover"`
}

// RevisionProblem is the answer to a change whose if_rev is not the revision of the entry.
type RevisionProblem struct {
	Title  string     `json:"title" doc:"the status in words"`
	Status int        `json:"status" minimum:"400" maximum:"599"`
	Detail string     `json:"detail" doc:"for people: what was wrong, and what is wanted"`
	Was    *LiveEntry `json:"was" doc:"what there is; null: nothing"`
}

// newChangeResult says what an outcome is.
func newChangeResult(o live.Outcome) ChangeResult {
	r := ChangeResult{Entry: NewLiveEntry(o.Entry), Was: NewLiveEntry(o.Was)}
	switch {
	case o.Entry == nil && o.Was == nil:
		r.Result = "absent"
	case o.Entry == nil:
		r.Result = "removed"
	case o.Was == nil:
		r.Result = "added"
	case o.Entry == o.Was:
		r.Result = "unchanged"
	default:
		r.Result = "replaced"
	}
	return r
}

// addEntries adds the entry in the body, or those in its member "entries": all or none.
func (s *Server) addEntries(w http.ResponseWriter, r *http.Request) { s.add(w, r, nil) }

// add is addEntries for entries of one owner; nil = those that they say, or everybody's.
func (s *Server) add(w http.ResponseWriter, r *http.Request, owner *addr.Key) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		w.Header().Set("Accept-Post", "application/json")
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBatch))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", maxBatch))
			return
		}
		fail(w, http.StatusBadRequest, "the body ended too early")
		return
	}
	asked, err := decodeChanges(body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // for a successor
	changes := make([]live.Change, len(asked))
	for i := range asked {
		if changes[i], err = asked[i].Change(s.settings.Entries.Now()); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		changes[i].Author = s.callerOf(r).author(changes[i].Author, r)
		if says := changes[i].Owner; says != "" {
			named, err := s.readOwner(says)
			if err == nil && owner != nil && named != *owner {
				err = errors.New("another one than the path has")
			}
			if err != nil {
				fail(w, http.StatusBadRequest, fmt.Sprintf("entry %d: owner: %v", i, err))
				return
			}
			changes[i].Owner = named.Text
		} else if owner != nil {
			changes[i].Owner = owner.Text
		}
	}
	if owner == nil || s.ofDomains.admits(w, s.callerOf(r), *owner, len(changes), s.settings.Entries.Owned()) {
		s.apply(w, r, owner, changes)
	}
}

// decodeChanges reads one change, or {"entries":[…]}.
func decodeChanges(body []byte) ([]EntryChange, error) {
	var many map[string]json.RawMessage
	if err := decode(body, &many); err != nil {
		return nil, err
	}
	var each []json.RawMessage // not with body in it: decoding would write there
	if list, ok := many["entries"]; ok {
		if len(many) > 1 {
			return nil, errors.New(`want {"entries":[…]} and nothing beside`)
		}
		if err := decode(list, &each); err != nil {
			return nil, err
		}
	} else {
		each = append(each, body)
	}
	if len(each) == 0 || len(each) > maxChanges {
		return nil, fmt.Errorf("want 1 to %d entries, have %d", maxChanges, len(each))
	}
	changes := make([]EntryChange, len(each))
	for i, one := range each {
		if err := decodeWith(one, &changes[i], true); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return changes, nil
}

// Change is the change that c asks for, at this time.
func (c *EntryChange) Change(now time.Time) (live.Change, error) {
	change := live.Change{Owner: c.Owner, Entry: c.Entry, Why: c.Why, Author: c.Author, Force: c.Force, IfRev: c.IfRev}
	switch c.Action {
	case "", lists.Block.String():
	case lists.Allow.String():
		change.Action = lists.Allow
	default:
		return change, fmt.Errorf(`action %q; want "block" or "allow"`, c.Action)
	}
	if len(c.Require) > 0 {
		if words := slices.Sorted(slices.Values(c.Require)); !slices.Equal(words, []string{"dkim", "spf"}) {
			return change, errors.New(`require: want "spf" and "dkim", of which either is enough`)
		}
		change.NeedsProof = true
	}
	switch {
	case c.For != "" && c.Expires != nil:
		return change, errors.New("want for or expires, not both")
	case c.For != "":
		life, err := live.ParseLife(c.For)
		if err != nil {
			return change, err
		}
		change.Expires = now.Add(life)
	case c.Expires != nil:
		change.Expires = *c.Expires
	}
	return change, nil
}

// author is the author of a change: the name that the request gives, and who was authenticated.
func (c caller) author(says string, r *http.Request) string {
	who := c.who(r)
	return audit.Author(who, cmp.Or(says, c.calls(who)))
}

// removeEntries removes those that the query names.
func (s *Server) removeEntries(w http.ResponseWriter, r *http.Request) { s.remove(w, r, nil) }

// remove is removeEntries for entries of one owner; nil = the one that the query names, or everybody's.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, owner *addr.Key) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	names := query["entry"]
	delete(query, "entry")
	v, err := onlyOnce(query, []string{"author", "why", "owner", "if_rev"})
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if name := v["owner"]; name != "" && owner == nil {
		named, ok := s.ownerOf(w, r, name)
		if !ok {
			return
		}
		owner = &named
	}
	if len(names) == 0 || len(names) > maxChanges {
		fail(w, http.StatusBadRequest, fmt.Sprintf("want 1 to %d parameters entry, have %d", maxChanges, len(names)))
		return
	}
	var rev *uint64
	if text := v["if_rev"]; text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || len(names) > 1 {
			fail(w, http.StatusBadRequest, "if_rev: want a number, and one entry")
			return
		}
		rev = &n
	}
	changes := make([]live.Change, len(names))
	for i, name := range names {
		changes[i] = live.Change{Entry: name, Remove: true, IfRev: rev, Why: v["why"], Author: s.callerOf(r).author(v["author"], r)}
		if owner != nil {
			changes[i].Owner = owner.Text
		}
	}
	s.apply(w, r, owner, changes)
}

// apply makes changes and answers with their results.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, owner *addr.Key, changes []live.Change) {
	change := func() ([]live.Outcome, error) { return s.settings.Entries.Apply(changes...) }
	if owner != nil {
		tag, ok := ifMatch(r)
		if !ok {
			fail(w, http.StatusBadRequest, "If-Match: want the ETag of an answer")
			return
		}
		change = func() ([]live.Outcome, error) { return s.settings.Entries.ApplyIf(*owner, tag, changes...) }
	}
	outcomes, ok := s.commitBy(w, r, changes, change)
	if !ok {
		return
	}
	answer := ChangeResults{Results: make([]ChangeResult, len(outcomes)), Replicas: replicasOf(outcomes)}
	for i, o := range outcomes {
		answer.Results[i] = newChangeResult(o)
		s.mark(answer.Results[i].Entry, answer.Results[i].Was)
	}
	send(w, http.StatusOK, typeJSON, answer)
}

// mark says which of entries are of this machine alone, if others are shared, and returns the first.
func (s *Server) mark(all ...*LiveEntry) *LiveEntry {
	for _, l := range all {
		if l != nil && s.settings.Entries.Shared() {
			l.Local = l.alone
		}
	}
	return all[0]
}

// replicasOf is how many replicas have changes; nil if they are not in a store that says so.
func replicasOf(outcomes []live.Outcome) *int {
	var least *int
	for _, o := range outcomes {
		if o.Rev > 0 && o.Replicas >= 0 && (least == nil || o.Replicas < *least) {
			least = &o.Replicas
		}
	}
	return least
}

// commit makes changes, and logs them. While another process takes over it waits, and then that one answers. If ok is false, commit or
// that one has answered.
func (s *Server) commit(w http.ResponseWriter, r *http.Request, changes []live.Change) (outcomes []live.Outcome, ok bool) {
	return s.commitBy(w, r, changes, func() ([]live.Outcome, error) { return s.settings.Entries.Apply(changes...) })
}

// howToForce is how a request to a resource says that a guard is to be passed over.
func howToForce(path string) string {
	switch {
	case strings.HasSuffix(path, "/entries"):
		return `say "force": true`
	case strings.HasSuffix(path, "/grant"):
		return `add the entry by /v1/entries with "force": true`
	}
	return "say force=1"
}

// unlessYielded does what one process alone may, or has the process answer that may do it now (Settings.Successor):
// answered. It waits for that one for most; 0 = as long as it takes.
func unlessYielded(w http.ResponseWriter, r *http.Request, successor func(context.Context) http.Handler, most time.Duration, do func() error) (err error, answered bool) {
	err = do()
	for errors.Is(err, live.ErrYielded) && successor != nil && r.Context().Err() == nil {
		if next := successor(r.Context()); next != nil {
			w.Header().Set("Connection", "close") // the next request is to go there by itself
			// The doors here may close before it answers. Cut off, a client could not know whether the change was made.
			ctx := context.WithoutCancel(r.Context())
			if most > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, most)
				defer cancel()
			}
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil, true
		}
		err = do()
	}
	return err, false
}

// commitBy is commit by a function of the live entries.
func (s *Server) commitBy(w http.ResponseWriter, r *http.Request, changes []live.Change, apply func() ([]live.Outcome, error)) (outcomes []live.Outcome, ok bool) {
	err, answered := unlessYielded(w, r, s.settings.Successor, requestTimeout, func() (err error) {
		outcomes, err = apply()
		return err
	})
	if answered {
		return nil, false
	}
	stale, isStale := errors.AsType[*live.RevisionError](err)
	switch {
	case isStale:
		send(w, http.StatusConflict, typeProblem, RevisionProblem{http.StatusText(http.StatusConflict), http.StatusConflict, err.Error(), s.mark(NewLiveEntry(stale.Was))})
		return nil, false
	case errors.Is(err, live.ErrAway):
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, err.Error())
		return nil, false
	case errors.Is(err, live.ErrChanged):
		fail(w, http.StatusPreconditionFailed, err.Error()+"; ask again, and send the new ETag")
		return nil, false
	case errors.Is(err, live.ErrOwnerFull):
		fail(w, http.StatusConflict, err.Error()+"; remove one first")
		return nil, false
	case errors.Is(err, live.ErrGuarded):
		fail(w, http.StatusConflict, err.Error()+"; if that is meant, "+howToForce(r.URL.Path))
		return nil, false
	case errors.Is(err, live.ErrInvalid):
		fail(w, http.StatusBadRequest, err.Error())
		return nil, false
	case err != nil:
		s.log.Error("live entries not changed", slog.Any("error", err))
		fail(w, http.StatusInsufficientStorage, err.Error())
		return nil, false
	}
	for i, o := range outcomes {
		if o.Changed() {
			s.log.Info("live entry "+newChangeResult(o).Result, slog.String("by", changes[i].Author), slog.Any("entry", cmp.Or(o.Entry, o.Was)))
		}
	}
	return outcomes, true
}
