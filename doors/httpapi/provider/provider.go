// Package provider has people sign in with an identity provider, by OpenID Connect: the authorization code flow with state, nonce and
// PKCE. It knows nothing of cookies and sessions: a browser brings one secret, of which all three are made.
//
// The provider is asked when somebody signs in, and never else: one that is away stops nothing but sign-ins.
package provider

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Settings of a Provider.
type Settings struct {
	Issuer       string // "https://id.example.org", as the provider writes it itself
	ClientID     string
	ClientSecret string   // "" = a public client, which has PKCE alone
	Redirect     string   // where the provider sends browsers back to
	Scopes       []string // that are asked for, besides openid
	Rules        Rules
}

const (
	timeout      = 10 * time.Second // of everything that one step asks the provider
	patience     = 2 * time.Second  // of a sign-out, which the provider is not needed for
	maxAnswer    = 1 << 20          // octets
	maxAtOnce    = 8                // steps that ask the provider; others are told to come again
	keepMetadata = time.Hour
	failMetadata = 2 * time.Second // after which a provider that was away is asked again
)

// The ways in which a sign-in fails. Errors of Begin and Finish wrap one of them.
var (
	ErrAway   = errors.New("the identity provider cannot be asked")
	ErrBusy   = errors.New("too many sign-ins at once")
	ErrStale  = errors.New("the sign-in was begun elsewhere, or too long ago")
	ErrDenied = errors.New("the identity provider says no")
)

// Provider is an identity provider. It is safe for concurrent use.
type Provider struct {
	settings Settings
	client   *http.Client
	slots    chan struct{}

	mu    sync.Mutex
	found *oidc.Provider // what it says of itself; nil: not known yet
	until time.Time      // it is asked again
	fault error          // why it is not known
}

// New returns a Provider, and asks it nothing.
func New(s Settings) *Provider {
	return &Provider{settings: s, slots: make(chan struct{}, maxAtOnce),
		client: &http.Client{Timeout: timeout, Transport: bounded{http.DefaultTransport}}}
}

// Host is where the provider is, for people.
func (p *Provider) Host() string {
	u, err := url.Parse(p.settings.Issuer)
	if err != nil {
		return p.settings.Issuer
	}
	return u.Hostname()
}

// Digest is that of the settings by which rights are given: rights of other settings are no longer valid.
func (p *Provider) Digest() string {
	text, err := json.Marshal(struct {
		Issuer, Client string
		Rules          Rules
	}{p.settings.Issuer, p.settings.ClientID, p.settings.Rules})
	if err != nil {
		panic(err) // texts alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// bounded reads at most maxAnswer octets of an answer.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

// NewSecret draws what a browser keeps during one sign-in.
func NewSecret() string {
	var chance [32]byte
	rand.Read(chance[:]) // never fails: it ends the process rather
	return base64.RawURLEncoding.EncodeToString(chance[:])
}

// derive makes one of the values that belong to a secret: 43 octets, of which none tells about another.
func derive(secret, what string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(what))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Begin returns the address to which a browser with this secret goes to sign in.
func (p *Provider) Begin(ctx context.Context, secret string) (string, error) {
	done, err := p.enter()
	if err != nil {
		return "", err
	}
	defer done()
	found, err := p.metadata(ctx)
	if err != nil {
		return "", err
	}
	return p.config(found).AuthCodeURL(derive(secret, "state"), oidc.Nonce(derive(secret, "nonce")), oauth2.S256ChallengeOption(derive(secret, "verifier"))), nil
}

// Finish reads what the provider has sent a browser back with, and returns the claims about the person who has signed in, with the rights that they give.
func (p *Provider) Finish(ctx context.Context, secret string, query url.Values) (Person, error) {
	if secret == "" || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(derive(secret, "state"))) != 1 {
		return Person{}, ErrStale
	}
	if iss := query.Get("iss"); iss != "" && iss != p.settings.Issuer { // RFC 9207
		return Person{}, fmt.Errorf("%w: the answer is of another one, %.200q", ErrDenied, iss)
	}
	if query.Get("error") != "" || query.Get("code") == "" {
		return Person{}, fmt.Errorf("%w: %.100q %.500q", ErrDenied, query.Get("error"), query.Get("error_description"))
	}
	done, err := p.enter()
	if err != nil {
		return Person{}, err
	}
	defer done()
	claims, err := p.claims(ctx, secret, query.Get("code"))
	if err != nil {
		return Person{}, err
	}
	return p.settings.Rules.person(claims)
}

// claims exchanges a code for what the provider says of the person.
func (p *Provider) claims(ctx context.Context, secret, code string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), timeout)
	defer cancel()
	found, err := p.metadata(ctx)
	if err != nil {
		return nil, err
	}
	token, err := p.config(found).Exchange(ctx, code, oauth2.VerifierOption(derive(secret, "verifier")))
	if err != nil {
		if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < 500 {
			return nil, fmt.Errorf("%w: %.100q %.500q", ErrDenied, refused.ErrorCode, refused.ErrorDescription) // its body may have secrets
		}
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: p.settings.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(derive(secret, "nonce"))) != 1 {
		return nil, fmt.Errorf("%w: the token is of another sign-in", ErrStale)
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if found.UserInfoEndpoint() == "" {
		return claims, nil
	}
	more, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	said := map[string]any{}
	if err := more.Claims(&said); err != nil || more.Subject != id.Subject {
		return nil, fmt.Errorf("%w: its two answers are about different people", ErrDenied)
	}
	for name, value := range said {
		if _, signed := claims[name]; !signed {
			claims[name] = value
		}
	}
	return claims, nil
}

