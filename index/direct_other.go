//go:build !linux

package index

import "os"

func openDirect(string) *os.File { return nil }
