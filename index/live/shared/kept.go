package shared

import (
	"path/filepath"
	"sync"
	"time"

	"blockd/internal/durable"
)

const (
	seenEvery = time.Minute // how often it is written that the engine answers
	maxKept   = 1 << 30     // bytes of the file
)

// kept is the file of a node.
type kept struct {
	mu      sync.Mutex
	path    string
	written time.Time

	Seen    time.Time `json:"seen"` // when the engine has last answered, by its clock
	Pending []pending `json:"pending,omitempty"`
	Refused []refused `json:"refused,omitempty"` // the last ones
}

func (k *kept) read(folder string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.path = filepath.Join(folder, "shared.json")
	k.Pending, k.Refused = nil, nil
	return durable.LoadIfThere(k.path, maxKept, k)
}

// write writes the file. The caller holds mu.
func (k *kept) write() error { return durable.Save(k.path, k, 0o600) }

func (k *kept) seenAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Seen
}

// sees notes that the engine answers.
func (k *kept) sees(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Seen = now.UTC()
	if now.Sub(k.written).Abs() < seenEvery {
		return nil
	}
	k.written = now
	return k.write()
}
