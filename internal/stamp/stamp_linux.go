package stamp

import (
	"os"
	"syscall"
)

// Of returns the stamp of a file; ok is false if the system says too little.
func Of(info os.FileInfo) (s Stamp, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return s, false
	}
	return Stamp{Device: uint64(st.Dev), Node: st.Ino, Size: st.Size, Mode: st.Mode, Written: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, true
}
