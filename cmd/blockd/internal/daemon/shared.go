package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/redis"
	"blockd/index/live/shared/relay"
)

// openEngine makes the database of live.shared. It makes no connection.
func openEngine(c config.Config) (shared.Engine, error) {
	dsn, err := c.Live.ReadDSN()
	if err != nil {
		return nil, err
	}
	var e shared.Engine
	if c.Live.Shared == "redis" {
		e, err = redis.Open(dsn, c.Live.Name)
	} else {
		e, err = openSharedSQL(dsn, c.Live.Name)
	}
	if err != nil || len(c.Live.Relays) == 0 {
		return e, err
	}
	var idle func()
	if closes, ok := e.(interface{ Idle() }); ok { // a PostgreSQL has few connections
		idle = closes.Idle
	}
	return relay.New(e, c.Live.Relays, func() (string, error) { return httpapi.ReadToken(c.Live.RelayTokenFile) }, idle), nil
}

// OpenShared has the changes of a set made by the database that its fleet shares; nil if the set is of this machine alone.
func OpenShared(c config.Config, set *live.Set, log *slog.Logger) (*shared.Node, error) {
	if c.Live.Shared == "" || set == nil {
		return nil, nil
	}
	e, err := openEngine(c)
	if err != nil {
		return nil, fmt.Errorf("live.shared: %w", err)
	}
	key, err := c.Live.ReadTokenKey()
	if err != nil {
		return nil, fmt.Errorf("live.%w", err)
	}
	var poll time.Duration
	if len(c.Live.Relays) > 0 {
		poll = relay.Poll
	}
	n, err := shared.Open(shared.Options{Poll: poll, Engine: e, Kind: c.Live.Shared, Name: c.Live.Name, Alone: c.Live.OnOutage == "local", Folder: c.LiveFolder(), Set: set, Log: log, Audit: c.Journal(), Token: httpapi.CheckToken, Key: key})
	if err != nil {
		return nil, fmt.Errorf("live.shared: %w", err)
	}
	return n, nil
}

// TrySharedStore asks the database of live.shared once, and says how far its clock is before this machine's.
func TrySharedStore(ctx context.Context, c config.Config) (store string, offset time.Duration, err error) {
	e, err := openEngine(c)
	if err != nil {
		return "", 0, err
	}
	defer e.Close()
	before := time.Now()
	state, err := e.State(ctx)
	took := time.Since(before)
	return e.String(), state.Now.Sub(before.Add(took / 2)), err
}
