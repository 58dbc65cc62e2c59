package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"blockd/doors/httpapi/session"
	"blockd/index/live/shared"
	"blockd/internal/access"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/records/audit"
)

// The lengths of a token: shorter ones can be guessed, longer ones are a wrong
// file.
const (
	minToken = 16
	maxToken = 1024
)

// ReadToken reads a file that holds only a token, with or without a
// line end after it.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(token) < minToken || len(token) > maxToken {
		return "", fmt.Errorf("%s: token of %d octets, want %d to %d", path, len(token), minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: %w", path, errTokenText)
	}
	return token, nil
}

var errTokenText = errors.New("token must be one word of printable ASCII")

// caller is the party that asks, and its rights.
type caller struct {
	name     string  // of its token; "" without one
	known    bool    // by a valid token
	local    bool    // by a Unix socket, whose file mode admits it
	file     *tokens // which has its token; nil: none has
	scope    Scope
	withheld Scope // of its token, which is of the fleet, whose store has been away for too long; Read = none is

	owners []addr.Key // whose entries alone it may see and change; none = it is bound to nobody

	session *session.Session // by which it is known; nil: by a header, or not at all
}

// identity is whose requests http.max_rate counts together: a token's by its name. Names of people come from an identity provider, and two
// may have the same one, so their requests are counted by the provider's subject.
func (c caller) identity() string {
	if c.session != nil && c.session.Person != nil {
		return "person " + c.session.Person.Subject // no token's name has a blank
	}
	return cmp.Or(c.name, theToken)
}

// who was authenticated: a token's name, a person by the subject that the identity provider gives nobody else, or a
// user of this machine who has opened the Unix socket.
func (c caller) who(r *http.Request) string {
	switch {
	case c.session != nil && c.session.Person != nil:
		return c.identity()
	case c.name != "":
		return c.name
	case c.known:
		return audit.ItsToken
	case c.local:
		return userOf(r)
	}
	return "nobody known"
}

// calls is what a caller is called where he gives no name; "" = as who he is.
func (c caller) calls(who string) string {
	if c.session != nil && c.session.Person != nil {
		return c.session.Person.Name
	}
	if uid, is := strings.CutPrefix(who, audit.UserBegin); is {
		if known, err := user.LookupId(uid); err == nil {
			return known.Username
		}
	}
	return ""
}

// userOf is the number of the user at the other end of a Unix socket, by the kernel.
func userOf(r *http.Request) string {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		if uid, gid, _, err := access.Peer(c.Conn); err == nil {
			return access.ByID(uid, gid).Number()
		}
	}
	return "a user of the socket"
}

// guard admits only callers that may ask, as often as they may, and sets the header of
// every answer. It costs no allocation if no token is needed.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recover(r)
		h := w.Header()
		h["X-Content-Type-Options"] = noSniff
		h["Cache-Control"] = noStore // unless an answer has a tag
		if r.URL.Path == "/healthz" {
			next.ServeHTTP(w, r)
			return
		}
		if s.foreign(r) {
			s.refused(refusedOrigin)
			fail(w, http.StatusForbidden, "a page of another site may not ask")
			return
		}
		c := s.callerOf(r)
		if wait := s.wait(c, r); wait > 0 {
			s.refused(refusedRate)
			retryAfter(w, wait)
			fail(w, http.StatusTooManyRequests, fmt.Sprintf("more than %d requests a second (http.max_rate)", s.settings.MaxRate))
			return
		}
		if c.file != nil {
			s.uses.note(use{c.file, c.name}, time.Now())
		}
		if c.session != nil {
			if !safe(r.Method) && !sameOrigin(r) {
				s.refused(refusedOrigin)
				fail(w, http.StatusForbidden, "a change by a session wants the header Origin or Sec-Fetch-Site, as browsers send them for a page of this door; a program sends its token in the header Authorization")
				return
			}
			if err := s.sessions.Use(time.Now(), c.session.ID); err != nil {
				s.log.Warn("sessions cannot be written", slog.Any("error", err))
			}
		}
		switch {
		case c.local, c.known, isConsole(r), isSignIn(r):
		case s.closed():
			s.refused(refusedToken)
			unauthorized(w, r, "want the header Authorization: Bearer TOKEN")
			return
		case !s.knownHost(r.Host):
			s.refused(refusedHost)
			fail(w, http.StatusMisdirectedRequest, "ask by IP address, as localhost or by a name of http.hosts, or set a token")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// retryAfter tells when a request may come again.
func retryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
}

