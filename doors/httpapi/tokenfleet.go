package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"blockd/index/live/shared"
	"blockd/mail/addr"
	"blockd/records/audit"
)

// NewFleetToken draws a token that is valid on all machines of a node's fleet, and returns it once: their store has its hash alone. journal, by and
// owners are those of NewToken. The error wraps live.ErrAway while the store does not answer.
func NewFleetToken(ctx context.Context, node *shared.Node, name string, scope Scope, journal *audit.Log, by string, owners ...addr.Key) (token string, err error) {
	token, t, err := DrawToken(name, scope, owners...)
	if err != nil {
		return "", err
	}
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenAdd, Subject: name, Detail: "of the fleet, " + t.May()}); err != nil {
		return "", err
	}
	var bound []string
	for _, owner := range owners {
		bound = append(bound, url.PathEscape(owner.Text))
	}
	err = node.AddToken(ctx, shared.Token{Name: name, Scope: scope.String(), Sum: fmt.Sprintf("sha256:%x", t.hash), Owners: strings.Join(bound, ","), By: by})
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
