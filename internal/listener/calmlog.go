package listener

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// calm is the time after a warning in which further ones are only counted: a peer
// that sends nonsense in a circle must not fill the disk with the log.
const calm = 10 * time.Second

// CalmLog writes warnings that peers can cause as often as they like: one in ten
// seconds at most, with the number of those that were left out before it. Any number
// of goroutines may warn at once.
type CalmLog struct {
	log        *slog.Logger
	next       atomic.Int64 // Unix nanoseconds: nothing is written before
	suppressed atomic.Uint64
}

// NewCalmLog returns a CalmLog that writes to log.
func NewCalmLog(log *slog.Logger) *CalmLog { return &CalmLog{log: log} }

// Warn writes a warning, or counts it.
func (l *CalmLog) Warn(message string, attrs ...slog.Attr) {
	now, next := time.Now().UnixNano(), l.next.Load()
	early := now < next && next-now < 2*int64(calm) // further ahead it is of a clock that was set back since
	if early || !l.next.CompareAndSwap(next, now+int64(calm)) {
		l.suppressed.Add(1)
		return
	}
	l.log.LogAttrs(context.Background(), slog.LevelWarn, message,
		append(attrs, slog.Uint64("not_logged_before", l.suppressed.Swap(0)))...)
}
