//go:build !linux

package stamp

import "os"

// Of knows no time of change here.
func Of(os.FileInfo) (s Stamp, ok bool) { return s, false }
