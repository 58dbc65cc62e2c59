package config

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"blockd/doors/httpapi"
	"blockd/doors/httpapi/provider"
	"blockd/mail/addr"
)

// OIDC is [http.oidc]: an identity provider with which people sign in to the console, by OpenID Connect (docs/console.md).
type OIDC struct {
	// The provider's address, as its /.well-known/openid-configuration writes it: "https://id.example.org".
	Issuer string `toml:"issuer"`
	// By which the provider knows blockd. It sends browsers back to http.url with v1/session/callback behind it.
	ClientID string `toml:"client_id"`
	// A file with the secret of client_id. "" is a public client, which proves itself by PKCE alone; that is always used.
	ClientSecretFile string `toml:"client_secret_file"`
	// What people read: "Sign in with NAME". "" is the issuer's host.
	Name string `toml:"name"`
	// What is asked for besides openid. Many providers want "groups" here before they say them.
	Scopes []string `toml:"scopes"`
	// The claim whose values give rights: a text, a list, or an object whose members count; "realm_access.roles" is a claim
	// within another. "email" counts if the provider has verified it.
	Claim string `toml:"claim"`
	// The values of claim that give the scope read; "*" is everybody who can sign in.
	Read []string `toml:"read"`
	// Those that give write.
	Write []string `toml:"write"`
	// Those that give admin.
	Admin []string `toml:"admin"`
	// Domains: who has a verified address there, and none of the scopes, may see and change the entries of this address.
	SelfService []string `toml:"self_service"`
}

func defaultOIDC() OIDC {
	return OIDC{Scopes: []string{"profile", "email"}, Claim: "groups", Read: []string{}, Write: []string{}, Admin: []string{}, SelfService: []string{}}
}

func (h HTTP) validateOIDC(f *Faults) {
	const key = "http.oidc"
	o := h.OIDC
	if o == nil {
		return
	}
	switch u, err := url.Parse(o.Issuer); {
	case o.Issuer == "":
		f.add(key+".issuer", "is missing; want the provider's address")
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		f.add(key+".issuer", `want an address such as "https://id.example.org", have %q`, o.Issuer)
	case u.Scheme == "http" && u.Hostname() != "localhost" && !OnLoopback(u.Hostname()+":0"):
		f.add(key+".issuer", "without TLS anybody on the way could say who signs in: want https")
	}
	if o.ClientID == "" {
		f.add(key+".client_id", "is missing")
	}
	if h.URL == "" {
		f.add(key, "needs http.url: the provider sends browsers back there")
	}
	if o.Claim == "" && len(o.Read)+len(o.Write)+len(o.Admin) > 0 {
		f.add(key+".claim", "is missing")
	}
	if len(o.Read)+len(o.Write)+len(o.Admin)+len(o.SelfService) == 0 {
		f.add(key, "gives rights to nobody; want read, write, admin or self_service")
	}
	for name, values := range map[string][]string{"scopes": o.Scopes, "read": o.Read, "write": o.Write, "admin": o.Admin} {
		if i := slices.Index(values, ""); i >= 0 {
			f.add(fmt.Sprintf("%s.%s[%d]", key, name, i), "is empty")
		}
	}
	for i, domain := range o.SelfService {
		if _, err := addr.DomainKey(domain); err != nil {
			f.add(fmt.Sprintf("%s.self_service[%d]", key, i), `want a domain such as "example.org": %v`, err)
		}
	}
}

// Provider is who [http.oidc] names; nil: there is no such table.
func (h HTTP) Provider() (*httpapi.Provider, error) {
	o := h.OIDC
	if o == nil {
		return nil, nil
	}
	address, err := h.Address()
	if err != nil {
		return nil, err
	}
	s := provider.Settings{Issuer: o.Issuer, ClientID: o.ClientID, Redirect: httpapi.CallbackOf(address), Scopes: o.Scopes,
		Rules: provider.Rules{Claim: o.Claim, Read: o.Read, Write: o.Write, Admin: o.Admin, SelfService: o.SelfService}}
	if s.ClientSecret, err = o.secret(); err != nil {
		return nil, err
	}
	p := provider.New(s)
	return &httpapi.Provider{Provider: p, Name: cmp.Or(o.Name, p.Host())}, nil
}

const maxClientSecret = 4 << 10 // octets

// secret reads that of the client; "" = it has none.
func (o *OIDC) secret() (string, error) {
	if o.ClientSecretFile == "" {
		return "", nil
	}
	f, err := os.Open(o.ClientSecretFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxClientSecret+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" || len(b) > maxClientSecret || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s: want one line with the secret of the client", o.ClientSecretFile)
	}
	return secret, nil
}
