// Package console tests the console in a real browser.
package console

import (
	"testing"

	"blockd/cmd/blockd/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