// recover cuts off the answer to a request that has met a defect, because it may be half
// written. Call it deferred. It logs only the path: a query names people.
func (s *Server) recover(r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause != http.ErrAbortHandler {
		s.panics.Inc()
		s.log.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelError, "http request panicked", slog.String("method", r.Method),
			slog.String("path", r.URL.Path), slog.Any("panic", cause), slog.String("stack", string(debug.Stack())))
	}
	panic(http.ErrAbortHandler) // net/http closes the connection, and says nothing
}

// wait is how long the caller must wait to keep its rate; 0: go on. A request with a wrong
// token counts for the client's address, and not for the token's owner.
func (s *Server) wait(c caller, r *http.Request) time.Duration {
	var k callerKey
	switch {
	case c.local || s.limiter.cell == 0:
		return 0
	case c.known:
		k.token = c.identity()
	default:
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err == nil { // else all others share one
			k = clientKey(from.Addr())
		}
	}
	return s.limiter.admit(k, time.Now())
}

// theToken is the name of the token without a name, Settings.Token; no other has this name.
const theToken = "-"

// closed reports whether every caller needs a token.
func (s *Server) closed() bool { return s.settings.Token != "" || s.tokens.path != "" }

// unauthorized answers who has no token, or one that is not known (RFC 6750, section 3).
func unauthorized(w http.ResponseWriter, r *http.Request, detail string) {
	challenge := `Bearer realm="blockd"`
	if r.Header.Get("Authorization") != "" || len(r.Header["Cookie"]) > 0 {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	fail(w, http.StatusUnauthorized, detail)
}

// callerOf identifies the caller. Handlers that need it call it again: handing it on
// in the request's context would cost every request a copy of itself.
func (s *Server) callerOf(r *http.Request) (c caller) {
	if onSocket(r) {
		c = caller{local: true, scope: Write}
	}
	if scheme, token, bearer := strings.Cut(r.Header.Get("Authorization"), " "); bearer && strings.EqualFold(scheme, "Bearer") {
		return s.holder(c, sha256.Sum256([]byte(token)))
	}
	if len(r.Header["Cookie"]) > 0 {
		return s.browser(c, r)
	}
	return c
}

// onSocket reports whether a request comes by a Unix socket.
func onSocket(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && local.Network() == "unix"
}

// holder is the caller c with a token of this SHA-256.
func (s *Server) holder(c caller, token [sha256.Size]byte) caller {
	c.known = same(token, s.settings.Token)
	if s.first.path != "" {
		_, found, err := s.first.find(token)
		if err != nil {
			s.log.Error("the token of the first start cannot be read, and is not valid", slog.Any("error", err))
		}
		if found {
			c.known, c.scope = true, Admin
		}
	}
	for _, from := range []*tokens{&s.tokens, &s.fleet} {
		if from.path == "" {
			continue
		}
		t, found, err := from.find(token)
		if err != nil {
			s.log.Error("tokens cannot be read: none is valid", slog.Any("error", err))
		}
		if found {
			if from == &s.fleet && t.Scope >= Write && !s.settings.Shared.MayWrite() {
				c.withheld, t.Scope = t.Scope, Read
			}
			if t.Scope == Reporting {
				return caller{name: t.Name, known: true, file: from, scope: Reporting}
			}
			if len(t.Owners) > 0 { // bound, by whatever way it comes
				return caller{name: t.Name, known: true, file: from, scope: t.Scope, withheld: c.withheld, owners: t.Owners}
			}
			return caller{name: t.Name, known: true, file: from, local: c.local, withheld: c.withheld, scope: max(c.scope, t.Scope)}
		}
	}
	return c
}

// same reports whether a sum is that of the right token; "" is none. Sums have one length,
// so that the time tells nothing about the token.
func same(have [sha256.Size]byte, wanted string) bool {
	want := sha256.Sum256([]byte(wanted))
	return wanted != "" && subtle.ConstantTimeCompare(have[:], want[:]) == 1
}

// confidential is the answer to callers without a token that ask who wrote to whom, or
// which entries an operator has made and why. On loopback any user of the machine can ask.
const confidential = "this names senders and recipients: it wants a token (blockd token new, or the file that the log names at the start), or the Unix socket (http.socket)"

// private reports whether the caller may see senders, recipients and operators. That needs
// a token or the Unix socket wherever the door is. If it may not, private has answered.
func (s *Server) private(w http.ResponseWriter, r *http.Request) bool {
	if c := s.callerOf(r); c.local || c.known {
		return true
	}
	s.refused(refusedToken)
	unauthorized(w, r, confidential)
	return false
}

// mayKnow reports whether the caller may see correspondents, and what operators have done and why. It is as private, but false for a token that is
// bound to an owner, and it does not answer.
func (s *Server) mayKnow(r *http.Request) bool {
	c := s.callerOf(r)
	return (c.local || c.known) && len(c.owners) == 0 && c.scope >= Read
}

// hides says which entries of recipients' owners the caller may not see: without a right of private all, and with a token that is bound
// those of other owners. nil = it may see all.
func (s *Server) hides(r *http.Request) verdict.Veil {
	switch c := s.callerOf(r); {
	case c.scope < Read:
		return hidesAll
	case len(c.owners) > 0:
		return func(owner addr.Key) bool { return !c.owns(owner) }
	case c.local || c.known:
		return nil
	}
	return hidesAll
}

func hidesAll(addr.Key) bool { return true }

// privately admits only callers that private allows.
func (s *Server) privately(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.private(w, r) {
			next(w, r)
		}
	}
}

