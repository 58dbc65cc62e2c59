package shared

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"blockd/internal/durable"
)

const seenEvery = time.Minute // how often it is written that the engine answers

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
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		k.Pending, k.Refused = nil, nil
		err = json.Unmarshal(text, k)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	return nil
}

// write writes the file. The caller holds mu.
func (k *kept) write() error {
	text, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	return durable.WriteFile(k.path, append(text, '\n'), 0o600)
}

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
