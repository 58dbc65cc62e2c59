package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Rules say which rights people have, by what the provider says of them.
type Rules struct {
	// Claim is the one whose values give a scope: a text, a list of texts, or an object whose members count. "a.b" is b of the object a.
	Claim string
	// The values of Claim that give a scope; the widest counts. "*" = everybody who can sign in.
	Read, Write, Admin []string
	// SelfService are domains: who has none of the scopes, and a verified address there, may see and change what this address has.
	SelfService []string
}

// Person is somebody who has signed in.
type Person struct {
	Subject string // unique at the provider
	Name    string // for people: a name, an address, or the subject
	Scope   string // "read", "write" or "admin"
	Owner   string // the address that the person is bound to; "" = to none
}

// ErrNoRights says that somebody has signed in who may do nothing here.
var ErrNoRights = errors.New("nothing gives rights to this person")

const maxName = 200 // octets

// person reads claims.
func (r *Rules) person(claims map[string]any) (p Person, err error) {
	p.Subject, _ = claims["sub"].(string)
	if p.Subject == "" || len(p.Subject) > 255 { // OpenID Connect Core, section 2
		return p, fmt.Errorf("%w: it names no subject", ErrDenied)
	}
	verified := verifiedAddress(claims)
	p.Name = p.Subject
	for _, name := range []any{claims["preferred_username"], verified, claims["name"]} {
		if text, _ := name.(string); text != "" && len(text) <= maxName && !strings.ContainsFunc(text, unseen) {
			p.Name = text
			break
		}
	}
	have, same := values(claims, r.Claim), func(a, b string) bool { return a == b }
	if r.Claim == "email" {
		have, same = []string{verified}, strings.EqualFold // "" is no value of the lists
	}
	for scope, wanted := range map[string][]string{"read": r.Read, "write": r.Write, "admin": r.Admin} {
		if (slices.Contains(wanted, "*") || slices.ContainsFunc(have, func(v string) bool { return slices.ContainsFunc(wanted, func(w string) bool { return same(v, w) }) })) && wider(scope, p.Scope) {
			p.Scope = scope
		}
	}
	if p.Scope != "" {
		return p, nil
	}
	if at := strings.LastIndexByte(verified, '@'); at > 0 && !strings.Contains(verified[:at], "@") && slices.ContainsFunc(r.SelfService, func(d string) bool { return strings.EqualFold(d, verified[at+1:]) }) {
		p.Scope, p.Owner = "write", verified
		return p, nil
	}
	return p, fmt.Errorf("%w: %.200q", ErrNoRights, p.Name)
}

// unseen reports whether a character of a name could make it look like another one.
func unseen(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Cf, r) }

func wider(a, b string) bool {
	order := []string{"", "read", "write", "admin"}
	return slices.Index(order, a) > slices.Index(order, b)
}

// verifiedAddress is the address that the provider has verified; "" = there is none.
func verifiedAddress(claims map[string]any) string {
	address, _ := claims["email"].(string)
	switch verified := claims["email_verified"].(type) {
	case bool:
		if verified {
			return address
		}
	case string: // some providers write it so
		if verified == "true" {
			return address
		}
	}
	return ""
}

// values are the texts of a claim.
func values(claims map[string]any, name string) (all []string) {
	claim, there := claims[name]
	if !there {
		if head, rest, ok := strings.Cut(name, "."); ok {
			if inner, ok := claims[head].(map[string]any); ok {
				return values(inner, rest)
			}
		}
		return nil
	}
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if text, ok := one.(string); ok {
				all = append(all, text)
			}
		}
	case map[string]any: // roles of Zitadel
		for text := range v {
			all = append(all, text)
		}
	}
	return all
}
