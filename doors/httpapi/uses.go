package httpapi

import (
	"sync"
	"time"
)

// use is a token by its file and its name.
type use struct {
	file *tokens
	name string
}

// uses is when each token of a file was used last, as far as this process knows. It is safe for concurrent use.
type uses struct {
	mu sync.Mutex
	at map[use]int64 // Unix seconds
}

// note records a request with a token.
func (u *uses) note(of use, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil || len(u.at) > 4*maxTokens { // most of these are tokens that were revoked
		u.at = map[use]int64{}
	}
	u.at[of] = now.Unix()
}

// last is when a token was used; false if it was not.
func (u *uses) last(of use) (at time.Time, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	unix, ok := u.at[of]
	return time.Unix(unix, 0).UTC(), ok
}
