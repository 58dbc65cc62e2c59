// Package program tests commands, documents, upgrades, and what clients feel of them.
package program

import (
	"testing"

	"blockd/cmd/blockd/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
