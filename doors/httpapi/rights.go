package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"blockd/doors/httpapi/session"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/mail/addr"
	"blockd/records/audit"
)

// What a caller of scope Admin may: say who else may, and end the sessions of others. The scope Write changes what is filtered, and that is all
// that it could ever change.

// TokenRow describes a token, without its secret.
type TokenRow struct {
	Name   string   `json:"name"`
	Scope  string   `json:"scope" enum:"read,write,admin,report"`
	Made   string   `json:"made" doc:"a date, for people"`
	Owners []string `json:"owners" doc:"the mailboxes and domains that it is bound to; none = it is not"`
	Fleet  bool     `json:"fleet,omitempty" doc:"it is valid on all machines that share their live entries; absent: on this one alone"`
	// Used counts requests of browsers that have signed in with it too.
	Used *time.Time `json:"used,omitempty" doc:"the last request with it on this machine since the daemon began, to the second; absent = none"`
}

// TokenList is the answer to GET /v1/tokens.
type TokenList struct {
	Tokens []TokenRow `json:"tokens"`
}

// NewTokenRow asks for a token.
type NewTokenRow struct {
	Name   string   `json:"name" doc:"letters, digits and . _ -, at most 32"`
	Scope  string   `json:"scope" enum:"read,write,admin,report"`
	Owners []string `json:"owners,omitempty" doc:"mailboxes and domains that it is bound to"`
	Local  bool     `json:"local,omitempty" doc:"of this machine alone, where machines share theirs (live.shared)"`
}

// MadeToken is the answer to POST /v1/tokens.
type MadeToken struct {
	TokenRow
	Token string `json:"token" doc:"shown this once"`
}

// SessionRow is a session of a browser.
type SessionRow struct {
	ID       string    `json:"id" doc:"for DELETE; it lets nobody in"`
	Name     string    `json:"name" doc:"of the token, or of the person"`
	Provider bool      `json:"provider" doc:"the identity provider has vouched for the person"`
	Made     time.Time `json:"made"`
	Used     time.Time `json:"used" doc:"the last request, as exact as a sixteenth of http.session_idle"`
	Ends     time.Time `json:"ends" doc:"at the latest"`
	Own      bool      `json:"own" doc:"it is the one that asks"`
}

// SessionList is the answer to GET and DELETE /v1/sessions.
type SessionList struct {
	Sessions []SessionRow `json:"sessions"` // the newest first
}

