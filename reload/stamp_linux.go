package reload

import (
	"os"
	"syscall"
)

// stampOf returns what the system says of a file; ok is false if it says too little. The time of change is
// set by the system alone: nobody can give a file another content and keep it.
func stampOf(info os.FileInfo) (s stamp, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return s, false
	}
	return stamp{Device: uint64(st.Dev), Node: st.Ino, Size: st.Size, Mode: st.Mode, Written: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, true
}
