//go:build !linux

package index

func adviseHuge([]byte) {}

func giveBack([]byte) {}
