package milter

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/d--j/go-milter"

	"blockd/listener"
)

// library is where the library's warnings go. It has one place for them in a
// process, a variable that its connections read without a lock: so that is written
// once, and what it leads to is the log of the latest Server.
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
