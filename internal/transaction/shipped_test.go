package transaction

import "testing"

// TestShippedCasesCanBeRead: those of testdata, which only slow tests play.
func TestShippedCasesCanBeRead(t *testing.T) {
	if _, err := Load("../../testdata/transactions"); err != nil {
		t.Error(err)
	}
}
