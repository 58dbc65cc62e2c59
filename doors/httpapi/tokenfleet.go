package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"blockd/index/live/shared"
	"blockd/mail/addr"
	"blockd/records/audit"
)

// NewFleetToken draws a token that is valid on all machines of a node's fleet, and returns it once: their store has its hash alone. journal, by and
// owners are those of NewToken. The error wraps live.ErrAway while the store does not answer.
func NewFleetToken(ctx context.Context, node *shared.Node, name string, scope Scope, journal *audit.Log, by string, owners ...addr.Key) (token string, err error) {
	return writeFleetToken(ctx, node, name, scope, journal, audit.Line{By: by, Action: audit.TokenAdd, Subject: name}, owners)
}

// RotateFleetToken draws another token for a name of the fleet, with what it may: the one before is worthless on all
// machines that reach the store. journal and by are those of NewToken.
func RotateFleetToken(ctx context.Context, node *shared.Node, name string, journal *audit.Log, by string) (token string, err error) {
	all, err := ReadTokens(node.TokenFile())
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, func(t Token) bool { return t.Name == name })
	if at < 0 {
		return "", fmt.Errorf("the fleet %w %s", errNoToken, name)
	}
	return writeFleetToken(ctx, node, name, all[at].Scope, journal, audit.Line{By: by, Action: audit.TokenRotate, Subject: name}, all[at].Owners)
}

// writeFleetToken draws a token and gives its hash to the store, once the journal has a line about it.
func writeFleetToken(ctx context.Context, node *shared.Node, name string, scope Scope, journal *audit.Log, line audit.Line, owners []addr.Key) (token string, err error) {
	token, t, err := DrawToken(name, scope, owners...)
	if err != nil {
		return "", err
	}
	line.Detail = "of the fleet, " + t.May()
	if err := journal.Add(line); err != nil {
		return "", err
	}
	var bound []string
	for _, owner := range owners {
		bound = append(bound, url.PathEscape(owner.Text))
	}
	err = node.AddToken(ctx, shared.Token{Name: name, Scope: scope.String(), Sum: fmt.Sprintf("sha256:%x", t.hash), Owners: strings.Join(bound, ","), By: line.By}, line.Action == audit.TokenRotate)
	if errors.Is(err, shared.ErrTokenThere) {
		err = fmt.Errorf("the fleet %w %s", errTokenTaken, name)
	}
	if err != nil {
		return "", err
	}
	return token, nil
}

// RevokeFleetToken makes a token worthless on all machines that reach the store of a node's fleet; false = there is none of that name.
func RevokeFleetToken(ctx context.Context, node *shared.Node, name string, journal *audit.Log, by string) (bool, error) {
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenRevoke, Subject: name, Detail: "of the fleet"}); err != nil {
		return false, err
	}
	return node.RevokeToken(ctx, name, by)
}
