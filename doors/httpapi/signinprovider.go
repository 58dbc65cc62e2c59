package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/doors/httpapi/provider"
	"blockd/doors/httpapi/session"
	"blockd/mail/addr"
)

// The resources of a sign-in with an identity provider.
const (
	providerPath = sessionPath + "/provider"
	callbackPath = sessionPath + "/callback"
)

// A browser has the cookie of a sign-in until it comes back from the provider. It goes with a link of another site, as the provider's is.
const (
	stepCookie       = "blockd-sign-in"
	secureStepCookie = "__Host-blockd-sign-in"
	stepTime         = 10 * time.Minute
)

// The bounds of sign-ins with the provider that one address begins or ends: so many at once, and one in so long after that.
const (
	stepBurst = 50
	stepEvery = 200 * time.Millisecond
)

// Provider is who people sign in with.
type Provider struct {
	*provider.Provider
	Name string // for people: "Sign in with NAME"
}

// CallbackOf is where the provider sends browsers back to, of a door that they reach at an address.
func CallbackOf(address *url.URL) string { return address.JoinPath(callbackPath).String() }

// The reasons that the page is told behind #sign-in=, by the faults of a sign-in.
var signInReasons = []struct {
	is     error
	reason string
	result string // in metrics
}{
	{provider.ErrAway, "away", signInAway},
	{provider.ErrBusy, "busy", signInTooOften},
	{provider.ErrStale, "stale", signInFailed},
	{provider.ErrNoRights, "no-rights", signInFailed},
	{provider.ErrDenied, "denied", signInFailed},
}

// person is the caller c as somebody for whom the provider has vouched, as long as rights are given as they were then.
func (s *Server) person(c caller, p *session.Person) caller {
	scope, ok := parseScope(p.Scope)
	if s.settings.Provider == nil || p.Rules != s.settings.Provider.Digest() || !ok || scope < Read {
		return c
	}
	now := caller{name: p.Name, known: true, local: c.local, scope: max(c.scope, scope)}
	if len(p.Owners) == 0 {
		return now
	}
	now.local, now.scope = false, scope
	for _, text := range p.Owners {
		owner, err := addr.ParseOwner(text)
		if err != nil {
			return c
		}
		now.owners = append(now.owners, owner)
	}
	return now
}

// toProvider answers GET /v1/session/provider: it sends a browser to the provider.
func (s *Server) toProvider(w http.ResponseWriter, r *http.Request) {
	if !s.mayStep(w, r) {
		return
	}
	secret := provider.NewSecret()
	address, err := s.settings.Provider.Begin(r.Context(), secret)
	if err != nil {
		s.toPage(w, r, err)
		return
	}
	http.SetCookie(w, s.step(r, secret))
	redirect(w, address)
}

// fromProvider answers GET /v1/session/callback, to which the provider sends a browser back.
func (s *Server) fromProvider(w http.ResponseWriter, r *http.Request) {
	if !s.mayStep(w, r) {
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery) // of a provider, which may have parameters of its own, and a blank as "+"
	secret := ""
	if c, missing := r.Cookie(s.step(r, "").Name); missing == nil {
		secret = c.Value
	}
	http.SetCookie(w, s.step(r, ""))
	var person provider.Person
	if err == nil {
		person, err = s.settings.Provider.Finish(r.Context(), secret, query)
	} else {
		err = provider.ErrDenied
	}
	if err != nil {
		s.toPage(w, r, err)
		return
	}
	if tokenName.MatchString(person.Name) { // so that nobody is taken for the holder of a token
		person.Name += "@" + s.settings.Provider.Host()
	}
	rights := session.Session{Person: &session.Person{Subject: person.Subject, Name: person.Name, Scope: person.Scope, Rules: s.settings.Provider.Digest()}}
	if person.Owner != "" {
		owner, err := s.readOwner(person.Owner)
		if err != nil || owner.Kind != addr.Address {
			s.toPage(w, r, provider.ErrNoRights)
			return
		}
		rights.Person.Owners = []string{owner.Text}
	}
	if !s.begins.allows(callerKey{token: "person " + person.Subject}, time.Now()) {
		s.toPage(w, r, provider.ErrBusy)
		return
	}
	s.begin(w, r, signInProvider, rights)
	s.toPage(w, r, nil)
}

// mayStep bounds how often an address has the provider asked. If it may not, mayStep has answered.
func (s *Server) mayStep(w http.ResponseWriter, r *http.Request) bool {
	var k callerKey
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		k = clientKey(from.Addr())
	}
	wait := s.steps.admit(k, time.Now())
	if wait == 0 {
		return true
	}
	s.signIns.WithLabelValues(signInProvider, signInTooOften).Inc()
	retryAfter(w, wait)
	fail(w, http.StatusTooManyRequests, "too many sign-ins from this address: wait a moment")
	return false
}

// step is the cookie of a sign-in; with "" it takes it away.
func (s *Server) step(r *http.Request, secret string) *http.Cookie {
	c := &http.Cookie{Name: stepCookie, Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(stepTime / time.Second)}
	if s.overTLS(r) {
		c.Name, c.Secure = secureStepCookie, true
	}
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

// toPage sends a browser to the console, which says what has gone wrong.
func (s *Server) toPage(w http.ResponseWriter, r *http.Request, fault error) {
	to := *s.url
	if fault != nil {
		reason, result := "failed", signInFailed
		for _, known := range signInReasons {
			if errors.Is(fault, known.is) {
				reason, result = known.reason, known.result
				break
			}
		}
		s.signIns.WithLabelValues(signInProvider, result).Inc()
		if r.Context().Err() == nil && !errors.Is(fault, provider.ErrBusy) {
			s.log.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelWarn, "sign-in with the identity provider failed", slog.Any("error", fault))
		}
		to.Fragment = "sign-in=" + reason
	}
	redirect(w, to.String())
}

// redirect sends a browser on, and tells nobody where from.
func redirect(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Location", to)
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

func describeToProvider(d *document) *huma.Operation {
	return d.redirecting(&huma.Operation{OperationID: "signInWithProvider", Summary: "Send a browser to the identity provider",
		Description: "For links of the page. Without [http.oidc] there is no such resource."})
}

func describeFromProvider(d *document) *huma.Operation {
	text := func(name, about string) *huma.Param { return parameter(name, about, "") }
	return d.redirecting(&huma.Operation{OperationID: "signInFromProvider", Summary: "Where the identity provider sends a browser back to",
		Description: "It begins a session, and leads to the page; where that fails, to #sign-in= with a reason. A provider may add parameters.",
		Parameters:  []*huma.Param{text("code", "of the provider"), text("state", "that of the browser's cookie"), text("iss", "the provider"), text("error", "why there is no code"), text("error_description", "the same for people")}})
}

func (d *document) redirecting(op *huma.Operation) *huma.Operation {
	op.Responses = map[string]*huma.Response{"303": {Description: "See Other", Headers: header("Location", "the provider, or the page")}}
	d.problems(op, http.StatusForbidden, http.StatusTooManyRequests)
	return op
}
