package durable

import "testing"

// TestRoom: a disk without room has none, and one that tests write to has some.
func TestRoom(t *testing.T) {
	if free, full, err := Room(t.TempDir()); err != nil || full || free < LeastRoom {
		t.Error(free, full, err)
	}
	if free, _, err := Room("/proc"); err == nil && free != 0 { // where there is one
		t.Error(free)
	}
	if _, _, err := Room("/nowhere/there"); err == nil {
		t.Error("a folder that is not there")
	}
}
