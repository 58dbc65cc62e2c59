//go:build !nosql

package daemon

import (
	"blockd/cmd/blockd/internal/config"
	"blockd/index/live/shared"
	sharedpostgres "blockd/index/live/shared/postgres"
	"blockd/lists"
	"blockd/policy/ask"
	askpostgres "blockd/policy/ask/postgres"
	"blockd/sources/mirror"
	"blockd/sources/mirror/ldap"
	"blockd/sources/mirror/mysql"
	"blockd/sources/mirror/postgres"
	"blockd/sources/mirror/s3"
	"blockd/sources/mirror/sqlite"
	"blockd/sources/snapshot"
)

// openSQL makes the drivers that a build with the tag nosql leaves out: postgres, mysql, sqlite, ldap and s3.
func openSQL(l config.List, dsn string) (mirror.Source, error) {
	switch s := l.Source; s.Kind {
	case "mysql":
		return mysql.Open(mysql.Options{DSN: dsn, Query: s.Query, Changes: s.FoundBy(), Watermark: s.Watermark, Overlap: s.Back(), Notify: s.Notify, List: l.Name, PerRecipient: l.PerRecipient})
	case "postgres":
		return postgres.Open(postgresOptions(l, dsn))
	case "ldap":
		return ldap.Open(ldap.Options{DSN: dsn, Query: s.Query, Changes: s.FoundBy(), Watermark: s.Watermark, Overlap: s.Back()})
	case "s3":
		settings := lists.Settings{Format: l.Format, Subdomains: l.Subdomains}
		if l.Action == "allow" {
			settings.Action = lists.Allow
		}
		return s3.Open(s3.Options{DSN: dsn, Settings: settings, Folder: l.CopyFolder()})
	case "sqlite":
		return sqlite.Open(sqlite.Options{DSN: dsn, Query: s.Query, Changes: s.FoundBy(), Watermark: s.Watermark, Overlap: s.Back(), Notify: s.Notify, List: l.Name, PerRecipient: l.PerRecipient})
	default:
		return nil, noDriver(l)
	}
}

// openBucket makes the store of snapshots at an s3:// address.
func openBucket(address string) (snapshot.Target, error) {
	return s3.OpenBucket(address, snapshot.ErrMissing)
}

func postgresOptions(l config.List, dsn string) postgres.Options {
	s := l.Source
	return postgres.Options{DSN: dsn, Query: s.Query, Changes: s.FoundBy(), Watermark: s.Watermark, Overlap: s.Back(), Notify: s.Notify, List: l.Name, PerRecipient: l.PerRecipient}
}

// openAskedSQL makes the stores of lists with mode = "ask" that a build with the tag nosql leaves out.
func openAskedSQL(l config.List, dsn string) (ask.Store, error) {
	if l.Source.Kind == "postgres" {
		return askpostgres.Open(postgresOptions(l, dsn))
	}
	return nil, noDriver(l)
}

func openSharedSQL(dsn, name string) (shared.Engine, error) { return sharedpostgres.Open(dsn, name) }

// SharedDDL is what a PostgreSQL needs for live.shared.
func SharedDDL() (string, error) { return sharedpostgres.DDL(), nil }
