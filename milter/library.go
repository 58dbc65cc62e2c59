package milter

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/d--j/go-milter"

	"blockd/internal/listener"
)

// library directs the library's warnings to the log of the latest Server. The library has one
// variable for the process, which its connections read without a lock. So divertWarnings sets
// that variable once, and changes only the log that it leads to.
var library struct {
	once sync.Once
	to   atomic.Pointer[listener.CalmLog]
}

func divertWarnings(l *listener.CalmLog) {
	library.to.Store(l)
	library.once.Do(func() {
		milter.LogWarning = func(format string, v ...any) {
			library.to.Load().Warn("milter", slog.String("warning", fmt.Sprintf(format, v...)))
		}
	})
}