// gone reports whether the caller of a private stream has lost its right: its token was revoked, or has another scope or owners now.
func (s *Server) gone(r *http.Request) bool {
	c := s.callerOf(r)
	return !c.local && !c.known || c.scope < Read || len(c.owners) > 0
}

// revoked reports whether the caller of a stream has lost its right since the stream began.
func (s *Server) revoked(r *http.Request) bool {
	return s.closed() && s.gone(r)
}

// fleetAway is the answer to a token of the fleet that would have the right.
var fleetAway = fmt.Sprintf("the store of the fleet has not answered for %s, so tokens of the fleet may change nothing here; it may have been revoked", shared.WritesFor)

// writing admits only callers that may write.
func (s *Server) writing(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := s.callerOf(r)
		switch {
		case c.scope >= Write:
			next(w, r)
		case c.withheld >= Write:
			fail(w, http.StatusServiceUnavailable, fleetAway)
		case !c.known:
			unauthorized(w, r, "to change something wants a token of scope write (blockd token new --write), or the Unix socket (http.socket)")
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="blockd", error="insufficient_scope"`)
			fail(w, http.StatusForbidden, "this token has the scope read; to change something wants one of scope write")
		}
	}
}

// reporting admits only callers that may say how a node is.
func (s *Server) reporting(next http.HandlerFunc) http.HandlerFunc {
	writes := s.writing(next)
	return func(w http.ResponseWriter, r *http.Request) {
		if s.callerOf(r).scope == Reporting {
			next(w, r)
		} else {
			writes(w, r)
		}
	}
}

// safe reports whether a method changes nothing (RFC 9110, section 9.2.1).
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// sameOrigin reports whether a browser says that a page of this door sends the request, which is not foreign.
func sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "same-origin" || site == "" && r.Header.Get("Origin") != ""
}

// foreign reports whether a browser sends the request for a page of another site. A
// link that a person follows is no request of that page.
func (s *Server) foreign(r *http.Request) bool {
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "", site == "none", site == "same-origin":
	case r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil || r.TLS != nil && u.Scheme != "https" {
		return true
	}
	return !strings.EqualFold(u.Host, r.Host) && // "null" has no host
		(s.url == nil || !strings.EqualFold(u.Host, s.url.Host) || u.Scheme != s.url.Scheme)
}
