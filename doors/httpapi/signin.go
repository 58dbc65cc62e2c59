package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/doors/httpapi/session"
	"blockd/records/audit"
)

// sessionPath is where browsers sign in and out; what is below it is part of that.
const sessionPath = "/v1/session"

// The names of the cookie. A browser takes one that begins with __Host- by TLS alone, and from this host alone.
const (
	secureCookie = "__Host-blockd"
	plainCookie  = "blockd-session"
)

// The bounds of sign-ins of one token: so many at once, and one in so long after that. Each has a line in the journal.
const (
	signInBurst = 20
	signInEvery = 6 * time.Second
)

// DefaultIdle and DefaultMax bound sessions where nothing is said of them.
const (
	DefaultIdle = 8 * time.Hour
	DefaultMax  = 24 * time.Hour
)

// Identity says who asks, and by what right.
type Identity struct {
	SignedIn bool       `json:"signed_in" doc:"the caller is known, by one of the ways of by"`
	By       string     `json:"by,omitempty" enum:"token,session,socket" doc:"the way: a token in the header, a session in the cookie, or the Unix socket"`
	Name     string     `json:"name,omitempty" doc:"of the token, or of the person"`
	Scope    string     `json:"scope,omitempty" enum:"read,write,admin"`
	Owners   []string   `json:"owners,omitempty" doc:"the mailboxes and domains that the caller is bound to; absent = to none"`
	Ends     *time.Time `json:"ends,omitempty" doc:"when the session ends at the latest"`
	Unused   *time.Time `json:"unused,omitempty" doc:"when it ends without another request"`
	Closed   bool       `json:"closed" doc:"every resource wants to know the caller, not only those that name people"`
	Provider string     `json:"provider,omitempty" doc:"what the identity provider is called, by which people sign in at /v1/session/provider; absent = there is none"`
	// ProviderEnd is in the answer to a sign-out alone.
	ProviderEnd string `json:"provider_end,omitempty" doc:"where a browser that has signed out here can sign out at the identity provider too; absent = it had not signed in there, or cannot"`
}

// isSignIn reports whether a request is about signing in, for which nobody needs to be known.
func isSignIn(r *http.Request) bool {
	return r.URL.Path == sessionPath || strings.HasPrefix(r.URL.Path, sessionPath+"/")
}

// browser is the caller c with the session of its cookie.
func (s *Server) browser(c caller, r *http.Request) caller {
	found, ok := s.sessionOf(r)
	switch {
	case !ok:
		return c
	case found.Person != nil:
		c = s.person(c, found.Person)
	default:
		var token [sha256.Size]byte
		if n, err := hex.Decode(token[:], []byte(found.Token)); err != nil || n != len(token) {
			return c
		}
		c = s.holder(c, token)
	}
	if c.known {
		c.session = &found
	}
	return c
}

// sessionOf finds the session of a request's cookie. Whether its token is still valid is not looked at.
func (s *Server) sessionOf(r *http.Request) (found session.Session, ok bool) {
	names := []string{plainCookie}
	switch {
	case onSocket(r), s.unnamed(r): // another process may hand a request on
		names = []string{secureCookie, plainCookie}
	case s.overTLS(r):
		names[0] = secureCookie
	}
	for _, name := range names {
		for _, c := range r.CookiesNamed(name) { // another service of this host may have set one too
			found, ok, err := s.sessions.Find(time.Now(), c.Value)
			if err != nil {
				s.log.Error("sessions cannot be read: those of the file have ended", slog.Any("error", err))
			}
			if ok {
				return found, true
			}
		}
	}
	return found, false
}

// overTLS reports whether the browser sends a request by TLS, to this process or to a web server in front of it. With an https address
// in http.url it does, unless its Origin says that it has come here directly, by plain HTTP.
func (s *Server) overTLS(r *http.Request) bool {
	past := s.unnamed(r) && strings.HasPrefix(r.Header.Get("Origin"), "http://")
	return r.TLS != nil || s.url != nil && s.url.Scheme == "https" && !past
}

// unnamed reports whether http.url is an https address and a request without TLS names another host. Either the web server in front
// does not pass Host on, or the browser has come here directly; only Origin can tell which, and some requests have none.
func (s *Server) unnamed(r *http.Request) bool {
	return r.TLS == nil && s.url != nil && s.url.Scheme == "https" && !strings.EqualFold(s.url.Host, r.Host)
}

// identity answers GET /v1/session.
func (s *Server) identity(w http.ResponseWriter, r *http.Request) {
	send(w, http.StatusOK, typeJSON, s.identityOf(s.callerOf(r)))
}

func (s *Server) identityOf(c caller) Identity {
	i := Identity{SignedIn: c.known || c.local, Name: c.name, Closed: s.closed()}
	if s.settings.Provider != nil {
		i.Provider = s.settings.Provider.Name
	}
	if !i.SignedIn {
		return i
	}
	i.Scope = c.scope.String()
	for _, owner := range c.owners {
		i.Owners = append(i.Owners, owner.Text)
	}
	switch {
	case c.session != nil:
		ends, unused := s.sessions.Until(*c.session)
		i.By, i.Ends, i.Unused = "session", &ends, &unused
	case c.known:
		i.By = "token"
	default:
		i.By = "socket"
	}
	return i
}

// signIn answers POST /v1/session: it gives a browser the rights of a token.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	token, ok := s.tokenOf(w, r)
	if !ok {
		return
	}
	sum := sha256.Sum256([]byte(token))
	c := s.holder(caller{}, sum)
	if !c.known {
		s.refused(refusedToken)
		s.signIns.WithLabelValues(signInToken, signInFailed).Inc()
		unauthorized(w, r, "this token is not known, or was revoked")
		return
	}
	rights := session.Session{Token: hex.EncodeToString(sum[:])}
	if c.scope < Read {
		fail(w, http.StatusForbidden, onlyReports)
		return
	}
	if !s.mayBegin(w, signInToken, rights.Token) {
		return
	}
	s.begin(w, r, signInToken, rights)
	c.session = &rights
	rights.Made, rights.Used = time.Now(), time.Now()
	send(w, http.StatusOK, typeJSON, s.identityOf(c))
}

