package msgauth

import (
	"testing"
	"time"

	"blockd/internal/nameserver"
)

type zone = nameserver.Zone

func resolverOf(t testing.TB, s *nameserver.Server) *Resolver {
	t.Helper()
	return newResolver(t, Settings{Server: s.Address})
}

func newResolver(t testing.TB, settings Settings) *Resolver {
	t.Helper()
	r, err := NewResolver(settings)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventually waits for a condition that others bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("not in a minute: " + what)
		}
	}
}