// EndSession is the address at which a browser signs out at the provider, "" if it has none, or does not say so within patience. The provider asks
// whoever comes there: it is not told whose session is meant, since tokens of a sign-in are not kept.
func (p *Provider) EndSession(ctx context.Context) string {
	done, err := p.enter()
	if err != nil {
		return ""
	}
	heard := make(chan *oidc.Provider, 1)
	go func() {
		defer done()
		found, _ := p.metadata(ctx)
		heard <- found
	}()
	waited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case found := <-heard:
		return p.endOf(found)
	case <-waited.Done():
		return ""
	}
}

// endOf is EndSession by what a provider says of itself; nil: it has said nothing.
func (p *Provider) endOf(found *oidc.Provider) string {
	if found == nil {
		return ""
	}
	var says struct {
		At string `json:"end_session_endpoint"` // OpenID Connect RP-Initiated Logout 1.0
	}
	if found.Claims(&says) != nil {
		return ""
	}
	to, err := url.Parse(says.At)
	if err != nil || to.Host == "" || to.Scheme != "https" && (to.Scheme != "http" || !strings.HasPrefix(p.settings.Issuer, "http://")) {
		return ""
	}
	query := to.Query()
	query.Set("client_id", p.settings.ClientID)
	to.RawQuery = query.Encode()
	return to.String()
}

func (p *Provider) config(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: p.settings.ClientID, ClientSecret: p.settings.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: p.settings.Redirect, Scopes: append([]string{oidc.ScopeOpenID}, p.settings.Scopes...)}
}

// metadata is what the provider says of itself. What was heard last serves while it is away.
func (p *Provider) metadata(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock() // whoever comes meanwhile waits for the same answer, of which the client has a deadline
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.until) && ctx.Err() == nil {
		// Several sign-ins wait for this answer, and for keys that are fetched later: none of them may end it. The client has a deadline.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.settings.Issuer)
		p.until = time.Now().Add(failMetadata)
		if err == nil {
			p.found, p.fault, p.until = found, nil, now.Add(keepMetadata)
		} else {
			p.fault = fmt.Errorf("%w: %w", ErrAway, err)
		}
	}
	if p.found == nil {
		if p.fault == nil {
			return nil, fmt.Errorf("%w: %w", ErrAway, ctx.Err())
		}
		return nil, p.fault
	}
	return p.found, nil
}

// enter takes one of the places of those who ask the provider.
func (p *Provider) enter() (done func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	default:
		return nil, ErrBusy
	}
}
