package servers

import (
	"testing"

	"blockd/cmd/blockd/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
