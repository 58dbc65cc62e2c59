package transaction

import (
	"testing"

	"blockd/internal/testkit"
)

// TestShippedCasesCanBeRead: those of testdata, which only slow tests play.
func TestShippedCasesCanBeRead(t *testing.T) {
	if _, err := Load(testkit.Root(t) + "/testdata/transactions"); err != nil {
		t.Error(err)
	}
}
