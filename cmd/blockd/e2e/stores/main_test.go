// Package stores tests blockd with databases, directories, object stores, fleets, and programs that ask by DNS and RESP.
package stores

import (
	"testing"

	"blockd/cmd/blockd/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
