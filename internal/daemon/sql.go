//go:build !nosql

package daemon

import (
	"blockd/internal/config"
	"blockd/mirror"
)

// openSQL makes the drivers that a build with the tag nosql leaves out: postgres, mysql, sqlite, ldap and s3. A case of
// a driver is:
//
//	case "sqlite":
//		return sqlite.Open(sqlite.Options{DSN: dsn, Query: s.Query, Changes: s.FoundBy(), Watermark: s.Watermark, Overlap: s.Back(), List: l.Name})
func openSQL(l config.List, dsn string) (mirror.Source, error) {
	switch s := l.Source; s.Kind {
	default:
		_ = dsn
		return nil, noDriver(l)
	}
}
