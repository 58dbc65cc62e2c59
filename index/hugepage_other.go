//go:build !linux

package index

func adviseHuge([]byte) {}

func giveBack([]byte) {}

func populate([]byte) bool { return false }
