//go:build nosql

package daemon

import (
	"errors"

	"blockd/cmd/blockd/internal/config"
	"blockd/index/live/shared"
	"blockd/policy/ask"
	"blockd/sources/mirror"
	"blockd/sources/snapshot"
)

// openSQL makes none of the drivers that are left out by the build tag nosql. The configuration refuses their kinds
// before.
func openSQL(l config.List, _ string) (mirror.Source, error) { return nil, noDriver(l) }

func openAskedSQL(l config.List, _ string) (ask.Store, error) { return nil, noDriver(l) }

func openSharedSQL(string, string) (shared.Engine, error) {
	return nil, errors.New(`"postgres" is not in this build of blockd (-tags nosql); take a build that has it`)
}

// SharedDDL is what a PostgreSQL needs for live.shared.
func SharedDDL() (string, error) {
	_, err := openSharedSQL("", "")
	return "", err
}

func openBucket(string) (snapshot.Target, error) {
	return nil, errors.New("s3:// is not in this build of blockd (-tags nosql); take a build that has it")
}
