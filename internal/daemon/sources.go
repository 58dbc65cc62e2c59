package daemon

import (
	"fmt"

	"blockd/internal/config"
	"blockd/mirror"
	"blockd/mirror/redis"
)

// OpenSource makes the driver of a list's source. It reads the URL of the source, and makes no connection. No error
// of it has any of the URL.
func OpenSource(l config.List) (mirror.Source, error) {
	dsn, err := l.Source.ReadDSN()
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassAuth, Err: err}
	}
	// The drivers of blockd, a case each. Those with libraries of their own that the build tag nosql leaves out, which is
	// all but redis, have their cases in openSQL (sql.go).
	switch s := l.Source; s.Kind {
	case "redis":
		return redis.Open(redis.Options{DSN: dsn, List: l.Name, Changes: s.FoundBy(), Key: s.Key, Shards: s.Shards, Every: s.Poll()})
	default:
		return openSQL(l, dsn)
	}
}

// noDriver is the error of a kind that this build lacks.
func noDriver(l config.List) error {
	return &mirror.Error{Class: mirror.ClassRefused, Err: fmt.Errorf("source.kind %q is not in this build of blockd", l.Source.Kind)}
}
