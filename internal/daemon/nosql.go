//go:build nosql

package daemon

import (
	"blockd/ask"
	"blockd/internal/config"
	"blockd/mirror"
)

// openSQL makes none of the drivers that are left out by the build tag nosql. The configuration refuses their kinds
// before.
func openSQL(l config.List, _ string) (mirror.Source, error) { return nil, noDriver(l) }

func openAskedSQL(l config.List, _ string) (ask.Store, error) { return nil, noDriver(l) }
