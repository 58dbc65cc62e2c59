package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/mail/addr"
)

// errNotShared is the error of commands about entries that machines share.
var errNotShared = errors.New("live.shared is empty: the live entries are of this machine alone")

// SharedLive asks the daemon how the live entries are that machines share.
func SharedLive(ctx context.Context, c config.Config) (now httpapi.LiveShared, err error) {
	if c.Live.Shared == "" {
		return now, errNotShared
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return now, Ask(ctx, c, http.MethodGet, "/v1/live", nil, &now)
}

// lostTimeout is for offering what was lost: a million changes may take ten minutes.
const lostTimeout = 30 * time.Minute

// LostLive has the daemon make the changes once more that the database has lost, or forget them: what is "offer" or "dismiss".
func LostLive(ctx context.Context, c config.Config, what string, q httpapi.LiveWho) (done httpapi.LiveOffered, err error) {
	if c.Live.Shared == "" {
		return done, errNotShared
	}
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	for {
		var some httpapi.LiveOffered
		if err := Ask(ctx, c, http.MethodPost, "/v1/live/"+what, q, &some); err != nil {
			return done, err
		}
		done.Changes, done.Left = done.Changes+some.Changes, some.Left
		if what != "offer" || some.Left == 0 {
			return done, nil
		}
	}
}

// shareAlone has the changes of a set, which no daemon has, made for all machines that share its entries; nil if none do.
func shareAlone(c config.Config, set *live.Set) (*shared.Node, error) {
	return daemon.OpenShared(c, set, slog.New(slog.DiscardHandler))
}

// tokenNode is a connection to the database of live.shared, by which tokens are changed.
func tokenNode(c config.Config) (*shared.Node, error) {
	set, err := live.Read(c.LiveFolder()) // nothing of it is changed
	if err != nil {
		return nil, err
	}
	return shareAlone(c, set)
}

// NewFleetToken draws a token of the fleet. It is kept nowhere: the database has its hash alone.
func NewFleetToken(ctx context.Context, c config.Config, name string, scope httpapi.Scope, by string, owners ...addr.Key) (token string, err error) {
	node, err := tokenNode(c)
	if err != nil {
		return "", err
	}
	defer node.Close()
	return httpapi.NewFleetToken(ctx, node, name, scope, c.Journal(), by, owners...)
}

// RotateFleetToken draws another token for a name of the fleet; the one before is worthless on all machines that
// reach the database.
func RotateFleetToken(ctx context.Context, c config.Config, name, by string) (token string, err error) {
	node, err := tokenNode(c)
	if err != nil {
		return "", err
	}
	defer node.Close()
	return httpapi.RotateFleetToken(ctx, node, name, c.Journal(), by)
}

// FleetTokens are those of the fleet, as this machine knows them.
func FleetTokens(c config.Config) ([]httpapi.Token, error) {
	if c.Live.Shared == "" {
		return nil, nil
	}
	return httpapi.ReadTokens(shared.TokenFile(c.LiveFolder()))
}

// RevokeFleetToken makes a token of the fleet worthless on all machines that reach the database; false = there is none of that name.
func RevokeFleetToken(ctx context.Context, c config.Config, name, by string) (bool, error) {
	node, err := tokenNode(c)
	if err != nil {
		return false, err
	}
	defer node.Close()
	return httpapi.RevokeFleetToken(ctx, node, name, c.Journal(), by)
}
