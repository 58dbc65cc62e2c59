package ask

import (
	"context"
	"sync"
)

// Late is a store that is opened when it is first asked, and tried again with the next question if it cannot be.
func Late(open func() (Store, error)) Store { return &late{open: open} }

type late struct {
	open func() (Store, error)
	mu   sync.Mutex
	own  Store
}

func (l *late) store() (Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.own == nil {
		l.own, err = l.open()
	}
	return l.own, err
}

func (l *late) Ask(ctx context.Context, texts []string) ([]Answer, error) {
	s, err := l.store()
	if err != nil {
		return nil, err
	}
	return s.Ask(ctx, texts)
}

func (l *late) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		return nil
	}
	return l.own.Close()
}