// tokenOf reads the body of a sign-in. If ok is false, it has answered.
func (s *Server) tokenOf(w http.ResponseWriter, r *http.Request) (token string, ok bool) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != typeJSON[0] { // no form of another site can send that
		w.Header().Set("Accept-Post", typeJSON[0])
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json")
		return "", false
	}
	body, ok := s.body(w, r, 4*maxToken)
	if !ok {
		return "", false
	}
	var q struct {
		Token string `json:"token"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
	if err == nil && d.Decode(&struct{}{}) != io.EOF {
		err = errors.New("text behind it")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, `want {"token": "…"}`)
		return "", false
	}
	return q.Token, true
}

// mayBegin bounds how often one holder signs in. If it may not, mayBegin has answered.
func (s *Server) mayBegin(w http.ResponseWriter, way, holder string) bool {
	wait := s.begins.admit(callerKey{token: holder}, time.Now())
	if wait == 0 {
		return true
	}
	s.signIns.WithLabelValues(way, signInTooOften).Inc()
	retryAfter(w, wait)
	fail(w, http.StatusTooManyRequests, "this token has signed in very often: wait a moment")
	return false
}

// begin makes a session, in place of the one that the browser has, and gives it to the browser.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, way string, rights session.Session) {
	s.end(r)
	secret, crowded, err := s.sessions.Begin(time.Now(), rights)
	if err != nil {
		s.log.Warn("sessions cannot be written: a new one ends with this process", slog.Any("error", err))
	}
	s.ended.WithLabelValues(endedCrowded).Add(float64(len(crowded)))
	s.signIns.WithLabelValues(way, signInDone).Inc()
	http.SetCookie(w, s.cookie(r, secret))
	s.noteSession(r, audit.SessionBegin, rights, "by "+way)
}

// cookie carries a secret; "" takes it away. It goes when the browser is closed, at the latest.
func (s *Server) cookie(r *http.Request, secret string) *http.Cookie {
	c := &http.Cookie{Name: plainCookie, Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if s.overTLS(r) {
		c.Name, c.Secure = secureCookie, true
	}
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

// nameOf is whose session it is, for the journal.
func (s *Server) nameOf(of session.Session) string {
	if of.Person != nil {
		return of.Person.Name
	}
	var token [sha256.Size]byte
	hex.Decode(token[:], []byte(of.Token))
	c := s.holder(caller{}, token)
	if !c.known {
		return "a revoked token"
	}
	return cmp.Or(c.name, audit.ItsToken)
}

// noteSession writes a line of the journal. A sign-in is not refused where that fails: who is to mend the machine may need it, and changes
// are refused there in any case.
func (s *Server) noteSession(r *http.Request, action string, of session.Session, detail string) {
	name := s.nameOf(of)
	by := name
	if of.Person != nil {
		by = audit.Author(caller{session: &of}.identity(), name)
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		detail += ", from " + from.Addr().Unmap().String()
	}
	s.log.Info("session", slog.String("action", action), slog.String("by", by))
	if s.settings.Audit == nil {
		return
	}
	if err := s.settings.Audit.Log.Add(audit.Line{By: by, Action: action, Subject: name, Detail: detail}); err != nil {
		s.log.Error("a sign-in or sign-out is not in the audit journal", slog.Any("error", err))
	}
}

// end ends the session of a request, if there is one.
func (s *Server) end(r *http.Request) {
	found, ok := s.sessionOf(r)
	if !ok {
		return
	}
	ended, err := s.sessions.End(time.Now(), func(other session.Session) bool { return other.ID == found.ID })
	if err != nil {
		s.log.Error("a session that has ended stands in its file still", slog.Any("error", err))
	}
	if len(ended) > 0 {
		s.ended.WithLabelValues(endedSignOut).Inc()
		s.noteSession(r, audit.SessionEnd, found, "signed out")
	}
}

// signOut answers DELETE /v1/session.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	was, _ := s.sessionOf(r)
	s.end(r)
	http.SetCookie(w, s.cookie(r, ""))
	i := s.identityOf(caller{})
	if was.Person != nil && s.settings.Provider != nil {
		i.ProviderEnd = s.settings.Provider.EndSession(r.Context())
	}
	send(w, http.StatusOK, typeJSON, i)
}

func describeIdentity(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "identity", Summary: "Who am I, and what may I do?",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, Identity{})}}}
	d.problems(op, http.StatusForbidden, http.StatusTooManyRequests)
	return op
}

func describeSignIn(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "signIn", Summary: "Give a browser the rights of a token",
		Description: "The answer sets a cookie that no script can read, and that no page of another site sends. A request that changes something by it wants Origin or Sec-Fetch-Site, as browsers send them for a page of the same origin. Programs send the token in the header instead.",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{typeJSON[0]: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false,
			Required: []string{"token"}, Properties: map[string]*huma.Schema{"token": {Type: huma.TypeString}}}}}},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Headers: header("Set-Cookie", "the session"), Content: d.content(typeJSON, Identity{})}}}
	d.problems(op, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests)
	return op
}

func describeSignOut(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "signOut", Summary: "End the session of the cookie",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Headers: header("Set-Cookie", "takes the cookie away"), Content: d.content(typeJSON, Identity{})}}}
	d.problems(op, http.StatusForbidden, http.StatusTooManyRequests)
	return op
}
