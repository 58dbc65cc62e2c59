package milter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d--j/go-milter"
)

// calm is the time after a warning in which further ones are only counted: a mail
// server that sends nonsense in a circle must not fill the disk with the log.
const calm = 10 * time.Second

// calmLog writes warnings that peers can cause, a few of them.
type calmLog struct {
	log        *slog.Logger
	next       atomic.Int64 // Unix nanoseconds: nothing is written before
	suppressed atomic.Uint64
}

func (l *calmLog) warn(message string, attrs ...slog.Attr) {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(calm)) {
		l.suppressed.Add(1)
		return
	}
	l.log.LogAttrs(context.Background(), slog.LevelWarn, message,
		append(attrs, slog.Uint64("not_logged_before", l.suppressed.Swap(0)))...)
}

// library is where the library's warnings go. It has one place for them in a
// process, a variable that its connections read without a lock: so that is written
// once, and what it leads to is the log of the latest Server.
var library struct {
	once sync.Once
	to   atomic.Pointer[calmLog]
}

func divertWarnings(l *calmLog) {
	library.to.Store(l)
	library.once.Do(func() {
		milter.LogWarning = func(format string, v ...any) {
			library.to.Load().warn("milter", slog.String("warning", fmt.Sprintf(format, v...)))
		}
	})
}