// administering admits only callers of scope Admin.
func (s *Server) administering(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch c := s.callerOf(r); {
		case c.scope == Admin:
			next(w, r)
		case c.withheld == Admin:
			fail(w, http.StatusServiceUnavailable, fleetAway)
		case !c.known && !c.local:
			s.refused(refusedToken)
			unauthorized(w, r, "this wants a token of scope admin (blockd token new --admin)")
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="blockd", error="insufficient_scope"`)
			fail(w, http.StatusForbidden, "this wants the scope admin (blockd token new --admin)")
		}
	}
}

func rowOf(t Token) TokenRow {
	row := TokenRow{Name: t.Name, Scope: t.Scope.String(), Made: t.Made, Owners: []string{}}
	for _, owner := range t.Owners {
		row.Owners = append(row.Owners, owner.Text)
	}
	return row
}

// tokenFaults are those of files of tokens that cannot be used, or do not take a token.
var tokenFaults = []faultKind{{audit.ErrUnwritable, http.StatusInsufficientStorage}, {errTokenTaken, http.StatusConflict}, {errTokensFull, http.StatusConflict},
	{errNoTokenFile, http.StatusConflict}, {shared.ErrNoKey, http.StatusConflict}, {live.ErrAway, http.StatusServiceUnavailable}}

// tokenOperation is what the operations of tokens have in common.
func tokenOperation(method, id, summary, done string) operation {
	return operation{method: method, id: id, summary: summary, done: done, right: admin, status: http.StatusServiceUnavailable, lost: "tokens cannot be changed",
		because: "the daemon cannot read or write the file of http.tokens: use blockd token as a user who may, or let the daemon's user write its folder"}
}

func (s *Server) listTokens() method {
	return operate(s, tokenOperation(http.MethodGet, "tokens", "Who has a token", ""), func(call, struct{}) (TokenList, error) { return s.tokenRows() })
}

// tokenRows are the tokens of this machine, and then those of the fleet as this machine knows them.
func (s *Server) tokenRows() (l TokenList, err error) {
	l.Tokens = []TokenRow{}
	for _, from := range []*tokens{&s.tokens, &s.fleet} {
		if from.path == "" {
			continue
		}
		all, err := ReadTokens(from.path)
		if err != nil {
			return l, err
		}
		for _, t := range all {
			row := rowOf(t)
			row.Fleet = from == &s.fleet
			if at, ok := s.uses.last(use{from, t.Name}); ok {
				row.Used = &at
			}
			l.Tokens = append(l.Tokens, row)
		}
	}
	return l, nil
}

func (s *Server) makeToken() method {
	o := tokenOperation(http.MethodPost, "makeToken", "Make a token, which is shown once", "")
	o.body, o.typed, o.faults, o.also = 64<<10, true, tokenFaults, []int{http.StatusInsufficientStorage}
	return operate(s, o, func(c call, q NewTokenRow) (a MadeToken, err error) {
		scope, known := parseScope(q.Scope)
		var owners []addr.Key
		for _, text := range q.Owners {
			owner, fault := addr.ParseOwner(text)
			err = errors.Join(err, fault)
			owners = append(owners, owner)
		}
		switch {
		case err != nil:
		case !known:
			err = fmt.Errorf("scope: want read, write, admin or report, have %q", q.Scope)
		case !tokenName.MatchString(q.Name):
			err = fmt.Errorf("name: want letters, digits and . _ - (at most 32), have %q", q.Name)
		case len(owners) > MaxTokenOwners:
			err = errManyOwners
		case (scope == Admin || scope == Reporting) && len(owners) > 0:
			err = fmt.Errorf("owners: a token of scope %s is bound to nobody", scope)
		}
		if err != nil {
			return a, badf("%v", err)
		}
		a.TokenRow = rowOf(Token{Name: q.Name, Scope: scope, Made: time.Now().UTC().Format(time.DateOnly), Owners: owners})
		if a.Fleet = s.settings.Shared != nil && !q.Local; a.Fleet {
			a.Token, err = NewFleetToken(c.Context(), s.settings.Shared, q.Name, scope, s.journal(), c.by(""), owners...)
		} else if err = s.wantTokenFile(); err == nil {
			a.Token, err = NewToken(s.tokens.path, q.Name, scope, s.journal(), c.by(""), owners...)
		}
		return a, err
	})
}

func (s *Server) wantTokenFile() error {
	if s.tokens.path == "" {
		return errNoTokenFile
	}
	return nil
}

// revokeToken revokes a token of the fleet if there is one of that name, and local=1 does not ask for another.
func (s *Server) revokeToken() method {
	o := tokenOperation(http.MethodDelete, "revokeToken", "Make a token worthless, at once", "those that are left")
	o.faults, o.also = tokenFaults, []int{http.StatusNotFound, http.StatusInsufficientStorage}
	return operate(s, o, func(c call, q struct {
		Name  string `query:"name" required:"true" doc:"of the token; one of the fleet is meant before one of this machine"`
		Local bool   `query:"local" doc:"of this machine alone, where machines share theirs"`
	}) (l TokenList, err error) {
		ofFleet, found := false, false
		if !q.Local && s.fleet.path != "" {
			all, err := ReadTokens(s.fleet.path)
			if err != nil {
				return l, err
			}
			ofFleet = slices.ContainsFunc(all, func(t Token) bool { return t.Name == q.Name })
		}
		switch {
		case ofFleet:
			found, err = RevokeFleetToken(c.Context(), s.settings.Shared, q.Name, s.journal(), c.by(""))
		case s.tokens.path != "":
			found, err = RevokeToken(s.tokens.path, q.Name, s.journal(), c.by(""))
		}
		if err == nil && !found && !ofFleet && !q.Local && s.settings.Shared != nil && !s.settings.Shared.Status().Up {
			err = fmt.Errorf("%w: the store of the fleet does not answer, so it is not known whether it has this token", live.ErrAway)
		}
		switch {
		case errors.Is(err, live.ErrAway):
			return l, faultf(http.StatusServiceUnavailable, "%v", err)
		case err != nil:
			return l, err
		case !found:
			return l, faultf(http.StatusNotFound, "no token of this name")
		}
		return s.tokenRows()
	})
}

func (s *Server) journal() *audit.Log {
	if s.settings.Audit == nil {
		return nil
	}
	return s.settings.Audit.Log
}

func (s *Server) listSessions() method {
	return operate(s, operation{method: http.MethodGet, id: "sessions", summary: "Which browsers have signed in", right: admin, status: http.StatusServiceUnavailable},
		func(c call, _ struct{}) (SessionList, error) { return s.sessionList(c.Request), nil })
}

func (s *Server) sessionList(r *http.Request) SessionList {
	own, l := s.callerOf(r).session, SessionList{Sessions: []SessionRow{}}
	for _, one := range s.sessions.All(time.Now()) {
		ends, _ := s.sessions.Until(one)
		l.Sessions = append(l.Sessions, SessionRow{ID: one.ID, Name: s.nameOf(one), Provider: one.Person != nil, Made: one.Made, Used: one.Used, Ends: ends, Own: own != nil && own.ID == one.ID})
	}
	return l
}

func (s *Server) endSessions() method {
	return operate(s, operation{method: http.MethodDelete, id: "endSessions", summary: "End a session, or all of somebody", done: "those that are left", right: admin,
		also: []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, func(c call, q struct {
		ID   string `query:"id" doc:"one session"`
		Name string `query:"name" doc:"all sessions of this name"`
	}) (l SessionList, err error) {
		if (q.ID == "") == (q.Name == "") {
			return l, badf("want id or name, one of the two")
		}
		ids := map[string]string{} // names
		for _, one := range s.sessions.All(time.Now()) {
			if name := s.nameOf(one); one.ID == q.ID || q.Name != "" && name == q.Name {
				ids[one.ID] = name
			}
		}
		if len(ids) == 0 {
			return l, faultf(http.StatusNotFound, "no such session")
		}
		by := c.by("")
		for _, name := range ids {
			if err := c.record(audit.Line{By: by, Action: audit.SessionEnd, Subject: name, Detail: "ended by another"}); err != nil {
				return l, err
			}
		}
		ended, err := s.sessions.End(time.Now(), func(one session.Session) bool { return ids[one.ID] != "" })
		if err != nil {
			s.log.Error("a session that has ended stands in its file still", slog.Any("error", err))
		}
		s.ended.WithLabelValues(endedByOther).Add(float64(len(ended)))
		return s.sessionList(c.Request), nil
	})
}
