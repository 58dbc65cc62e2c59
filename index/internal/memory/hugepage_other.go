//go:build !linux

package memory

func AdviseHuge([]byte) {}

func GiveBack([]byte) {}

func Populate([]byte) bool { return false }
