package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

// listTokens answers GET /v1/tokens.
func (s *Server) listTokens(w http.ResponseWriter, _ *http.Request) {
	rows, err := s.tokenRows()
	if err != nil {
		s.tokensFail(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, TokenList{rows})
}

// tokenRows are the tokens of this machine, and then those of the fleet as this machine knows them.
func (s *Server) tokenRows() ([]TokenRow, error) {
	rows := []TokenRow{}
	for _, from := range []*tokens{&s.tokens, &s.fleet} {
		if from.path == "" {
			continue
		}
		all, err := ReadTokens(from.path)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			row := rowOf(t)
			row.Fleet = from == &s.fleet
			if at, ok := s.uses.last(use{from, t.Name}); ok {
				row.Used = &at
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// makeToken answers POST /v1/tokens.
func (s *Server) makeToken(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != typeJSON[0] {
		w.Header().Set("Accept-Post", typeJSON[0])
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json")
		return
	}
	body, ok := s.body(w, r, 64<<10)
	if !ok {
		return
	}
	var q NewTokenRow
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
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
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	row := rowOf(Token{Name: q.Name, Scope: scope, Made: time.Now().UTC().Format(time.DateOnly), Owners: owners})
	var token string
	by := s.callerOf(r).author("", r)
	if row.Fleet = s.settings.Shared != nil && !q.Local; row.Fleet {
		token, err = NewFleetToken(r.Context(), s.settings.Shared, q.Name, scope, s.journal(), by, owners...)
	} else if err = s.wantTokenFile(); err == nil {
		token, err = NewToken(s.tokens.path, q.Name, scope, s.journal(), by, owners...)
	}
	if err != nil {
		s.tokensFail(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, MadeToken{row, token})
}

func (s *Server) wantTokenFile() error {
	if s.tokens.path == "" {
		return errNoTokenFile
	}
	return nil
}

// revokeToken answers DELETE /v1/tokens?name=, which is of a token of the fleet if there is one of that name, and local=1 does not ask for another.
func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"name", "local"})
	}
	local := v["local"] == "1"
	if err == nil && v["name"] == "" {
		err = errors.New("name: want that of a token")
	}
	if err == nil {
		err = zeroOrOne(v, "local")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ofFleet := false
	if !local && s.fleet.path != "" {
		all, err := ReadTokens(s.fleet.path)
		if err != nil {
			s.tokensFail(w, err)
			return
		}
		ofFleet = slices.ContainsFunc(all, func(t Token) bool { return t.Name == v["name"] })
	}
	by, found := s.callerOf(r).author("", r), false
	switch {
	case ofFleet:
		found, err = RevokeFleetToken(r.Context(), s.settings.Shared, v["name"], s.journal(), by)
	case s.tokens.path != "":
		found, err = RevokeToken(s.tokens.path, v["name"], s.journal(), by)
	}
	if err == nil && !found && !ofFleet && !local && s.settings.Shared != nil && !s.settings.Shared.Status().Up {
		err = fmt.Errorf("%w: the store of the fleet does not answer, so it is not known whether it has this token", live.ErrAway)
	}
	switch {
	case err != nil:
		s.tokensFail(w, err)
	case !found:
		fail(w, http.StatusNotFound, "no token of this name")
	default:
		s.listTokens(w, r)
	}
}

func (s *Server) journal() *audit.Log {
	if s.settings.Audit == nil {
		return nil
	}
	return s.settings.Audit.Log
}

// tokensFail answers about a file of tokens that cannot be used, or does not take a token.
func (s *Server) tokensFail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, audit.ErrUnwritable):
		fail(w, http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, errTokenTaken), errors.Is(err, errTokensFull), errors.Is(err, errNoTokenFile), errors.Is(err, shared.ErrNoKey):
		fail(w, http.StatusConflict, err.Error())
	case errors.Is(err, live.ErrAway):
		fail(w, http.StatusServiceUnavailable, err.Error())
	default:
		s.log.Error("tokens cannot be changed", slog.Any("error", err))
		fail(w, http.StatusServiceUnavailable, "the daemon cannot read or write the file of http.tokens: use blockd token as a user who may, or let the daemon's user write its folder")
	}
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

func (d *document) administers(op *huma.Operation, statuses ...int) *huma.Operation {
	op.Description = op.Summary + ". It wants the scope admin."
	d.problems(op, append(statuses, http.StatusBadRequest)...)
	return op
}

func describeTokens(d *document) *huma.Operation {
	return d.administers(&huma.Operation{OperationID: "tokens", Summary: "Who has a token",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, TokenList{})}}}, http.StatusServiceUnavailable)
}

func describeMakeToken(d *document) *huma.Operation {
	return d.administers(&huma.Operation{OperationID: "makeToken", Summary: "Make a token, which is shown once",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, NewTokenRow{})},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, MadeToken{})}}},
		http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
}

func describeRevokeToken(d *document) *huma.Operation {
	name := parameter("name", "of the token; one of the fleet is meant before one of this machine", "")
	name.Required = true
	local := switched("local", "of this machine alone, where machines share theirs")
	return d.administers(&huma.Operation{OperationID: "revokeToken", Summary: "Make a token worthless, at once", Parameters: []*huma.Param{name, local},
		Responses: map[string]*huma.Response{"200": {Description: "those that are left", Content: d.content(typeJSON, TokenList{})}}},
		http.StatusNotFound, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
}
